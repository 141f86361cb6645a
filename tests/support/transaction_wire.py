"""Requests of transactions made by hand: the numbers of their APIs, and bodies that serve all versions of each."""

from __future__ import annotations

from typing import Any, Final

PRODUCE, LIST_OFFSETS, INIT_PRODUCER_ID = 0, 2, 22
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_MARKERS, TXN_OFFSET_COMMIT = 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66

NEWEST: Final = {
    PRODUCE: 13,
    LIST_OFFSETS: 11,
    INIT_PRODUCER_ID: 5,
    ADD_PARTITIONS: 5,
    ADD_OFFSETS: 4,
    END_TXN: 5,
    WRITE_MARKERS: 2,
    TXN_OFFSET_COMMIT: 5,
    DESCRIBE_PRODUCERS: 0,
    DESCRIBE_TRANSACTIONS: 0,
    LIST_TRANSACTIONS: 2,
}
"""The newest version of each API that Apache Kafka 4.3.0 has."""

NOBODY: Final = (-1, -1)
"""The producer id and epoch of one that has none yet."""


def registering(transactional_id: str, producer: tuple[int, int] = NOBODY, timeout_ms: int = 60_000) -> dict[str, Any]:
    """An InitProducerId."""
    return {**_of(transactional_id, producer), "transaction_timeout": timeout_ms}


def adding(
    transactional_id: str, producer: tuple[int, int], *places: tuple[dict[str, Any], int], verify_only: bool = False
) -> dict[str, Any]:
    """An AddPartitionsToTxn for these partitions of topics."""
    indexes: dict[str, list[int]] = {}
    for topic, index in places:
        indexes.setdefault(topic["name"], []).append(index)
    topics = [{"name": name, "partitions": numbers} for name, numbers in indexes.items()]
    transaction = {**_of(transactional_id, producer), "topics": topics}
    older = {f"v3_and_below_{name}": value for name, value in transaction.items()}
    return {**older, "transactions": [{**transaction, "verify_only": verify_only}]}


def ending(transactional_id: str, producer: tuple[int, int], *, commit: bool) -> dict[str, Any]:
    """An EndTxn."""
    return {**_of(transactional_id, producer), "committed": commit}


def adding_offsets(transactional_id: str, producer: tuple[int, int], group: str) -> dict[str, Any]:
    """An AddOffsetsToTxn."""
    return {**_of(transactional_id, producer), "group_id": group}


def committing_offset(
    transactional_id: str,
    producer: tuple[int, int],
    group: str,
    topic: dict[str, Any],
    offset: int,
    **other: Any,
) -> dict[str, Any]:
    """A TxnOffsetCommit for the first partition of a topic, by nobody in particular."""
    partition = {
        "partition_index": other.pop("index", 0),
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    topics = [{**topic, "partitions": [partition]}]
    member = {"generation_id": -1, "member_id": ""}
    return {**_of(transactional_id, producer), "group_id": group, "topics": topics, **member, **other}


def marking(producer: tuple[int, int], topic: dict[str, Any], *indexes: int, commit: bool = False) -> dict[str, Any]:
    """A WriteTxnMarkers."""
    topics = [{**topic, "partition_indexes": list(indexes)}]
    marker = {"producer_id": producer[0], "producer_epoch": producer[1], "transaction_result": commit, "topics": topics}
    return {"markers": [marker]}


def _of(transactional_id: str, producer: tuple[int, int]) -> dict[str, Any]:
    return {"transactional_id": transactional_id, "producer_id": producer[0], "producer_epoch": producer[1]}
