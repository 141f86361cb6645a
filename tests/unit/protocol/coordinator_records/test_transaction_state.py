"""Records of transactions, against bytes that Apache Kafka's schemas make."""

from __future__ import annotations

import pytest

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.coordinator_records import transaction_state
from barnabas.protocol.coordinator_records.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
)

KEY = bytes.fromhex("000000027478")
ONGOING = TransactionLogValue(
    producer_id=1,
    producer_epoch=2,
    transaction_timeout_ms=3,
    transaction_status=1,
    transaction_partitions=(PartitionsSchema("t", (0, 5)),),
    transaction_last_update_timestamp_ms=6,
    transaction_start_timestamp_ms=4,
    previous_producer_id=1,
    client_transaction_version=2,
)
ONGOING_BYTES = bytes.fromhex(
    "0001"  # version
    "0000000000000001"
    "0002"
    "00000003"
    "01"
    "02" "0274" "03" "00000000" "00000005" "00"  # partitions
    "0000000000000006"
    "0000000000000004"
    "02"  # two tagged fields
    "00" "08" "0000000000000001"
    "02" "02" "0002"
)  # fmt: skip


def test_a_value_is_written_as_kafka_writes_it() -> None:
    record = TransactionRecord(TransactionLogKey("tx"), ONGOING)
    assert transaction_state.encode(record) == (KEY, ONGOING_BYTES)
    assert transaction_state.decode(KEY, ONGOING_BYTES) == record


def test_a_tombstone_has_no_value() -> None:
    record = TransactionRecord(TransactionLogKey("tx"), None)
    assert transaction_state.encode(record) == (KEY, None)
    assert transaction_state.decode(KEY, None) == record


def test_the_oldest_version_is_read() -> None:
    value = bytes.fromhex("0000000000000000000100020000000300ffffffff0000000000000006ffffffffffffffff")
    record = transaction_state.decode(KEY, value)
    assert record is not None
    assert record.value == TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=0,
        transaction_last_update_timestamp_ms=6,
    )


def test_other_types_are_nothing_to_us() -> None:
    assert transaction_state.decode(bytes.fromhex("000100027478"), None) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0", None), (KEY[:-1], None), (KEY, b"\0"), (KEY, b"\0\2"), (KEY, ONGOING_BYTES[:-3])],
)
def test_damage_is_told(key: bytes, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        transaction_state.decode(key, value)
