"""Series of the groups that this broker coordinates: their members, how far they have read, and what is left.

A group's series come from its coordinator alone, so a sum over all brokers counts each group once. The coordinator
knows the committed offsets; where partitions end is known here for those that this broker leads, and their leaders are
asked for the others. A leader that does not answer in time is taken to be where it was last; without that, the lag of
its partitions is left out. No lag is negative: a commit may be ahead of the end that was asked for before it.

Groups without members are kept, as long as they have offsets: theirs are the lags that nobody watches. A group can
commit an offset for every partition of the cluster, so there is a limit on offsets, too. A group for whose offsets
there is no room has sums by topic, which alerts compare; one with more topics than there is room for has one sum of its
lag. A page that takes too long is none, so no more than `SUMMED_TIMES` as many offsets as may have series are added up.
What is left out is counted, by the limit that it is due to.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics.exposition import GAUGE, Family, escape, gauge, labels
from barnabas.broker.serving.end_offsets import end_offsets
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.machines.groups.consumer.states import ConsumerGroupState
from barnabas.machines.groups.share.group import ShareGroup
from barnabas.machines.groups.share.states import ShareGroupState
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.metrics.scrape import Pace
    from barnabas.machines.groups.table import Group
    from barnabas.protocol.coordinator_records import OffsetCommitValue

ASK_SECONDS: Final = 2.0
"""How long the other leaders have to say where their partitions end."""
ASKED_AT_ONCE: Final = 500
"""Partitions of one request to a leader."""
SUMMED_TIMES: Final = 10
"""How many times as many offsets as have series are added up for groups whose offsets have none."""
BEAN: Final = "kafka_coordinator_group_groupmetadatamanager_"
METRICS: Final = "kafka_server_group_coordinator_metrics_"

Topics = Mapping[str, Mapping[int, "OffsetCommitValue"]]
"""The committed offsets of a group, which may commit others meanwhile."""


@dataclass(slots=True)
class _Shown:
    """Groups by what is shown of their offsets."""

    by_partition: dict[str, list[tuple[TopicPartition, int]]] = field(default_factory=dict)
    """Copied; those of a topic follow each other."""
    summed: dict[str, Topics] = field(default_factory=dict)
    """By topic."""
    totalled: dict[str, Topics] = field(default_factory=dict)
    """All in one."""
    without_lag: int = 0
    """Groups that are none of these, because there are too many offsets to add up."""
    omitted: int = 0
    """Offsets of groups that are none of these, because there are too many groups."""
    without_series: int = 0
    """Other offsets that have no series of their own."""
    offsets: int = 0
    """All."""


class GroupSeries:
    """Series by group."""

    def __init__(self, broker: BrokerContext, most: int, most_offsets: int) -> None:
        self._broker = broker
        self._most = most
        """Groups that have series of their own."""
        self._most_offsets = most_offsets
        """Offsets that have."""
        self._last_ends: dict[TopicPartition, int] = {}

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """The groups as they are now."""
        groups: list[Group] = []
        shown, rest = _Shown(), list[tuple[str, Topics, int]]()
        offsets_left = topics_left = self._most_offsets
        for _, machine in self._broker.groups.runtime.machines():
            groups += machine.table.groups.values()
            for group_id, topics in list(machine.committed_offsets.items()):
                count = sum(map(len, topics.values()))
                shown.offsets += count
                if len(shown.by_partition) + len(rest) >= self._most:
                    shown.omitted += count
                elif count <= offsets_left:
                    offsets_left -= count
                    topics_left -= len(topics)
                    shown.by_partition[group_id] = await _copied(topics, pace)
                else:
                    shown.without_series += count
                    rest.append((group_id, topics, count))
                if pace.is_over:
                    await pace.rest()
        self._place(rest, shown, topics_left)
        ends = await self._ends(shown, pace)
        return (
            *await self._members(groups, pace),
            *await _offsets(shown, ends, pace),
            *_counted(shown),
        )

    def _place(self, groups: Sequence[tuple[str, Topics, int]], shown: _Shown, topics_left: int) -> None:
        """Find out what is shown of groups for whose offsets there is no room."""
        offsets_left = SUMMED_TIMES * self._most_offsets
        for group_id, topics, count in groups:
            if count > offsets_left:
                shown.without_lag += 1
                continue
            offsets_left -= count
            if len(topics) <= topics_left:
                topics_left -= len(topics)
                shown.summed[group_id] = topics
            else:
                shown.totalled[group_id] = topics

    # Ends of partitions

    async def _ends(self, shown: _Shown, pace: Pace) -> Mapping[TopicPartition, int]:
        """Where partitions end, of those that there are."""
        wanted = set[TopicPartition]()
        for offsets in shown.by_partition.values():
            wanted.update(tp for tp, _ in offsets)
            if pace.is_over:
                await pace.rest()
        for groups in (shown.summed, shown.totalled):
            for topics in groups.values():
                for topic, partitions in list(topics.items()):
                    wanted.update(TopicPartition(topic, index) for index in partitions)
                    if pace.is_over:
                        await pace.rest()
        broker, image = self._broker, self._broker.metadata.image
        ends: dict[TopicPartition, int] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in wanted:
            led = broker.replicas.get(*tp)
            if led is not None:
                ends[tp] = led.leader.high_watermark
            elif (partition := image.partition(*tp)) is not None and partition.leader not in (
                NO_LEADER,
                broker.broker_id,
            ):
                by_leader.setdefault(partition.leader, []).append(tp)
            if pace.is_over:
                await pace.rest()
        requests = [
            (leader, partitions[start : start + ASKED_AT_ONCE])
            for leader, partitions in by_leader.items()
            for start in range(0, len(partitions), ASKED_AT_ONCE)
        ]
        if requests:
            await self._ask(requests, ends, pace)
        self._last_ends = ends
        return ends

    async def _ask(
        self, requests: Sequence[tuple[int, Sequence[TopicPartition]]], ends: dict[TopicPartition, int], pace: Pace
    ) -> None:
        answers = await asyncio.gather(
            *(
                end_offsets(self._broker, leader, partitions, seconds=ASK_SECONDS, purpose="metrics")
                for leader, partitions in requests
            ),
            return_exceptions=True,
        )
        pace.resume()
        for (_, partitions), answer in zip(requests, answers, strict=True):
            for tp in partitions:
                found = None if isinstance(answer, BaseException) else answer.get(tp)
                if type(found) is int:
                    ends[tp] = found
                elif tp in self._last_ends:
                    ends[tp] = self._last_ends[tp]
            if pace.is_over:
                await pace.rest()

    # Members

    async def _members(self, groups: Sequence[Group], pace: Pace) -> Sequence[Family]:
        members = Family("kafka_consumergroup_members", GAUGE, "Members of a consumer group.")
        shares = Family("barnabas_sharegroup_members", GAUGE, "Members of a share group.")
        states = Family("barnabas_group_state", GAUGE, "The state that a group is in, with its type; always 1.")
        counted: Counter[tuple[str, str]] = Counter()
        for number, group in enumerate(groups):
            kind, state, count = _kind(group)
            counted[kind, state] += 1
            if number < self._most:
                name = escape(group.group_id)
                states.lines.append(f'barnabas_group_state{{group="{name}",type="{kind}",state="{state}"}} 1\n')
                if kind == "share":
                    shares.lines.append(f'barnabas_sharegroup_members{{group="{name}"}} {count}\n')
                else:
                    members.lines.append(f'kafka_consumergroup_members{{consumergroup="{name}"}} {count}\n')
            if pace.is_over:
                await pace.rest()
        omitted = gauge(
            "barnabas_metrics_omitted_groups",
            "Groups without series of their own, because there are more than metrics.max.groups.",
            max(len(groups) - self._most, 0),
        )
        return members, shares, states, omitted, *_counts(counted)


async def _copied(topics: Topics, pace: Pace) -> list[tuple[TopicPartition, int]]:
    """The offsets of a group, as they are now."""
    found = []
    for topic, partitions in list(topics.items()):
        for index, value in list(partitions.items()):
            found.append((TopicPartition(topic, index), value.offset))
            if pace.is_over:
                await pace.rest()
    return found


def _kind(group: Group) -> tuple[str, str, int]:
    """Type, state and number of members of a group."""
    if isinstance(group, ClassicGroup):
        return "classic", group.state.value, len(group.members)
    if isinstance(group, ShareGroup):
        return "share", group.state.value, len(group.members)
    assert isinstance(group, ConsumerGroup)
    return "consumer", group.state.value, len(group.members)


def _counts(counted: Counter[tuple[str, str]]) -> list[Family]:
    """How many groups there are, by type and state."""
    types = Counter(dict.fromkeys(("classic", "consumer", "share"), 0))
    for (kind, _), count in counted.items():
        types[kind] += count
    families = [gauge(f"{BEAN}numgroups", "Classic groups that this broker coordinates.", types["classic"])]
    for state in ClassicGroupState:
        name, count = state.value, counted["classic", state.value]
        families.append(gauge(f"{BEAN}numgroups{name.lower()}", f"Classic groups in state {name}.", count))
    by_type = Family(f"{METRICS}group_count", GAUGE, "Groups that this broker coordinates, by type.")
    for kind, count in types.items():
        by_type.add(count, labels(protocol=kind))
    families.append(by_type)
    for kind, states in (("consumer", ConsumerGroupState), ("share", ShareGroupState)):
        by_state = Family(f"{METRICS}{kind}_group_count", GAUGE, f"Groups of type {kind}, by state.")
        for each in states:
            by_state.add(counted[kind, each.value], labels(state=each.value.lower()))
        families.append(by_state)
    return families


def _counted(shown: _Shown) -> Sequence[Family]:
    """How many offsets there are, and how many are not on the page."""
    return (
        gauge(f"{BEAN}numoffsets", "Offsets that groups here have committed.", shown.offsets),
        gauge(
            "barnabas_metrics_omitted_group_offsets",
            "Offsets without series of their own, because there are more than metrics.max.group.offsets.",
            shown.without_series,
        ),
        gauge(
            "barnabas_metrics_omitted_group_lags",
            f"Groups without lag, because more than {SUMMED_TIMES} times metrics.max.group.offsets had to be added up.",
            shown.without_lag,
        ),
        gauge(
            "barnabas_metrics_offsets_of_omitted_groups",
            "Offsets without series, because there are more groups than metrics.max.groups.",
            shown.omitted,
        ),
    )


async def _offsets(shown: _Shown, ends: Mapping[TopicPartition, int], pace: Pace) -> Sequence[Family]:
    """How far groups have read, and how much is left, by partition and by topic."""
    offset = Family("kafka_consumergroup_current_offset", GAUGE, "The committed offset of a group.")
    lag = Family("kafka_consumergroup_lag", GAUGE, "Offsets that a group has still to read.")
    offset_sum = Family("kafka_consumergroup_current_offset_sum", GAUGE, "Committed offsets of a topic together.")
    lag_sum = Family("kafka_consumergroup_lag_sum", GAUGE, "Offsets of a topic that a group has still to read.")

    def write_sums(group: str, sums: Mapping[str, Sequence[int]]) -> None:
        for topic, (at, left) in sums.items():
            labels = f'{{consumergroup="{group}",topic="{escape(topic)}"}} '
            offset_sum.lines.append(f"kafka_consumergroup_current_offset_sum{labels}{at}\n")
            lag_sum.lines.append(f"kafka_consumergroup_lag_sum{labels}{left}\n")

    for group_id, partitions in shown.by_partition.items():
        group = escape(group_id)
        sums: dict[str, list[int]] = {}
        for (topic, index), at in partitions:
            labels = f'{{consumergroup="{group}",topic="{escape(topic)}",partition="{index}"}} '
            offset.lines.append(f"kafka_consumergroup_current_offset{labels}{at}\n")
            of_topic = sums.setdefault(topic, [0, 0])
            of_topic[0] += at
            end = ends.get(TopicPartition(topic, index))
            if end is not None:
                left = max(end - at, 0)
                of_topic[1] += left
                lag.lines.append(f"kafka_consumergroup_lag{labels}{left}\n")
            if pace.is_over:
                await pace.rest()
        write_sums(group, sums)
    for group_id, topics in shown.summed.items():
        write_sums(escape(group_id), await _added_up(topics, ends, pace))
    for group_id, topics in shown.totalled.items():
        left = sum(left for _, left in (await _added_up(topics, ends, pace)).values())
        lag_sum.lines.append(f'kafka_consumergroup_lag_sum{{consumergroup="{escape(group_id)}"}} {left}\n')
    return offset, lag, offset_sum, lag_sum


async def _added_up(topics: Topics, ends: Mapping[TopicPartition, int], pace: Pace) -> Mapping[str, tuple[int, int]]:
    """The offsets of a group's topics together, and what is left of them."""
    sums = {}
    for topic, partitions in list(topics.items()):
        at_sum = left_sum = 0
        for index, value in list(partitions.items()):
            at_sum += value.offset
            end = ends.get(TopicPartition(topic, index))
            if end is not None:
                left_sum += max(end - value.offset, 0)
            if pace.is_over:
                await pace.rest()
        sums[topic] = (at_sum, left_sum)
    return sums
