"""Where logs begin and end, which offset a time falls on, and where logs shall begin: asked of partitions' leaders."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import RETRY_SECONDS, Node, WireClient, meaning
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.permissions import on_topic
from barnabas.protocol.list_offsets import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST_TIERED, MAX_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NEEDED_VERSIONS: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version of ListOffsets that knows each of the special times."""


class Leading(NamedTuple):
    """Who leads partitions."""

    nodes: dict[TopicPartition, Node | None]
    """None where there is no leader; what is unknown or forbidden is left out."""
    forbidden: dict[str, RequestRefused]
    """Topics that may not be seen."""

    def led(self, partitions: Iterable[TopicPartition]) -> dict[Node, list[TopicPartition]]:
        """Partitions by who leads them; those that nobody is known to lead are left out."""
        led: dict[Node, list[TopicPartition]] = {}
        for partition in partitions:
            if (leader := self.nodes.get(partition)) is not None:
                led.setdefault(leader, []).append(partition)
        return led


class VisibleOffsets(NamedTuple):
    """Offsets of those partitions for which there are some."""

    known: dict[TopicPartition, int]
    forbidden: dict[str, RequestRefused]
    """Topics whose offsets may not be seen."""


class LogOffsets:
    """The offsets of a cluster's partitions, as their leaders know them.

    Where a topic may not be seen, RequestRefused is raised, but by `leading` and `visible`: they say it beside what is
    known of the other topics.
    """

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def all_leaders(self) -> dict[TopicPartition, Node | None]:
        """Who leads each partition of the cluster, None where there is no leader."""
        return self._leading(None).nodes

    def leaders(self, topics: Iterable[str]) -> dict[TopicPartition, Node | None]:
        """Who leads each partition of the named topics, None where there is no leader; unknown topics are left out."""
        nodes, forbidden = self.leading(topics)
        _raise_any(forbidden)
        return nodes

    def leading(self, topics: Iterable[str]) -> Leading:
        """The same for those of the named topics that may be seen."""
        return self._leading(list(dict.fromkeys(topics)))

    def _leading(self, topics: list[str] | None) -> Leading:
        from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

        wanted = (
            None
            if topics is None
            else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics)
        )
        metadata = self._wire.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False),
            at_least=4,
        )
        nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in metadata.brokers}
        return Leading(
            {
                TopicPartition(topic.name, partition.partition_index): nodes.get(partition.leader_id)
                for topic in metadata.topics
                for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
            },
            {
                topic.name: RequestRefused(
                    topic.error_code,
                    f"topic {topic.name}: {meaning(topic)}",
                    on_topic("describe", "Describe", topic.name),
                )
                for topic in metadata.topics
                if topic.error_code is ErrorCode.topic_authorization_failed
            },
        )

    def at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Offsets by time (milliseconds), or at LATEST or EARLIEST; -1 where no record is that young.

        Partitions that do not exist, or that have no leader, are left out. Where the leader has just changed, the new
        one is asked.
        """
        known, forbidden = self.visible(partitions, timestamp)
        _raise_any(forbidden)
        return known

    def visible(self, partitions: Iterable[TopicPartition], timestamp: int) -> VisibleOffsets:
        """The same for those of the partitions whose topics may be seen."""
        wanted = list(partitions)
        deadline = self._wire.deadline()
        known: dict[TopicPartition, int] = {}
        forbidden: dict[str, RequestRefused] = {}
        while wanted:
            again: list[TopicPartition] = []
            leading = self.leading(partition.topic for partition in wanted)
            forbidden |= leading.forbidden
            for leader, led in leading.led(wanted).items():
                for partition, code, offset in self.ask_leader(leader, led, timestamp):
                    if code == ErrorCode.none:
                        known[partition] = offset
                    elif code.retriable and not deadline.passed:
                        again.append(partition)
                    else:
                        refusal = RequestRefused(
                            code,
                            f"partition {partition}: the broker answered {code.name.upper()}",
                            on_topic("see the offsets of", "Describe", partition.topic),
                        )
                        if code != ErrorCode.topic_authorization_failed:
                            raise refusal
                        forbidden[partition.topic] = refusal
            wanted = again
            if wanted:
                time.sleep(RETRY_SECONDS)
        return VisibleOffsets(known, forbidden)

    def by_leader(self, partitions: Sequence[TopicPartition]) -> dict[Node, list[TopicPartition]]:
        """Partitions by who leads them; those that do not exist, or that have no leader, are left out."""
        leading = self.leading(partition.topic for partition in partitions)
        _raise_any(leading.forbidden)
        return leading.led(partitions)

    def ask_leader(
        self, leader: Node, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Iterable[tuple[TopicPartition, ErrorCode, int]]:
        """What one broker says of partitions that it is taken to lead: for each an error code, and an offset."""
        from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

        request = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=tuple(
                ListOffsetsTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        ListOffsetsPartition(partition_index=i32(number), timestamp=i64(timestamp))
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(partitions).items()
            ),
            timeout=i32Timedelta.parse(timedelta(seconds=self._wire.deadline().seconds)),
        )
        for topic in self._wire.ask(request, at=leader, at_least=NEEDED_VERSIONS.get(timestamp, 1)).topics:
            for answer in topic.partitions:
                yield TopicPartition(topic.name, answer.partition_index), answer.error_code, answer.offset

    def delete_before(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | RequestRefused]:
        """Let logs begin at these offsets (-1: at their end); where each begins now, or why it was refused."""
        from kio.schema.delete_records.v2.request import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )

        leading = self.leading(partition.topic for partition in wanted)
        led = leading.led(wanted)
        reached = {partition for partitions in led.values() for partition in partitions}
        results: dict[TopicPartition, int | RequestRefused] = {
            partition: leading.forbidden.get(partition.topic)
            or RequestRefused(ErrorCode.unknown_topic_or_partition, "there is no such partition, or it has no leader")
            for partition in wanted
            if partition not in reached
        }
        for leader, partitions in led.items():
            request = DeleteRecordsRequest(
                topics=tuple(
                    DeleteRecordsTopic(
                        name=TopicName(topic),
                        partitions=tuple(
                            DeleteRecordsPartition(
                                partition_index=i32(number), offset=i64(wanted[TopicPartition(topic, number)])
                            )
                            for number in numbers
                        ),
                    )
                    for topic, numbers in by_topic(partitions).items()
                ),
                timeout=i32Timedelta.parse(timedelta(seconds=self._wire.deadline().seconds)),
            )
            for topic in self._wire.ask(request, at=leader).topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.name, answer.partition_index)
                    results[partition] = (
                        answer.low_watermark
                        if answer.error_code == ErrorCode.none
                        else _not_deleted(answer.error_code, partition, wanted[partition])
                    )
        return results


def _raise_any(forbidden: Mapping[str, RequestRefused]) -> None:
    for refusal in forbidden.values():
        raise refusal


def _not_deleted(code: ErrorCode, partition: TopicPartition, offset: int) -> RequestRefused:
    if code == ErrorCode.offset_out_of_range:
        return RequestRefused(code, f"offset {offset} is not in the partition, nor is it its end")
    action = on_topic("delete records of", "Delete", partition.topic)
    return RequestRefused(code, f"the broker answered {code.name.upper()}", action)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions as requests have them: numbers below topics."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
