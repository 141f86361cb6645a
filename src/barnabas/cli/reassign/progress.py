"""How far a plan has come: partitions on other brokers, and replicas in other directories; and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.clients.admin.replicas import Replica

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.cli.reassign.plans import Plan
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.replicas import Reassignment
    from barnabas.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Where a partition is, and where it shall be."""

    partition: TopicPartition
    current: tuple[int, ...]
    target: tuple[int, ...]
    moving: bool

    @property
    def text(self) -> str:
        """Kafka's line for it."""
        if self.moving:
            return f"Reassignment of partition {self.partition} is still in progress."
        if self.current == self.target:
            return f"Reassignment of partition {self.partition} is completed."
        return (
            f"There is no active reassignment of partition {self.partition}, but replica set is "
            f"{_ids(self.current)} rather than {_ids(self.target)}."
        )


@dataclass(frozen=True, slots=True)
class DirectoryProgress:
    """In which directory a replica is, in which it shall be, and into which it is being copied."""

    replica: Replica
    current: str | None
    target: str
    future: str | None

    @property
    def moving(self) -> bool:
        """Whether it is not settled yet."""
        return self.current is None or self.future is not None

    @property
    def text(self) -> str:
        """Kafka's line for it."""
        replica = self.replica
        if self.current is None:
            return (
                f"Partition {replica.partition} cannot be found in any live log directory on broker {replica.broker}."
            )
        if self.future == self.target:
            return f"Reassignment of replica {replica} is still in progress."
        if self.future is not None:
            return (
                f"Partition {replica.partition} on broker {replica.broker} is being moved to log dir {self.future} "
                f"instead of {self.target}."
            )
        if self.current == self.target:
            return f"Reassignment of replica {replica} completed successfully."
        return (
            f"Partition {replica.partition} on broker {replica.broker} is not being moved from log dir "
            f"{self.current} to {self.target}."
        )


def partitions_of(
    cluster: ClusterAdmin, plan: Plan, ongoing: Mapping[TopicPartition, Reassignment]
) -> list[PartitionProgress]:
    """How far the partitions of a plan are; one that does not exist has no replicas."""
    current = cluster.replicas.layout(plan.topics).replicas
    return [
        PartitionProgress(partition, ongoing[partition].replicas, target, True)
        if partition in ongoing
        else PartitionProgress(partition, current.get(partition, ()), target, False)
        for partition, target in sorted(plan.replicas.items())
    ]


def directories_of(cluster: ClusterAdmin, plan: Plan) -> list[DirectoryProgress]:
    """How far the replicas are that have a directory in the plan."""
    wanted = sorted(plan.directories.items())
    current, future = directories(cluster, {replica.broker for replica, _ in wanted})
    return [DirectoryProgress(replica, current.get(replica), target, future.get(replica)) for replica, target in wanted]


def directories(cluster: ClusterAdmin, brokers: Collection[int]) -> tuple[dict[Replica, str], dict[Replica, str]]:
    """Directories of all replicas of brokers that are up: where they are, and where they are being moved to."""
    current: dict[Replica, str] = {}
    future: dict[Replica, str] = {}
    for node in cluster.brokers.up().values() if brokers else ():
        if node.id in brokers:
            for directory in cluster.log_dirs.describe(node):
                for one in directory.replicas:
                    (future if one.is_future else current)[Replica(node.id, one.partition)] = directory.path
    return current, future


def ongoing_lines(ongoing: Mapping[TopicPartition, Reassignment]) -> list[str]:
    """Moves that are under way, as --list shows them."""
    return [
        f"{partition}: replicas: {_ids(move.replicas)}."
        + (f" adding: {_ids(move.adding)}." if move.adding else "")
        + (f" removing: {_ids(move.removing)}." if move.removing else "")
        for partition, move in sorted(ongoing.items())
    ]


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
