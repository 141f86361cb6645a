"""The state of any transactional id is written as its schemas say, and read as it was written."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.coordinator_records import transaction_state
from barnabas.protocol.coordinator_records.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    decode,
    encode,
)

TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
INT8: Final = st.integers(-(2**7), 2**7 - 1)
INT16: Final = st.integers(-(2**15), 2**15 - 1)
INT32: Final = st.integers(-(2**31), 2**31 - 1)
INT64: Final = st.integers(-(2**63), 2**63 - 1)
TOPICS: Final = st.lists(st.builds(PartitionsSchema, TEXT, st.lists(INT32, max_size=5).map(tuple)), max_size=3)
VALUES: Final = st.builds(
    TransactionLogValue,
    producer_id=INT64,
    producer_epoch=INT16,
    transaction_timeout_ms=INT32,
    transaction_status=INT8,
    transaction_last_update_timestamp_ms=INT64,
    transaction_partitions=st.none() | TOPICS.map(tuple),
    transaction_start_timestamp_ms=INT64,
    previous_producer_id=st.just(-1) | INT64,
    next_producer_id=st.just(-1) | INT64,
    next_producer_epoch=st.just(-1) | INT16,
    client_transaction_version=st.just(0) | INT16,
)


@given(TEXT, VALUES)
def test_a_record_is_what_the_schemas_make_and_comes_back(transactional_id: str, value: TransactionLogValue) -> None:
    record = TransactionRecord(TransactionLogKey(transactional_id), value)
    key_schema, _, value_schema = transaction_state.SCHEMAS
    expected_key, expected_value = bytearray(b"\0\0"), bytearray(b"\0\1")
    key_schema.write(expected_key, record.key, False)
    value_schema.write(expected_value, value, True)
    key, encoded = encode(record)
    assert (key, encoded) == (bytes(expected_key), bytes(expected_value))
    assert decode(key, encoded) == record
