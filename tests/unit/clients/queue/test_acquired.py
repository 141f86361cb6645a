"""Which records of an answer a worker gets."""

from __future__ import annotations

import pytest

from barnabas.clients.queue.acquired import AcquiredRange, acquired_records
from barnabas.clients.records import TimestampType, TopicPartition
from barnabas.model.errors import InvalidRecord
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Header, Record

ORDERS = TopicPartition("orders", 2)


def batch(base_offset: int, *values: bytes, codec: int = 0, **options: int | bool) -> bytes:
    records = [Record(at, at * 10, b"k", value, (Header("h", b"1"),)) for at, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, base_timestamp=1000, codec=codec, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", range(5))
def test_only_acquired_records_are_given_each_with_its_deliveries(codec: int) -> None:
    data = batch(10, b"a", b"b", b"c", codec=codec) + batch(13, b"d", codec=codec)
    acquired = acquired_records(ORDERS, data, [AcquiredRange(11, 11, 1), AcquiredRange(12, 13, 3)])
    assert [(record.offset, record.value, record.delivery_count) for record in acquired.records] == [
        (11, b"b", 1),
        (12, b"c", 3),
        (13, b"d", 3),
    ]
    assert acquired.gaps == []
    record = acquired.records[0]
    assert (record.topic_partition, record.timestamp, record.key, record.headers) == (
        ORDERS,
        1010,
        b"k",
        (("h", b"1"),),
    )


def test_offsets_without_a_record_are_gaps() -> None:
    marker = build_batch([Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=11, base_timestamp=0, control=True)
    acquired = acquired_records(ORDERS, batch(10, b"a") + marker, [AcquiredRange(10, 12, 1)])
    assert [record.offset for record in acquired.records] == [10]
    assert acquired.gaps == [11, 12]


def test_the_time_of_the_log_is_the_time_of_all_records() -> None:
    [record] = acquired_records(ORDERS, batch(0, b"a", append_time=77), [AcquiredRange(0, 0, 1)]).records
    assert (record.timestamp, record.timestamp_type) == (77, TimestampType.LOG_APPEND_TIME)


def test_a_batch_that_is_cut_off_counts_as_not_there() -> None:
    data = batch(0, b"a") + batch(1, b"b")[:-1]
    acquired = acquired_records(ORDERS, data, [AcquiredRange(0, 0, 1)])
    assert [record.offset for record in acquired.records] == [0]


def test_a_damaged_batch_is_an_error() -> None:
    damaged = bytearray(batch(0, b"abc"))
    damaged[-1] ^= 1
    with pytest.raises(InvalidRecord, match="wrong checksum"):
        acquired_records(ORDERS, bytes(damaged), [AcquiredRange(0, 0, 1)])
    with pytest.raises(InvalidRecord, match="no batch"):
        acquired_records(ORDERS, bytes(100), [AcquiredRange(0, 0, 1)])
