"""What is remembered by a name: a client may send names of 32,767 bytes, and none of them may stay in memory."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.broker.coordinators.runtime import partition_of
from barnabas.model.errors import ErrorCode
from barnabas.protocol.coordinator_records import offset_commit as offset_records
from barnabas.protocol.coordinator_records import share_state, transaction_state
from barnabas.protocol.coordinator_records.messages import OffsetCommitKey
from barnabas.protocol.messages.groups import offset_commit
from barnabas.protocol.messages.groups.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = 60
LENGTH = 32_000
"""One character that is not in Unicode's first plane makes Python keep four bytes for each of the others."""


def find_coordinator(name: str) -> object:
    return partition_of(name, 50)


def refuse_commit(name: str) -> object:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.unknown_topic_or_partition)
    topic = OffsetCommitResponseTopic(name=name, partitions=(partition,))
    return offset_commit.pack(1, 8, OffsetCommitResponse(topics=(topic,)))


def encode_offset(name: str) -> object:
    return offset_records.encode_key(OffsetCommitKey(name, "topic", 0))


def decode_offset(name: str) -> object:
    return offset_records.decode_key(offset_records.encode_key(OffsetCommitKey(name, "topic", 0)))


def encode_transaction(name: str) -> object:
    key = transaction_state.TransactionLogKey(name)
    return transaction_state.encode(transaction_state.TransactionRecord(key, None))


def encode_share(name: str) -> object:
    return share_state.encode(share_state.ShareRecord(share_state.ShareSnapshotKey(name, UUID(int=1), 0), None))


@pytest.mark.parametrize(
    "use", [find_coordinator, refuse_commit, encode_offset, decode_offset, encode_transaction, encode_share]
)
def test_long_names_do_not_stay_in_memory(use: Callable[[str], object]) -> None:
    use(_name(NAMES))
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(NAMES):
            use(_name(number))
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < LENGTH, f"{kept} bytes are left of {NAMES} names"


def test_short_names_stay_in_bounded_memory() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(20_000):
            assert partition_of(f"group-{number}", 50) == partition_of(f"group-{number}", 50)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000, f"{kept} bytes are left of 20,000 names"


def _name(number: int) -> str:
    return f"{number:05}\N{GRINNING FACE}".ljust(LENGTH, "x")
