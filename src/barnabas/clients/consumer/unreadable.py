"""Batches that no client can read: what stands at an offset, fetched as bytes and looked at.

librdkafka takes records that do not end where they should for a message that was cut short, asks for it again, and
goes on so for ever. Whoever waits for records that should be there can find out here whether that is the reason.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from barnabas.clients.admin.log_offsets import LogOffsets
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import decompress
from barnabas.protocol.records.walk import walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.clients.wire.connection import Node, WireClient
    from barnabas.model.ids import TopicPartition

MOST_BYTES: Final = 64 << 20
"""What is fetched of a partition, and what a batch may decompress to."""
_WAIT: Final = timedelta(milliseconds=500)


class Unreadable(NamedTuple):
    """A batch that cannot be read."""

    partition: TopicPartition
    offset: int
    """Of its first record."""
    next_offset: int
    """After its last record."""
    reason: str


def find_unreadable(cluster: WireClient, positions: Mapping[TopicPartition, int]) -> Unreadable | None:
    """The first of these partitions whose batch at this offset cannot be read, if there is one.

    Those whose topics may not be seen any more are left out.
    """
    leading = LogOffsets(cluster).leading(partition.topic for partition in positions)
    for leader, partitions in leading.led(positions).items():
        for partition in partitions:
            offset = positions[partition]
            found = _first_unreadable(partition, offset, _fetch(cluster, leader, partition, offset))
            if found is not None:
                return found
    return None


def _fetch(cluster: WireClient, leader: Node, partition: TopicPartition, offset: int) -> bytes:
    from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic

    wanted = FetchPartition(
        partition=i32(partition.partition),
        current_leader_epoch=i32(-1),
        fetch_offset=i64(offset),
        last_fetched_epoch=i32(-1),
        log_start_offset=i64(-1),
        partition_max_bytes=i32(1),  # the broker sends the first batch whole, however large it is
    )
    request = FetchRequest(
        cluster_id=None,
        replica_id=BrokerId(-1),
        max_wait=i32Timedelta.parse(_WAIT),
        min_bytes=i32(1),
        max_bytes=i32(MOST_BYTES),
        isolation_level=i8(0),
        session_id=i32(0),
        session_epoch=i32(-1),
        topics=(FetchTopic(topic=TopicName(partition.topic), partitions=(wanted,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    for topic in cluster.ask(request, at=leader).responses:
        for part in topic.partitions:
            if part.error_code == ErrorCode.none and part.records is not None:
                return bytes(part.records)
    return b""


def _first_unreadable(partition: TopicPartition, offset: int, data: bytes) -> Unreadable | None:
    """The batch that has `offset`, or comes first after it, if it cannot be read."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        batch = data[position : position + header.size]
        position += header.size
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LOG_OVERHEAD or len(batch) < header.size:
            return None
        if header.last_offset < offset or not header.record_count:
            continue
        reason = None
        if crc32c(batch[CRC_START:]) != header.crc:
            reason = "its checksum does not match"
        else:
            try:
                walk(decompress(header.codec, batch[HEADER_SIZE:], MOST_BYTES), 0, header.record_count)
            except ApiError as error:
                reason = str(error)
        return None if reason is None else Unreadable(partition, header.base_offset, header.last_offset + 1, reason)
    return None
