"""The records of a ShareFetch answer that this member has acquired.

An answer holds whole batches, of which the member may have acquired a part: `AcquiredRecords` names the offsets.
Offsets that were acquired and have no record for a program (markers of transactions, records that compaction removed)
are gaps, which are acknowledged as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.clients.records import ConsumerRecord, TimestampType, TopicPartition
from barnabas.model.errors import InvalidRecord
from barnabas.protocol.records.batch import CRC_START, HEADER_SIZE, LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import MAX_UNPACKED, decompress
from barnabas.protocol.records.records import read_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class AcquiredRange(NamedTuple):
    """Offsets that were acquired together, both ends included, and how often they were delivered."""

    first: int
    last: int
    deliveries: int


class AcquiredRecords(NamedTuple):
    """What an answer has for a program, and the offsets that have nothing."""

    records: list[ConsumerRecord[bytes, bytes]]
    gaps: list[int]


def acquired_records(partition: TopicPartition, data: bytes, ranges: Iterable[AcquiredRange]) -> AcquiredRecords:
    """The acquired records among these batches, by offset. Raises InvalidRecord if a batch cannot be read."""
    deliveries = {offset: one.deliveries for one in ranges for offset in range(one.first, one.last + 1)}
    records = [
        record._replace(delivery_count=deliveries.pop(record.offset))
        for record in _records(partition, data)
        if record.offset in deliveries
    ]
    return AcquiredRecords(records, sorted(deliveries))


def _records(partition: TopicPartition, data: bytes) -> Iterator[ConsumerRecord[bytes, bytes]]:
    """All records of whole batches, without those of control batches; the last batch may be cut off."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
            raise InvalidRecord(f"what stands at byte {position} of an answer for {partition} is no batch")
        batch = data[position : position + header.size]
        position += header.size
        if len(batch) < header.size:
            return
        if crc32c(batch[CRC_START:]) != header.crc:
            raise InvalidRecord(f"the batch at offset {header.base_offset} of {partition} has a wrong checksum")
        if header.is_control:
            continue
        payload = decompress(header.codec, batch[HEADER_SIZE:], MAX_UNPACKED)
        appended = bool(header.attributes & LOG_APPEND_TIME)
        for one in read_records(payload, header.record_count):
            yield ConsumerRecord(
                topic=partition.topic,
                partition=partition.partition,
                offset=header.base_offset + one.offset_delta,
                timestamp=header.max_timestamp if appended else header.base_timestamp + one.timestamp_delta,
                timestamp_type=TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME,
                key=one.key,
                value=one.value,
                headers=tuple((header.key, header.value) for header in one.headers),
                leader_epoch=header.leader_epoch,
            )
