"""The coordinator of the transactional ids on one partition of `__transaction_state`: a pure machine.

    registered   InitProducerId gives a producer its id and epoch; the producer that had them before is fenced
    added        partitions are added to the transaction before the first record is written to them
    prepared     the end is decided and stored: it happens, whichever broker or client crashes
    completed    the markers are in all partitions

The outcome of a decision to end a transaction has the markers as its `sends`. The shell writes them to the partitions
and then calls `markers_written`. After a reload `loaded` sends the markers of all prepared transactions again: a marker
may be written twice.

An id has one state, so it never has two open transactions. Its epochs only grow, until they are used up and a new
producer id takes the place of the old. From transaction.version 2 on each end brings a new epoch, so an EndTxn or a
batch that comes late carries an old one and is refused.

An abort that the producer did not ask for, after a timeout or because another producer registered, raises the epoch
too, as in Kafka 4.3. The producer may then abort, or register with its id and epoch, like one whose response was lost,
and goes on with the new epoch. Only a registration of another producer that was answered fences it for good.

All state is stored, but for the epoch before the present one, which identifies a producer that sends a request again.
Kafka does not store it either.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from barnabas.machines.outcome import CoordinatorOutcome, Draft, Outcome, as_before
from barnabas.machines.transactions import steps
from barnabas.machines.transactions.states import TransactionState
from barnabas.machines.transactions.steps import EPOCH_BUMPS_SINCE, FENCED_SINCE, state_of
from barnabas.model.errors import (
    ApiError,
    ConcurrentTransactions,
    ErrorCode,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
)
from barnabas.protocol.coordinator_records import transaction_state
from barnabas.protocol.coordinator_records.transaction_state import TransactionLogKey, TransactionRecord
from barnabas.protocol.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from barnabas.protocol.wire.durations import MILLISECOND, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest

    from barnabas.machines.outcome import Asker
    from barnabas.machines.transactions.settings import TransactionSettings
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.coordinator_records.transaction_state import TransactionLogValue

    TransactionOutcome = CoordinatorOutcome[TransactionRecord]
    TransactionDraft = Draft[TransactionRecord]

logger = logging.getLogger(__name__)

BUMPS_IN_END_SINCE: Final = 5
"""The version of EndTxn from which on clients use transaction.version 2."""
TIMEOUT: Final = "timeout"
EXPIRY: Final = "expiry"
MOST_FORGOTTEN: Final = 1000
"""Ids that are removed at once; the next are removed after a pause, so that requests do not wait for all of them."""
PAUSE_MS: Final = 10
ID_WANTED_MS: Final = 5000
"""How long a new producer id may take until it is asked for again."""


class TransactionTimer(NamedTuple):
    """What a timer is for."""

    kind: str
    transactional_id: str = ""


class Overdue(NamedTuple):
    """A transaction whose time is up, and whose producer has no epoch left: its abort takes a new producer id."""

    transactional_id: str
    began_ms: int


class TransactionCoordinator:
    """The transactional ids of one partition."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.transactions: dict[str, TransactionLogValue] = {}
        self._epochs_before: dict[str, int] = {}
        """The epoch of a producer before its present one, of which the response may have been lost."""

    # InitProducerId

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether a registration may take a new producer id."""
        return transactional_id not in self.transactions or self.is_used_up(transactional_id)

    def init_producer_id(
        self, request: InitProducerIdRequest, fresh_id: int, asker: Asker[InitProducerIdResponse], now_ms: int
    ) -> TransactionOutcome:
        """Give a producer its id and epoch; `fresh_id` is a new producer id where `needs_producer_id`, or -1."""
        draft: TransactionDraft = Draft()
        try:
            value = self._register(request, fresh_id, draft, now_ms)
        except ApiError as error:
            draft.reply(asker, _not_registered(error.code))
        else:
            draft.reply(
                asker,
                InitProducerIdResponse(
                    throttle_time=NO_TIME,
                    error_code=ErrorCode.none,
                    producer_id=ProducerId(value.producer_id),
                    producer_epoch=i16(value.producer_epoch),
                ),
            )
        return draft.outcome()

    def _register(
        self, request: InitProducerIdRequest, fresh_id: int, draft: TransactionDraft, now_ms: int
    ) -> TransactionLogValue:
        transactional_id = request.transactional_id
        assert transactional_id is not None
        timeout_ms = request.transaction_timeout // MILLISECOND
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"The transaction timeout of {timeout_ms} ms is not within transaction.max.timeout.ms."
            )
        before = self.transactions.get(transactional_id)
        if before is None:
            value = steps.register(fresh_id, timeout_ms, now_ms)
            self._change(transactional_id, value, draft)
            return value
        _check_ended(transactional_id, before)
        expected = None if request.producer_id == NO_PRODUCER_ID else request.producer_epoch
        if expected is not None and not _may_be(before, request.producer_id, request.producer_epoch):
            raise _fenced(transactional_id)
        is_open = state_of(before) is TransactionState.ONGOING
        is_current = expected is None or expected == before.producer_epoch
        if not is_current and (is_open or expected != self._epochs_before.get(transactional_id)):
            raise _fenced(transactional_id)
        if is_open:
            next_id = fresh_id if steps.is_used_up(before.producer_epoch) else NO_PRODUCER_ID
            self._end(transactional_id, before, False, EPOCH_BUMPS_SINCE, next_id, draft, now_ms)
            raise _concurrent(transactional_id)
        producer_id, epoch = before.producer_id, before.producer_epoch
        if is_current and steps.is_used_up(epoch):
            producer_id, epoch = fresh_id, 0
        elif is_current:
            epoch += 1
        if expected is None:
            self._epochs_before.pop(transactional_id, None)
        elif is_current:
            self._epochs_before[transactional_id] = before.producer_epoch
        value = steps.register_again(before, producer_id, epoch, timeout_ms, now_ms)
        self._change(transactional_id, value, draft)
        return value

    # Partitions of a transaction; the answers are parts of responses

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        version: int,
        asker: Asker[ErrorCode],
        now_ms: int,
    ) -> TransactionOutcome:
        """Add partitions to a transaction; the answer is an error code."""
        draft: TransactionDraft = Draft()
        try:
            if (known := self.transactions.get(transactional_id)) is not None:
                _check_ended(transactional_id, known)
            before = self._check(transactional_id, producer_id, epoch)
        except ApiError as error:
            draft.reply(asker, error.code)
            return draft.outcome()
        is_open = state_of(before) is TransactionState.ONGOING
        if not is_open or not steps.partitions_of(before).issuperset(partitions):
            self._change(transactional_id, steps.add(before, partitions, version, now_ms), draft)
        if not is_open:
            draft.set_timer(TransactionTimer(TIMEOUT, transactional_id), now_ms + before.transaction_timeout_ms)
        draft.reply(asker, ErrorCode.none)
        draft.otherwise = as_before
        return draft.outcome()

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        asker: Asker[dict[TopicPartition, ErrorCode]],
        now_ms: int,
    ) -> TransactionOutcome:
        """Whether partitions are part of an open transaction; the answer has an error code for each."""
        try:
            present = steps.partitions_of(self._check(transactional_id, producer_id, epoch))
            codes = {
                each: ErrorCode.none if each in present else ErrorCode.transaction_abortable for each in partitions
            }
        except ApiError as error:
            codes = dict.fromkeys(partitions, error.code)
        return Outcome(replies=((asker, codes),))

    def _check(self, transactional_id: str, producer_id: int, epoch: int) -> TransactionLogValue:
        """The state of an id whose transaction may go on. Raises ApiError."""
        before = self.transactions.get(transactional_id)
        if before is None or before.producer_id != producer_id:
            raise _not_mapped(transactional_id, producer_id)
        if before.producer_epoch != epoch:
            raise _fenced(transactional_id)
        _check_ended(transactional_id, before)
        return before

    # EndTxn

    def is_used_up(self, transactional_id: str) -> bool:
        """Whether the end of a transaction may take a new producer id."""
        value = self.transactions.get(transactional_id)
        return value is not None and steps.is_used_up(value.producer_epoch)

    def end_txn(
        self, request: EndTxnRequest, fresh_id: int, asker: Asker[EndTxnResponse], now_ms: int
    ) -> TransactionOutcome:
        """Commit or abort; `fresh_id` is a new producer id where the last one `is_used_up`, or -1.

        If the transaction ended while the id was fetched, the id is never used.
        """
        draft: TransactionDraft = Draft()
        bumps = asker.version >= BUMPS_IN_END_SINCE
        try:
            before = self.transactions.get(request.transactional_id)
            if before is None:
                raise _not_mapped(request.transactional_id, request.producer_id)
            if (_is_done_bumping if bumps else _is_done)(request, before):
                value = before
            else:
                version = EPOCH_BUMPS_SINCE if bumps else 0
                next_id = fresh_id if bumps and steps.is_used_up(before.producer_epoch) else NO_PRODUCER_ID
                value = self._end(request.transactional_id, before, request.committed, version, next_id, draft, now_ms)
        except ApiError as error:
            draft.reply(asker, _not_ended(error.code, asker.version))
            return draft.outcome()
        draft.reply(asker, _ended(*steps.after_end(value)) if bumps else _ENDED)
        return draft.outcome()

    def _end(
        self,
        transactional_id: str,
        before: TransactionLogValue,
        commit: bool,
        version: int,
        next_id: int,
        draft: TransactionDraft,
        now_ms: int,
    ) -> TransactionLogValue:
        value = steps.prepare(before, commit, version, next_id, now_ms)
        if version >= EPOCH_BUMPS_SINCE:
            self._epochs_before[transactional_id] = before.producer_epoch
        self._change(transactional_id, value, draft)
        draft.cancel_timer(TransactionTimer(TIMEOUT, transactional_id))
        draft.sends.append(steps.Markers(transactional_id, value))
        return value

    def markers_written(self, markers: steps.Markers, now_ms: int) -> TransactionOutcome:
        """The end of a transaction is in all its partitions."""
        draft: TransactionDraft = Draft()
        before = self.transactions.get(markers.transactional_id)
        if (
            before is not None
            and state_of(before).is_ending
            and (before.producer_id, before.producer_epoch) == (markers.producer_id, markers.producer_epoch)
        ):
            self._change(markers.transactional_id, steps.complete(before, now_ms), draft)
        return draft.outcome()

    # What happens by itself

    def expire(self, key: TransactionTimer, now_ms: int) -> TransactionOutcome:
        """A timer is due."""
        draft: TransactionDraft = Draft()
        if key.kind == EXPIRY:
            draft.changes.extend(islice(self._expired(now_ms), MOST_FORGOTTEN))
            is_full = len(draft.changes) == MOST_FORGOTTEN
            draft.set_timer(key, now_ms + (PAUSE_MS if is_full else self.settings.expiration_check_ms))
            return replace(draft.outcome(), is_divisible=True)
        before = self.transactions.get(key.transactional_id)
        if before is not None and state_of(before) is TransactionState.ONGOING:
            logger.info(
                "The transaction of %s is aborted: it was open for more than its timeout of %d ms.",
                key.transactional_id,
                before.transaction_timeout_ms,
            )
            if steps.is_used_up(before.producer_epoch):
                draft.sends.append(Overdue(key.transactional_id, before.transaction_start_timestamp_ms))
                draft.set_timer(key, now_ms + ID_WANTED_MS)
            else:
                self._end(key.transactional_id, before, False, EPOCH_BUMPS_SINCE, NO_PRODUCER_ID, draft, now_ms)
        return draft.outcome()

    def abort_overdue(self, overdue: Overdue, fresh_id: int, now_ms: int) -> TransactionOutcome:
        """The producer id is there that the abort of a transaction was waiting for; it may have ended meanwhile."""
        draft: TransactionDraft = Draft()
        before = self.transactions.get(overdue.transactional_id)
        if (
            before is not None
            and state_of(before) is TransactionState.ONGOING
            and before.transaction_start_timestamp_ms == overdue.began_ms
        ):
            self._end(overdue.transactional_id, before, False, EPOCH_BUMPS_SINCE, fresh_id, draft, now_ms)
        return draft.outcome()

    def _expired(self, now_ms: int) -> Iterator[TransactionRecord]:
        limit = now_ms - self.settings.id_expiration_ms
        for transactional_id, value in self.transactions.items():
            if not state_of(value).is_open and value.transaction_last_update_timestamp_ms <= limit:
                yield steps.forget(transactional_id, value)

    def loaded(self, now_ms: int) -> TransactionOutcome:
        """Everything was replayed: end what was to be ended, and watch over what is open.

        When an open transaction began is written by another broker's clock, which may be far from ours. So it has its
        whole time again.
        """
        draft: TransactionDraft = Draft()
        draft.set_timer(TransactionTimer(EXPIRY), now_ms + self.settings.expiration_check_ms)
        for transactional_id, value in self.transactions.items():
            state = state_of(value)
            if state is TransactionState.ONGOING:
                draft.set_timer(TransactionTimer(TIMEOUT, transactional_id), now_ms + value.transaction_timeout_ms)
            elif state.is_open:
                draft.sends.append(steps.Markers(transactional_id, value))
        return draft.outcome()

    def abandon(self, code: ErrorCode) -> TransactionOutcome:
        """No request waits in the machine itself."""
        return Outcome()

    # The log

    def _change(self, transactional_id: str, value: TransactionLogValue, draft: TransactionDraft) -> None:
        draft.changes.append(TransactionRecord(TransactionLogKey(transactional_id), value))

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        """Key and value of a record."""
        return transaction_state.encode(record)

    def replay(self, record: TransactionRecord) -> None:
        """A record was stored."""
        transactional_id = record.key.transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            self._epochs_before.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = record.value

    def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Apply a record of the log; one that cannot be read is skipped and logged."""
        try:
            record = transaction_state.decode(key, value)
            if record is None:
                return
            if record.value is not None and record.value.transaction_status not in tuple(TransactionState):
                raise InvalidRecord(f"The transaction state {record.value.transaction_status} is not known.")
        except InvalidRecord as error:
            logger.error("Skipped a record of __transaction_state that cannot be read: %s", error)
            return
        self.replay(record)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """No client writes to this log in transactions."""


def _is_done(request: EndTxnRequest, before: TransactionLogValue) -> bool:
    """Whether the end was brought about already; clients that know no epoch bump. Raises ApiError."""
    if before.producer_id != request.producer_id:
        raise _not_mapped(request.transactional_id, request.producer_id)
    if before.producer_epoch != request.producer_epoch:
        raise _fenced(request.transactional_id)
    _check_ended(request.transactional_id, before)
    if state_of(before) is TransactionState.ONGOING:
        return False
    _check_same_end(request, before)
    return True


def _is_done_bumping(request: EndTxnRequest, before: TransactionLogValue) -> bool:
    """As `_is_done`, for clients that get a new epoch with each end; a repeated request has the one before."""
    _check_ended(request.transactional_id, before)
    overflowed = (
        before.previous_producer_id == request.producer_id != before.producer_id
        and request.producer_epoch == MAX_PRODUCER_EPOCH - 1
        and before.producer_epoch == 0
    )
    if before.producer_id != request.producer_id and not overflowed:
        raise _not_mapped(request.transactional_id, request.producer_id)
    # No producer has the largest epoch: in older logs it has fenced a producer whose epochs were used up.
    repeated = overflowed or request.producer_epoch + 1 == before.producer_epoch < MAX_PRODUCER_EPOCH
    state = state_of(before)
    if repeated and state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        _check_same_end(request, before)
        return True
    if overflowed or before.producer_epoch != request.producer_epoch:
        raise _fenced(request.transactional_id)
    if request.committed and state is not TransactionState.ONGOING:
        raise _not_open(request.transactional_id, state)
    return False


def _check_ended(transactional_id: str, before: TransactionLogValue) -> None:
    """Refuse every request while the markers of a transaction are being written.

    Also a producer that was answered before them, and whose new producer id is not stored yet.
    """
    if state_of(before).is_ending:
        raise _concurrent(transactional_id)


def _check_same_end(request: EndTxnRequest, before: TransactionLogValue) -> None:
    """Refuse a repeated request that is not what was done."""
    state = state_of(before)
    if state is not (TransactionState.COMPLETE_COMMIT if request.committed else TransactionState.COMPLETE_ABORT):
        raise _not_open(request.transactional_id, state)


def _may_be(before: TransactionLogValue, producer_id: int, epoch: int) -> bool:
    """Whether a producer may still have the id: by its number, or by the one before, whose epochs were used up."""
    return producer_id == before.producer_id or (producer_id == before.previous_producer_id and steps.is_used_up(epoch))


def _not_registered(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time=NO_TIME, error_code=code, producer_epoch=i16(NO_PRODUCER_EPOCH))


def _ended(producer_id: int, epoch: int) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
    )


def _not_ended(code: ErrorCode, version: int) -> EndTxnResponse:
    if code is ErrorCode.producer_fenced and version < FENCED_SINCE:
        code = ErrorCode.invalid_producer_epoch
    return EndTxnResponse(throttle_time=NO_TIME, error_code=code)


def _not_mapped(transactional_id: str, producer_id: int) -> ApiError:
    return InvalidProducerIdMapping(f"Producer id {producer_id} is not that of transactional id {transactional_id}.")


def _fenced(transactional_id: str) -> ApiError:
    return ProducerFenced(f"A newer producer has taken over the transactional id {transactional_id}.")


def _concurrent(transactional_id: str) -> ApiError:
    return ConcurrentTransactions(f"The last transaction of {transactional_id} is still being ended. Try again.")


def _not_open(transactional_id: str, state: TransactionState) -> ApiError:
    return InvalidTxnState(f"The transaction of {transactional_id} is {state.label} and cannot be ended that way.")


_ENDED: Final = _ended(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""The response to clients that get no new epoch with the end of a transaction."""
