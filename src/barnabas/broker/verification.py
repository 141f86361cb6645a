"""Whether the batches of a transactional producer's request belong to a transaction that is open.

A batch that opens a transaction in a partition which the coordinator does not know to be part of it would never be
ended: readers of committed records would wait before it forever. So the coordinator is asked before the first batch of
a transaction is stored in a partition; the partition itself remembers from then on. Whether that is so is decided when
the batch is appended, because leadership may come, and a marker too, while the coordinator is asked for another one.

Producers of today (Produce v12+, transaction.version 2) let the coordinator note the partition by this very request.
Those before have asked it themselves, and here it is verified that they did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.machines.transactions.steps import EPOCH_BUMPS_SINCE
from barnabas.model.errors import (
    ApiError,
    ConcurrentTransactions,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotEnoughReplicas,
    TransactionAbortable,
    UnknownServerError,
)
from barnabas.protocol.records.batch import HEADER, HEADER_SIZE, TRANSACTIONAL, BatchHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.context import Broker
    from barnabas.broker.partition import Guard, Partition
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.produce import ProduceRequest

ADDS_SINCE: Final = 12
ABORTABLE_SINCE: Final = 11
"""The version of Produce from which on clients know TRANSACTION_ABORTABLE."""
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.operation_not_attempted,
    }
)
"""Errors of the coordinator that pass; NOT_ENOUGH_REPLICAS makes all producers try again, and nothing else.

It may hear of a new topic later than the broker that leads there; then nothing else of the request is noted either.
"""


class Verification:
    """The question that one Produce request needs, and its answer."""

    def __init__(self, broker: Broker, version: int, request: ProduceRequest) -> None:
        self._broker = broker
        self._version = version
        self._transactional_id = request.transactional_id or ""
        self._guards: dict[int, Guard] = {}
        """By the place of a batch in the request."""
        self._asked: dict[int, Partition] = {}
        self._producers: set[tuple[int, int]] = set()
        self._errors: Mapping[int, ApiError] = {}
        self._is_on = version >= ADDS_SINCE or broker.settings.flag("transaction.partition.verification.enable")
        if not self._is_on:
            return
        now = broker.clock.monotonic()
        for place, (topic, index, records) in enumerate(request.partitions):
            if records is None or len(records) < HEADER_SIZE:
                continue
            header = BatchHeader._make(HEADER.unpack_from(records))
            partition = broker.replicas.led(topic, index)
            if partition is None or not header.attributes & TRANSACTIONAL or header.producer_id < 0:
                continue  # it is refused, or needs nobody's leave; if it is led when it is appended, it comes again
            self._producers.add((header.producer_id, header.producer_epoch))
            guard = partition.begin_verification(header.producer_id, header.producer_epoch, now, header.base_sequence)
            if guard is not None:
                self._guards[place] = guard
                self._asked[place] = partition

    @property
    def is_needed(self) -> bool:
        """Whether the coordinator must be asked."""
        return bool(self._asked)

    def run_at_once(self) -> bool:
        """Ask it where it is this broker's and nothing has to be stored; gives whether it was."""
        if self._version >= ADDS_SINCE or len(self._producers) > 1:
            return False
        (producer,) = self._producers
        partitions = [partition.tp for partition in self._asked.values()]
        codes = self._broker.transactions.verify_at_once(self._transactional_id, producer, partitions)
        if codes is not None:
            self._heard(codes)
        return codes is not None

    async def run(self) -> None:
        """Ask it, wherever it is."""
        if len(self._producers) > 1:
            mixed = InvalidProducerIdMapping("the batches of a transaction are of more than one producer")
            self._errors = dict.fromkeys(self._asked, mixed)
            return
        (producer,) = self._producers
        codes = await self._broker.transactions.add_or_verify(
            self._transactional_id,
            producer,
            [partition.tp for partition in self._asked.values()],
            EPOCH_BUMPS_SINCE if self._version >= ADDS_SINCE else None,
        )
        self._heard(codes)

    def _heard(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        self._errors = {
            place: self._error(codes[partition.tp])
            for place, partition in self._asked.items()
            if codes[partition.tp] is not ErrorCode.none
        }

    def check(self, place: int) -> None:
        """Refuse a batch that the coordinator refused. Raises ApiError."""
        error = self._errors.get(place)
        if error is not None:
            raise error

    def admit(self, place: int, partition: Partition, header: BatchHeader) -> None:
        """Refuse a batch, right before it is appended, that would open a transaction which no coordinator knows.

        Raises ApiError.
        """
        if self._is_on and header.attributes & TRANSACTIONAL:
            guard = self._guards.get(place) if self._asked.get(place) is partition else None
            bumped = self._version >= ADDS_SINCE
            partition.end_verification(
                header.producer_id, header.producer_epoch, guard, header.base_sequence, bumped=bumped
            )

    def _error(self, code: ErrorCode) -> ApiError:
        adds = self._version >= ADDS_SINCE
        if code is ErrorCode.concurrent_transactions and adds:
            return ConcurrentTransactions("the last transaction is still being ended")
        if code in TRY_AGAIN:
            return NotEnoughReplicas(f"the transaction's coordinator cannot be asked: {code.name}")
        match code:
            case ErrorCode.producer_fenced:
                return InvalidProducerEpoch("a newer producer has the transactional id")
            case ErrorCode.invalid_producer_id_mapping:
                return InvalidProducerIdMapping("the producer id is not that of the transactional id")
            case ErrorCode.transaction_abortable if self._version >= ABORTABLE_SINCE:
                return TransactionAbortable("the partition was not added to the transaction")
            case ErrorCode.transaction_abortable | ErrorCode.invalid_txn_state:
                return InvalidTxnState("the partition was not added to the transaction")
        return UnknownServerError(f"the transaction's coordinator refused: {code.name}")
