"""Verification of transactions in one partition: a batch that comes too late opens no transaction that nobody ends.

Before the first batch of a producer's transaction is stored, the transaction's coordinator is asked whether the
transaction is open (`broker/coordinators/verification`). A guard stands for that question: `begin` gives one out, and
`check` wants it back before the batch is stored. If a marker was written meanwhile, it has made the guard void (`end`),
and the batch is refused.

Each epoch has its own guard, so a batch with an old or invented epoch does not disturb the verification of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import InvalidTxnState, NotEnoughReplicas, OutOfOrderSequence
from barnabas.protocol.records.batch import NO_SEQUENCE

if TYPE_CHECKING:
    from barnabas.model.ids import TopicPartition
    from barnabas.storage.log.log import Log

VERIFICATION_SECONDS: Final = 900.0
"""How long a guard is kept for a producer that was told to retry the batch that was verified."""


class Marker(NamedTuple):
    """The end of a producer's transaction, for one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    bumped: bool
    """Whether the epoch is one more than that of the transaction's batches (transaction.version 2)."""
    by_broker: bool = True
    """Whether a broker of this cluster writes it or asks for it. Others cannot bring a higher coordinator epoch."""

    def ends(self, epoch: int) -> bool:
        """Whether it can end a transaction of this epoch; a late copy of a marker does not end the next transaction."""
        return not self.bumped or epoch < self.producer_epoch


class VerificationGuard:
    """Stands for a verification that a transaction is open; only a marker of the producer makes it void."""

    __slots__ = ("begun_at", "first_sequence")

    def __init__(self, first_sequence: int) -> None:
        self.begun_at = 0.0
        """When the last verification began."""
        self.first_sequence = first_sequence
        """The lowest sequence number that was verified: no higher one is stored before it."""


class VerificationGuards:
    """The guards of one partition, in one leader epoch."""

    __slots__ = ("_guards", "_log", "_tp")

    def __init__(self, tp: TopicPartition, log: Log) -> None:
        self._tp = tp
        self._log = log
        self._guards: dict[tuple[int, int], VerificationGuard] = {}
        """By producer id and epoch, the last verification last.

        They stay after a refusal: the producer may have been told to retry. If it does not, its guard is removed when
        another producer's verification begins.
        """

    def begin(self, producer_id: int, epoch: int, now: float, sequence: int = NO_SEQUENCE) -> VerificationGuard | None:
        """Begin to verify the first batch of a producer's transaction; None if the transaction is open here already.

        `now` is on a clock that never goes back.
        """
        if self._log.is_ready and self._log.producers.has_open_transaction(producer_id, epoch):
            return None
        guards = self._guards
        guard = guards.pop((producer_id, epoch), None) or VerificationGuard(sequence)
        guard.begun_at = now
        guard.first_sequence = min(guard.first_sequence, sequence)
        guards[producer_id, epoch] = guard
        while guards[oldest := next(iter(guards))].begun_at < now - VERIFICATION_SECONDS:
            del guards[oldest]
        return guard

    def check(
        self,
        producer_id: int,
        epoch: int,
        guard: VerificationGuard | None,
        sequence: int = NO_SEQUENCE,
        *,
        bumped: bool = False,
    ) -> None:
        """Refuse a batch whose transaction ended while it was verified, or which follows a batch that is missing.

        The missing batch may have to be retried. With `bumped` every transaction has an epoch of its own, so its first
        batch in a partition is known by its sequence number. Without a guard the transaction was not verified: it was
        open, or the partition was not led here, when the batch arrived. If it is not open now, the batch is retried.
        """
        producers = self._log.producers
        if producers.has_open_transaction(producer_id, epoch):
            return
        if guard is None:
            raise NotEnoughReplicas(f"It was not verified that {self._tp} is part of the transaction. Try again.")
        if self._guards.get((producer_id, epoch)) is not guard:
            raise InvalidTxnState(f"The transaction of producer {producer_id} ended while it was verified.")
        if sequence > guard.first_sequence or (bumped and sequence > 0 and not producers.knows(producer_id)):
            raise OutOfOrderSequence(
                f"Producer {producer_id} sent sequence number {sequence}, but one before it is missing."
            )

    def end(self, marker: Marker) -> None:
        """Make the guards void whose transactions a marker ends."""
        for producer_id, epoch in list(self._guards):
            if producer_id == marker.producer_id and marker.ends(epoch):
                del self._guards[producer_id, epoch]
