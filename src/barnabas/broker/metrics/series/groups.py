"""Series of the groups that this broker coordinates: their members, how far they have read, and what is left.

A group's series come from its coordinator alone, so a sum over all brokers counts each group once. The coordinator
knows the committed offsets; where partitions end is known here for those that this broker leads, and their leaders are
asked for the others. A leader that does not answer in time is taken to be where it was last; without that, the lag of
its partitions is left out. No lag is negative: a commit may be ahead of the end that was asked for before it.

Groups without members are kept, as long as they have offsets: theirs are the lags that nobody watches. A group can
commit an offset for every partition of the cluster, so there is a limit on offsets, too: groups for whose offsets there
is no room have none on the page, and what is left out is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
    from collections.abc import Mapping, Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.metrics.scrape import Pace
    from barnabas.machines.groups.table import Group
    from barnabas.protocol.coordinator_records import OffsetCommitValue

ASK_SECONDS: Final = 2.0
"""How long the other leaders have to say where their partitions end."""
ASKED_AT_ONCE: Final = 500
"""Partitions of one request to a leader."""
BEAN: Final = "kafka_coordinator_group_groupmetadatamanager_"
METRICS: Final = "kafka_server_group_coordinator_metrics_"

Committed = dict[str, list[tuple[TopicPartition, int]]]
"""Committed offsets, by group; those of a topic follow each other."""


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
        committed: Committed = {}
        offsets = shown = 0
        for _, machine in self._broker.groups.runtime.machines():
            groups += machine.table.groups.values()
            for group_id, topics in list(machine.committed_offsets.items()):
                count = sum(map(len, topics.values()))
                offsets += count
                if len(committed) < self._most and shown + count <= self._most_offsets:
                    shown += count
                    committed[group_id] = await _copied(topics, pace)
                if pace.is_over:
                    await pace.rest()
        ends = await self._ends(committed, pace)
        omitted = gauge(
            "barnabas_metrics_omitted_group_offsets",
            "Offsets of groups without series, because there are more than metrics.max.group.offsets.",
            offsets - shown,
        )
        return (
            *await self._members(groups, pace),
            *await _offsets(committed, ends, pace),
            _number_of_offsets(offsets),
            omitted,
        )

    # Ends of partitions

    async def _ends(self, committed: Committed, pace: Pace) -> Mapping[TopicPartition, int]:
        """Where partitions end, of those that there are."""
        wanted = set[TopicPartition]()
        for offsets in committed.values():
            wanted.update(tp for tp, _ in offsets)
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


async def _copied(
    topics: Mapping[str, Mapping[int, OffsetCommitValue]], pace: Pace
) -> list[tuple[TopicPartition, int]]:
    """The offsets of a group, which may commit others meanwhile."""
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


def _number_of_offsets(offsets: int) -> Family:
    return gauge(f"{BEAN}numoffsets", "Offsets that groups here have committed.", offsets)


async def _offsets(committed: Committed, ends: Mapping[TopicPartition, int], pace: Pace) -> Sequence[Family]:
    """How far groups have read, and how much is left, by partition and by topic."""
    offset = Family("kafka_consumergroup_current_offset", GAUGE, "The committed offset of a group.")
    lag = Family("kafka_consumergroup_lag", GAUGE, "Offsets that a group has still to read.")
    offset_sum = Family("kafka_consumergroup_current_offset_sum", GAUGE, "Committed offsets of a topic together.")
    lag_sum = Family("kafka_consumergroup_lag_sum", GAUGE, "Offsets of a topic that a group has still to read.")
    for group_id, partitions in committed.items():
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
        for topic, (at, left) in sums.items():
            labels = f'{{consumergroup="{group}",topic="{escape(topic)}"}} '
            offset_sum.lines.append(f"kafka_consumergroup_current_offset_sum{labels}{at}\n")
            lag_sum.lines.append(f"kafka_consumergroup_lag_sum{labels}{left}\n")
    return offset, lag, offset_sum, lag_sum
