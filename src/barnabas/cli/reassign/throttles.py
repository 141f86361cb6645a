"""Limits on how fast replicas move: a rate for each broker, and which replicas it holds for.

A limit would otherwise slow down all replication: so topics name the replicas that move, sources for the leader's side
and destinations for the follower's. Whoever sets them has to clear them, which is what --verify is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from barnabas.clients.admin.configs import EntityType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.cli.reassign.plans import Plan
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.replicas import Reassignment
    from barnabas.model.ids import TopicPartition

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"


@dataclass(frozen=True, slots=True)
class Move:
    """From which brokers a partition is copied, and to which."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves(
    ongoing: Mapping[TopicPartition, Reassignment],
    targets: Mapping[TopicPartition, tuple[int, ...]],
    current: Mapping[TopicPartition, tuple[int, ...]],
) -> dict[TopicPartition, Move]:
    """All moves once these targets are set: a partition that moves already keeps its sources."""
    found = {
        partition: Move(frozenset(move.replicas) - frozenset(move.adding), frozenset(move.adding))
        for partition, move in ongoing.items()
    }
    for partition, target in targets.items():
        sources = found[partition].sources if partition in found else frozenset(current[partition])
        found[partition] = Move(sources, frozenset(target) - sources)
    return found


def throttled_replicas(moving: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str]]:
    """The settings of each topic that say for which replicas a rate holds, as `partition:broker` by commas."""
    sides: dict[str, tuple[set[str], set[str]]] = {}
    for (topic, number), move in moving.items():
        leaders, followers = sides.setdefault(topic, (set(), set()))
        leaders.update(f"{number}:{broker}" for broker in move.sources)
        followers.update(f"{number}:{broker}" for broker in move.destinations)
    return {
        topic: {LEADERS: ",".join(sorted(leaders)), FOLLOWERS: ",".join(sorted(followers))}
        for topic, (leaders, followers) in sides.items()
    }


def limit_moves(cluster: ClusterAdmin, moving: Mapping[TopicPartition, Move], rate: int) -> None:
    """Set a rate (bytes per second) for moves between brokers."""
    for topic, settings in throttled_replicas(moving).items():
        cluster.configs.alter(EntityType.TOPICS, topic, add=settings, delete=())
    for broker in sorted({broker for move in moving.values() for broker in move.sources | move.destinations}):
        _alter_broker(cluster, broker, add=dict.fromkeys(RATES, str(rate)), delete=())
    click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


def limit_directories(cluster: ClusterAdmin, brokers: Iterable[int], rate: int) -> None:
    """Set a rate for moves between directories of one broker."""
    for broker in sorted(set(brokers)):
        _alter_broker(cluster, broker, add={DIRECTORY_RATE: str(rate)}, delete=())
    click.echo(f"The replica-alter-dir throttle limit was set to {rate} B/s")


def clear_plan(cluster: ClusterAdmin, plan: Plan, *, quiet: bool = False) -> None:
    """Remove limits from all brokers that could have been part of the moves, and from the topics of the plan."""
    clear(cluster, cluster.brokers.up().keys() | plan.brokers, plan.topics, quiet=quiet)


def clear(cluster: ClusterAdmin, brokers: Collection[int], topics: Collection[str], *, quiet: bool = False) -> None:
    """Remove all limits of brokers and topics, and tell so unless `quiet`."""
    tell = (lambda text: None) if quiet else click.echo
    numbers = ",".join(map(str, sorted(brokers)))
    tell(f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {numbers}")
    for broker in sorted(brokers):
        _alter_broker(cluster, broker, add={}, delete=(*RATES, DIRECTORY_RATE))
    tell(f"Clearing topic-level throttles on topic{'' if len(topics) == 1 else 's'} {','.join(sorted(topics))}")
    for topic in sorted(topics):
        cluster.configs.alter(EntityType.TOPICS, topic, add={}, delete=(LEADERS, FOLLOWERS))


def _alter_broker(cluster: ClusterAdmin, broker: int, *, add: Mapping[str, str], delete: Iterable[str]) -> None:
    cluster.configs.alter(EntityType.BROKERS, str(broker), add=add, delete=delete)
