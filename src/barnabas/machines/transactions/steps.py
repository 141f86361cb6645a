"""The steps of a transactional id: its state before, as it is stored, and its state after.

Everything here makes a value of another; nothing is changed in place. Each step is held to the transition table.

A producer epoch is used up one before the largest number: the last one is left for fencing the producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.machines.transactions.states import TRANSITIONS, TransactionState
from barnabas.model.ids import TopicPartition
from barnabas.protocol.coordinator_records.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
)
from barnabas.protocol.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Collection

_STATES: Final = tuple(TransactionState)
FENCED_SINCE: Final = 2
"""The version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn from which on clients know PRODUCER_FENCED."""
EPOCH_BUMPS_SINCE: Final = 2
"""The transaction.version from which on every end of a transaction brings a new epoch."""


class Markers(NamedTuple):
    """The end of a transaction, to be written to each of its partitions."""

    transactional_id: str
    prepared: TransactionLogValue
    """The state in which that was decided."""

    @property
    def producer_id(self) -> int:
        """Whose transaction it is."""
        return self.prepared.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch that the markers have."""
        return self.prepared.producer_epoch

    @property
    def commit(self) -> bool:
        """Whether the transaction is committed."""
        return state_of(self.prepared) is TransactionState.PREPARE_COMMIT

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Where it has written to."""
        return partitions_of(self.prepared)

    @property
    def transaction_version(self) -> int:
        """The transaction.version of the client."""
        return self.prepared.client_transaction_version


def state_of(value: TransactionLogValue) -> TransactionState:
    """The state in a record; its number was checked when the record was read."""
    return _STATES[value.transaction_status]


def partitions_of(value: TransactionLogValue) -> frozenset[TopicPartition]:
    """The partitions of the open transaction."""
    return frozenset(
        TopicPartition(each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
    )


def is_used_up(epoch: int) -> bool:
    """Whether a producer must get a new id instead of another epoch."""
    return epoch >= MAX_PRODUCER_EPOCH - 1


def register(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionLogValue:
    """A new transactional id."""
    return TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=0,
        previous_producer_id=producer_id,
        transaction_timeout_ms=timeout_ms,
        transaction_status=TransactionState.EMPTY,
        transaction_last_update_timestamp_ms=now_ms,
    )


def register_again(
    before: TransactionLogValue, producer_id: int, epoch: int, timeout_ms: int, now_ms: int
) -> TransactionLogValue:
    """A producer registers again, or another takes the id over."""
    return _step(
        before,
        TransactionState.EMPTY,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_timeout_ms=timeout_ms,
        transaction_partitions=None,
        transaction_start_timestamp_ms=NO_TIMESTAMP,
        next_producer_id=NO_PRODUCER_ID,
    )


def add(
    before: TransactionLogValue, partitions: Collection[TopicPartition], version: int, now_ms: int
) -> TransactionLogValue:
    """Partitions become part of the transaction, the first of which opens it."""
    is_first = state_of(before) is not TransactionState.ONGOING
    return _step(
        before,
        TransactionState.ONGOING,
        now_ms,
        transaction_partitions=_by_topic(partitions if is_first else partitions_of(before) | set(partitions)),
        transaction_start_timestamp_ms=now_ms if is_first else before.transaction_start_timestamp_ms,
        client_transaction_version=version,
    )


def prepare(
    before: TransactionLogValue, commit: bool, version: int, next_producer_id: int, now_ms: int
) -> TransactionLogValue:
    """The end of the transaction is decided; with it, from version 2 on, comes the next epoch."""
    is_open = state_of(before) is TransactionState.ONGOING
    epoch = before.producer_epoch
    if version >= EPOCH_BUMPS_SINCE:
        epoch = min(epoch + 1, MAX_PRODUCER_EPOCH)
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    return _step(
        before,
        state,
        now_ms,
        producer_epoch=epoch,
        next_producer_id=next_producer_id,
        transaction_partitions=before.transaction_partitions or (),
        transaction_start_timestamp_ms=before.transaction_start_timestamp_ms if is_open else now_ms,
        client_transaction_version=version,
    )


def complete(before: TransactionLogValue, now_ms: int) -> TransactionLogValue:
    """All markers are written; a producer id whose epochs are used up gives way to the next one."""
    committed = state_of(before) is TransactionState.PREPARE_COMMIT
    producer_id, epoch = after_end(before)
    return _step(
        before,
        TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        transaction_partitions=(),
    )


def after_end(prepared: TransactionLogValue) -> tuple[int, int]:
    """The producer id and epoch that the producer goes on with."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.producer_epoch


def forget(transactional_id: str, before: TransactionLogValue) -> TransactionRecord:
    """Remove an id that is not used any more."""
    TRANSITIONS.check(state_of(before), TransactionState.DEAD)
    return TransactionRecord(TransactionLogKey(transactional_id), None)


def _step(before: TransactionLogValue, after: TransactionState, now_ms: int, **changes: Any) -> TransactionLogValue:
    TRANSITIONS.check(state_of(before), after)
    return before._replace(
        transaction_status=after,
        previous_producer_id=before.producer_id,
        transaction_last_update_timestamp_ms=now_ms,
        **changes,
    )


def _by_topic(partitions: Collection[TopicPartition]) -> tuple[PartitionsSchema, ...]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return tuple(PartitionsSchema(topic, tuple(indexes)) for topic, indexes in topics.items())
