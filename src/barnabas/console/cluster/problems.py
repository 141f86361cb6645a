"""What is wrong with a cluster, worst first: what happened, to what, and what to do. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from barnabas.console.cluster.group_lags import GroupStates
    from barnabas.console.cluster.snapshot import ClusterSnapshot, Disks
    from barnabas.model.ids import TopicPartition

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
SHOWN: Final = 5
"""How many names a problem lists before it counts the rest."""
FULL_SHARE: Final = 0.1
"""A disk with less than this share free is filling up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProblem:
    """One thing that is wrong."""

    level: str
    title: str
    detail: str
    to_do: str
    link: str | None = None
    command: str | None = None

    def document(self) -> dict[str, Any]:
        """As the page gets it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All that problems are found in; what was not looked at is None."""

    snapshot: ClusterSnapshot
    disks: Disks | None = None
    groups: GroupStates | None = None
    least_isr: Mapping[str, int] = field(default_factory=dict)
    """min.insync.replicas of topics with replicas out of sync."""
    growing: Mapping[str, int] = field(default_factory=dict)
    """Groups whose lag grows, and by how much in the last minutes."""
    moving: int = 0
    """Partitions that are being reassigned."""
    start_again: Mapping[int, str] = field(default_factory=dict)
    """What starts a broker again, where that is known."""


def find_problems(observed: Observations) -> list[ClusterProblem]:
    """All problems, the worst first; what causes others before them, and as bad as the worst of these."""
    partitions = list(_partitions(observed.snapshot, observed.least_isr))
    level = ERROR if any(each.level == ERROR for each in partitions) else WARNING
    found = [
        *_brokers(observed.snapshot, observed.start_again, level),
        *_directories(observed.disks),
        *partitions,
        *_groups(observed.groups, observed.growing),
        *_moves(observed.moving),
    ]
    return sorted(found, key=lambda problem: (ERROR, WARNING, NOTE).index(problem.level))


def _brokers(snapshot: ClusterSnapshot, start_again: Mapping[int, str], level: str) -> Iterator[ClusterProblem]:
    if snapshot.controller is None:
        yield ClusterProblem(
            level=ERROR,
            title="No controller",
            detail="No broker is the controller: topics cannot be created, and no new leaders are elected.",
            to_do="Brokers elect one within seconds. If this stays, see whether they reach the metadata store.",
            link="/brokers",
        )
    for broker in snapshot.brokers.values():
        if not broker.up:
            unregister = f"barnabas cluster unregister --id {broker.id}"
            command = start_again.get(broker.id)
            to_do = (
                f"Start it again on {broker.host}, by the command or service that it was started with. If it does not "
                "come back, unregister it:"
                if command is None
                else "Start it again by the command below. One that never comes back is unregistered by "
                "`barnabas cluster unregister`."
            )
            yield ClusterProblem(
                level=level,
                title=f"Broker {broker.id} is down",
                detail=f"It is registered at {broker.host}:{broker.port} and does not take part in the cluster.",
                to_do=to_do,
                link=f"/brokers/{broker.id}",
                command=command or unregister,
            )
    for number, reason in snapshot.silent.items():
        yield ClusterProblem(
            level=level,
            title=f"Broker {number} does not answer",
            detail=f"The cluster takes it for alive, but: {reason}.",
            to_do="It may be starting, stopping or overloaded. Look into its log.",
            link=f"/brokers/{number}",
        )


def _partitions(snapshot: ClusterSnapshot, least_isr: Mapping[str, int]) -> Iterator[ClusterProblem]:
    offline: list[str] = []
    too_few: list[str] = []
    behind: list[str] = []
    for topic in snapshot.topics.values():
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.number}"
            if partition.leader is None:
                offline.append(name)
            elif len(partition.isr) < len(partition.replicas):
                least = min(least_isr.get(topic.name, 0), len(partition.replicas))
                (too_few if len(partition.isr) < least else behind).append(name)
    if offline:
        yield ClusterProblem(
            level=ERROR,
            title=f"{_count(offline, 'partition')} without a leader",
            detail=f"Nobody can write to or read from {_names(offline)}.",
            to_do="Start a broker that has an in-sync replica. Only if none comes back, elect an unclean leader: "
            "that loses records.",
            link="/topics?show=offline",
            command="barnabas topics --describe --unavailable-partitions",
        )
    if too_few:
        yield ClusterProblem(
            level=ERROR,
            title=f"{_count(too_few, 'partition')} below min.insync.replicas",
            detail=f"Producers with acks=all cannot write to {_names(too_few)}.",
            to_do="Start the brokers that are down, or see why their replicas do not catch up.",
            link="/topics?show=under-min-isr",
            command="barnabas topics --describe --under-min-isr-partitions",
        )
    if behind:
        yield ClusterProblem(
            level=WARNING,
            title=f"{_count(behind, 'partition')} under-replicated",
            detail=f"Some replicas are not in sync: {_names(behind)}.",
            to_do="Start the brokers that are down, or wait until their replicas have caught up.",
            link="/topics?show=under-replicated",
            command="barnabas topics --describe --under-replicated-partitions",
        )


def _directories(disks: Disks | None) -> Iterator[ClusterProblem]:
    for broker, several in (disks.directories if disks is not None else {}).items():
        for directory in several:
            if directory.error != ErrorCode.none:
                yield ClusterProblem(
                    level=ERROR,
                    title=f"A log directory of broker {broker} is offline",
                    detail=f"{directory.path}: {directory.error.name.upper()}.",
                    to_do="Look into the broker's log. After a disk was mended, restart the broker.",
                    link=f"/brokers/{broker}",
                )
            elif directory.total_bytes and directory.usable_bytes is not None:
                free = directory.usable_bytes / directory.total_bytes
                if free < FULL_SHARE:
                    yield ClusterProblem(
                        level=WARNING,
                        title=f"A disk of broker {broker} is filling up",
                        detail=f"{directory.path} has {free:.0%} of its space left.",
                        to_do="Lower the retention of large topics, move replicas away, or add space.",
                        link=f"/brokers/{broker}",
                    )


def _groups(groups: GroupStates | None, growing: Mapping[str, int]) -> Iterator[ClusterProblem]:
    for group_id, by in growing.items():
        state = groups.groups.get(group_id) if groups is not None else None
        if state is None or not state.lag:
            continue
        idle = state.state == "Empty"
        yield ClusterProblem(
            level=WARNING,
            title=f"The lag of group {group_id} grows",
            detail=f"It has {state.lag:,} records left, {by:,} more than some minutes ago"
            + (", and no members." if idle else "."),
            to_do="Start its consumers." if idle else "Add consumers, or see why they are slow.",
            link=f"/group?id={quote(group_id, safe='')}",
        )
    if groups is not None and groups.error is not None:
        yield ClusterProblem(
            level=WARNING,
            title="The offsets of some groups cannot be read",
            detail=f"{groups.error[:1].upper()}{groups.error[1:]}.",
            to_do="A coordinator may be loading or moving. If this stays, look into the brokers' logs.",
            link="/groups",
        )


def _moves(moving: int) -> Iterator[ClusterProblem]:
    if moving:
        yield ClusterProblem(
            level=NOTE,
            title=f"{moving} {'partition is' if moving == 1 else 'partitions are'} being reassigned",
            detail="Replicas are copied to other brokers.",
            to_do="Nothing. The page of brokers shows the progress.",
            link="/brokers",
        )


def _count(names: Sequence[str], noun: str) -> str:
    return f"{len(names):,} {noun}{'' if len(names) == 1 else 's'}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def topics_out_of_sync(snapshot: ClusterSnapshot) -> list[str]:
    """Topics with a partition that has a leader, and a replica that is not in sync."""
    return [
        topic.name
        for topic in snapshot.topics.values()
        if any(each.leader is not None and len(each.isr) < len(each.replicas) for each in topic.partitions)
    ]


def total(values: Mapping[TopicPartition, float], places: Iterable[TopicPartition] | None = None) -> float:
    """The sum of figures of partitions, of some or of all."""
    return sum(values.values()) if places is None else sum(values.get(place, 0) for place in places)
