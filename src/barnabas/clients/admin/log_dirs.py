"""What brokers have in their data directories, and how much room is left there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.permissions import on_cluster

if TYPE_CHECKING:
    from barnabas.clients.wire.connection import Node, WireClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """One replica of a partition on disk; a future one is on its way from another directory."""

    partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A directory; sizes are None where the broker does not tell them."""

    path: str
    error: ErrorCode
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[ReplicaInfo, ...]


class LogDirs:
    """The log directories of a cluster's brokers."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def describe(self, broker: Node) -> list[LogDir]:
        """The directories of one broker."""
        from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest

        answer = self._wire.ask(DescribeLogDirsRequest(topics=None), at=broker)
        if answer.error_code != ErrorCode.none:
            raise RequestRefused(
                answer.error_code,
                f"broker {broker.id} answered {answer.error_code.name.upper()}",
                on_cluster("see the log directories of brokers", "Describe"),
            )
        return [
            LogDir(
                path=directory.log_dir,
                error=directory.error_code,
                total_bytes=directory.total_bytes if directory.total_bytes >= 0 else None,
                usable_bytes=directory.usable_bytes if directory.usable_bytes >= 0 else None,
                replicas=tuple(
                    ReplicaInfo(
                        partition=TopicPartition(topic.name, partition.partition_index),
                        size=partition.partition_size,
                        offset_lag=partition.offset_lag,
                        is_future=partition.is_future_key,
                    )
                    for topic in sorted(directory.topics, key=lambda topic: topic.name)
                    for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
                ),
            )
            for directory in answer.results
        ]
