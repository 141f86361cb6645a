"""Verification: whether the batches of a transactional producer's request belong to a transaction that is open.

If a batch opened a transaction in a partition that the coordinator does not know of, nobody would end it, and consumers
with read_committed would wait before it forever. So the coordinator is asked before the first batch of a transaction is
stored in a partition. From then on the partition knows. The decision is made when the batch is appended, because the
partition may get a leader or a marker while the coordinator is asked.

New producers (Produce v12+, transaction.version 2) have the partition added to the transaction by this request. Older
ones have added it themselves (AddPartitionsToTxn), and here it is verified that they did.
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

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.replication.verification_guards import VerificationGuard
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.messages.produce import ProduceRequest

ADDS_SINCE: Final = 12
"""The version of Produce from which on a request adds its partitions to the transaction."""
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
"""Retriable errors of the coordinator. Producers get NOT_ENOUGH_REPLICAS for them: all producers retry after that.

The coordinator may learn of a new topic later than the broker that leads it; then it adds no partition of the request.
"""


class Verification:
    """The verification of one Produce request."""

    def __init__(self, broker: BrokerContext, version: int, request: ProduceRequest) -> None:
        self._broker = broker
        self._version = version
        self._transactional_id = request.transactional_id or ""
        self._guards: dict[int, VerificationGuard] = {}
        """By the place of a batch in the request."""
        self._unverified: dict[int, LeaderPartition] = {}
        """The partitions that the coordinator has to be asked about, by the same."""
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
                continue  # it is refused, or not transactional; if it is led when it is appended, it is retried
            self._producers.add((header.producer_id, header.producer_epoch))
            guard = partition.verification.begin(header.producer_id, header.producer_epoch, now, header.base_sequence)
            if guard is not None:
                self._guards[place] = guard
                self._unverified[place] = partition

    @property
    def is_needed(self) -> bool:
        """Whether the coordinator has to be asked."""
        return bool(self._unverified)

    def run_at_once(self) -> bool:
        """Ask the coordinator if this broker is it and nothing has to be stored; returns whether it has answered."""
        if self._version >= ADDS_SINCE or len(self._producers) > 1:
            return False
        (producer,) = self._producers
        partitions = [partition.tp for partition in self._unverified.values()]
        codes = self._broker.transactions.verify_at_once(self._transactional_id, producer, partitions)
        if codes is not None:
            self._take_result(codes)
        return codes is not None

    async def run(self) -> None:
        """Ask the coordinator, on this broker or on another."""
        if len(self._producers) > 1:
            mixed = InvalidProducerIdMapping("The batches of the transaction have more than one producer id or epoch.")
            self._errors = dict.fromkeys(self._unverified, mixed)
            return
        (producer,) = self._producers
        codes = await self._broker.transactions.add_or_verify(
            self._transactional_id,
            producer,
            [partition.tp for partition in self._unverified.values()],
            EPOCH_BUMPS_SINCE if self._version >= ADDS_SINCE else None,
        )
        self._take_result(codes)

    def _take_result(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        self._errors = {
            place: self._error(codes[partition.tp])
            for place, partition in self._unverified.items()
            if codes[partition.tp] is not ErrorCode.none
        }

    def check(self, place: int) -> None:
        """Refuse a batch that the coordinator refused. Raises ApiError."""
        error = self._errors.get(place)
        if error is not None:
            raise error

    def admit(self, place: int, partition: LeaderPartition, header: BatchHeader) -> None:
        """Refuse a batch, right before the append, that would open a transaction which its coordinator does not know.

        Raises ApiError.
        """
        if self._is_on and header.attributes & TRANSACTIONAL:
            guard = self._guards.get(place) if self._unverified.get(place) is partition else None
            bumped = self._version >= ADDS_SINCE
            partition.verification.check(
                header.producer_id, header.producer_epoch, guard, header.base_sequence, bumped=bumped
            )

    def _error(self, code: ErrorCode) -> ApiError:
        adds, name = self._version >= ADDS_SINCE, self._transactional_id
        if code is ErrorCode.concurrent_transactions and adds:
            return ConcurrentTransactions(f"The last transaction of {name} is still being ended. Try again.")
        if code in TRY_AGAIN:
            return NotEnoughReplicas(f"The coordinator of {name} could not verify the transaction: {code.name}.")
        match code:
            case ErrorCode.producer_fenced:
                return InvalidProducerEpoch(f"A newer producer has taken over the transactional id {name}.")
            case ErrorCode.invalid_producer_id_mapping:
                return InvalidProducerIdMapping(f"The producer id is not that of the transactional id {name}.")
            case ErrorCode.transaction_abortable if self._version >= ABORTABLE_SINCE:
                return TransactionAbortable(f"The partition was not added to the transaction of {name}.")
            case ErrorCode.transaction_abortable | ErrorCode.invalid_txn_state:
                return InvalidTxnState(f"The partition was not added to the transaction of {name}.")
        return UnknownServerError(f"The coordinator of {name} could not verify the transaction: {code.name}.")
