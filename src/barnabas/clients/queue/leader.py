"""One broker that leads partitions of the queue: fetches from it and acknowledges to it, in a thread of its own.

The connection carries one request at a time. A fetch waits at the broker for `fetch.max.wait.ms` at most, and takes the
acknowledgements along that have come together; without room for more messages they go alone.

The promise: a message is given to the program only while its lock is held, as far as this side can know. So a lock
counts from when the message was asked for: the answer may have waited here while this process was stopped. When the
connection ends, the broker releases all locks, so what waits here is dropped and what the program has can no longer be
acknowledged. Locks are renewed at half of their time while the program works, for `longest_work` seconds at most, where
the broker can do that (KIP-1222).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.config import log
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.clients.queue.acquired import AcquiredRange, acquired_records
from barnabas.clients.queue.pending import Pending, PendingAcknowledgement, kinds_of, not_stored, unheard
from barnabas.clients.queue.session import OPENING, FetchLimits, LeaderSession, SharePartitionId
from barnabas.model.base_error import BarnabasError
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import read_from
from barnabas.protocol.acknowledgements import Acknowledgement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.clients.queue.engine import QueueEngine
    from barnabas.clients.records import ConsumerRecord, TopicPartition
    from barnabas.clients.wire.connection import Node, WireClient

RETRY_SECONDS: Final = 0.25
FIRST_WAIT: Final = timedelta(milliseconds=250)
"""How long a fetch waits at most before it is known for how long records are locked."""
SWEEP_SECONDS: Final = 1.0
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
SESSION_LOST: Final = frozenset({ErrorCode.share_session_not_found, ErrorCode.invalid_share_session_epoch})
ANOTHER_LEADER: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.kafka_storage_error,
        ErrorCode.leader_not_available,
    }
)
NOT_STORED_YET: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
    }
)
"""The share coordinator is moving: the lock is still held, and the acknowledgement can be sent again."""
FINAL: Final = frozenset({ErrorCode.group_authorization_failed, ErrorCode.topic_authorization_failed})
"""Errors that no other try mends."""


class HeldRecord:
    """A record that was acquired: it is locked for this member."""

    __slots__ = ("acquired_at", "leader", "locked_at", "place", "record")

    def __init__(
        self, leader: Leader, place: SharePartitionId, record: ConsumerRecord[bytes, bytes], asked_at: float
    ) -> None:
        self.leader = leader
        self.place = place
        self.record = record
        self.acquired_at = self.locked_at = asked_at
        """Its lock began then, or later: when it was asked for, or for its renewal."""

    def is_over(self) -> bool:
        """Whether its lock was not renewed in time."""
        return time.monotonic() - self.locked_at >= self.leader.lock_seconds

    def give_up(self) -> None:
        """Its lock is over, and others may have it."""
        self.leader.drop(self)

    def settle(self, acknowledgement: Acknowledgement) -> Future[None]:
        """Acknowledge it; the future ends when the broker has stored that."""
        return self.leader.settle(self, acknowledgement)


class Leader:
    """Fetches and acknowledges at one broker."""

    def __init__(self, engine: QueueEngine, node: Node) -> None:
        settings = engine.settings
        self.node = node
        self._engine = engine
        self._session = LeaderSession(settings.group_id, settings.member_id)
        self._names: Mapping[SharePartitionId, TopicPartition] = {}
        self._held: dict[tuple[SharePartitionId, int], HeldRecord] = {}
        self._pending: Pending = {}
        self._alone: deque[tuple[SharePartitionId, int, PendingAcknowledgement]] = deque()
        """Acknowledgements of a request that failed for one of them: each goes again, alone."""
        self.lock_seconds = 0.0
        """For how long records are locked, as the broker last said."""
        self._renews = False
        self._renewal_at = 0.0
        """No lock has to be renewed before."""
        self._renewal_refused = False
        self._sweep_at = 0.0
        """When records whose lock is over are forgotten next."""
        self._refusals: dict[SharePartitionId, ErrorCode] = {}
        """The errors of fetches that were logged, by partition, until it is fetched from again."""
        self._exact = False
        self._wire: WireClient | None = None
        self._thread = threading.Thread(target=self._run, name=f"barnabas-queue-{node.id}", daemon=True)

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until it has ended."""
        self._thread.join(timeout)

    def lead(self, names: Mapping[SharePartitionId, TopicPartition]) -> None:
        """These are the partitions to fetch from."""
        with self._engine.changed:
            self._names = names
            self._engine.changed.notify_all()

    def settle(self, held: HeldRecord, kind: Acknowledgement) -> Future[None]:
        """Acknowledge a record that the program has."""
        stored = Future[None]()
        stored.set_running_or_notify_cancel()  # it cannot be cancelled: the acknowledgement is on its way
        offset = held.record.offset
        with self._engine.changed:
            if self._held.get((held.place, offset)) is not held:
                not_stored(held.place, {offset: PendingAcknowledgement(kind, stored, 0.0)}, "its lock was lost before")
            else:
                del self._held[held.place, offset]
                self._pending.setdefault(held.place, {})[offset] = PendingAcknowledgement(
                    kind, stored, held.locked_at + self.lock_seconds
                )
                self._engine.changed.notify_all()
        return stored

    def _run(self) -> None:
        engine = self._engine
        try:
            while not engine.closing:
                try:
                    self._step()
                except BarnabasError as error:
                    self._lose(error)
                    engine.look_for_leaders()
                    self._pause()
            self._close()
        except Exception as error:
            log.exception("The thread that fetches from broker %d failed.", self.node.id)
            engine.fail(error)
        finally:
            self._lose(None)

    def _pause(self) -> None:
        """Let a moment pass after an error, so that the broker is not asked without an end."""
        engine = self._engine
        with engine.changed:
            engine.changed.wait_for(lambda: engine.closing, RETRY_SECONDS)

    def _step(self) -> None:
        """Wait until there is something to ask the broker, and ask it."""
        engine = self._engine
        with engine.changed:
            due = self._due_renewals()
            while not (engine.closing or due or self._pending or self._alone or (engine.room > 0 and self._names)):
                engine.changed.wait(self._until_renewal())
                due = self._due_renewals()
            if engine.closing:
                return
        wire = self._connected()
        if due:
            self._renew(wire, due)
            return
        pending, room = self._next_request()
        if room > 0:
            self._fetch(wire, pending, room)
        elif pending:
            self._acknowledge(wire, pending)

    def _next_request(self) -> tuple[Pending, int]:
        """The acknowledgements that go next, and how many messages to fetch with them.

        Whoever takes them sees to it that somebody hears what became of them.
        """
        with self._engine.changed:
            if self._alone:
                place, offset, acknowledgement = self._alone.popleft()
                return {place: {offset: acknowledgement}}, 0
            if elsewhere := {place: self._pending[place] for place in self._pending.keys() - self._names.keys()}:
                for place in elsewhere:
                    del self._pending[place]
                return elsewhere, 0  # a fetch that names a partition is given records of it
            pending, self._pending = self._pending, {}
            return pending, self._engine.room if self._names else 0

    def _connected(self) -> WireClient:
        if self._wire is None:
            wire = self._wire = self._engine.settings.connect(self.node.address)
            self._exact = wire.highest_version(SHARE_FETCH) >= 2
            self._renews = wire.highest_version(SHARE_ACKNOWLEDGE) >= 2
        return self._wire

    # What is asked

    def _fetch(self, wire: WireClient, pending: Pending, room: int) -> None:
        settings = self._engine.settings
        with self._engine.changed:
            names = dict(self._names)
            returned = {place: pending.pop(place) for place in pending.keys() - names.keys()}
        self._return(returned)
        longest = timedelta(seconds=self.lock_seconds / 4) if self.lock_seconds else FIRST_WAIT
        limits = FetchLimits(max_records=room, max_wait=min(settings.max_wait, longest), max_bytes=settings.max_bytes)
        if self._session.epoch == OPENING:  # which takes no acknowledgements; nothing can be held before it
            self._settle_all(pending, "its session with the broker had ended")
            pending = {}
        request = self._session.fetch(names, kinds_of(pending), limits, exact=self._exact)
        asked_at = time.monotonic()
        answer = self._request(wire, request, pending, at_least=1)
        self._set_lock_time(answer.acquisition_lock_timeout.total_seconds())
        for place, part in _parts(answer):
            self._settle_part(place, pending.pop(place, {}), ErrorCode(part.acknowledge_error_code))
        self._settle_left(pending)
        refused = False
        for place, part in _parts(answer):
            if part.error_code != ErrorCode.none:
                refused = True
                self._refused(place, part.error_code, part.error_message)
                continue
            self._refusals.pop(place, None)
            if place in names and part.acquired_records:
                self._take(place, names[place], part, asked_at)
        if refused:
            self._pause()

    def _return(self, pending: Pending) -> None:
        """Acknowledgements that have to go in another request."""
        with self._engine.changed:
            for place, offsets in pending.items():
                self._pending.setdefault(place, {}).update(offsets)

    def _set_lock_time(self, seconds: float) -> None:
        """The broker says for how long it locks records; the group's setting may change at any time."""
        if seconds != self.lock_seconds:
            self.lock_seconds = seconds
            self._renewal_at = 0.0

    def _acknowledge(self, wire: WireClient, pending: Pending) -> None:
        if self._session.epoch == OPENING:
            self._settle_all(pending, "its session with the broker had ended")
            return
        answer = self._request(wire, self._session.acknowledge(kinds_of(pending)), pending, at_least=1)
        for place, part in _parts(answer):
            self._settle_part(place, pending.pop(place, {}), part.error_code)
        self._settle_left(pending)

    def _renew(self, wire: WireClient, due: list[HeldRecord]) -> None:
        """Renew locks. The broker refuses all of a partition if one of them is lost: then each is renewed alone."""
        kinds: dict[SharePartitionId, dict[int, Acknowledgement]] = {}
        for held in due:
            kinds.setdefault(held.place, {})[held.record.offset] = Acknowledgement.RENEW
        asked_at = time.monotonic()
        try:
            answer = self._request(wire, self._session.acknowledge(kinds, renewing=True), {}, at_least=2)
        except RequestRefused as error:
            self._renewal_refused = error.code == ErrorCode.invalid_request
            raise
        errors = {place: part.error_code for place, part in _parts(answer)}
        self._renewal_refused = ErrorCode.invalid_request in errors.values()
        if self._renewal_refused:
            log.warning(
                "Broker %d does not renew locks of group %s (share.renew.acknowledge.enable).",
                self.node.id,
                self._session.group_id,
            )
            return
        for held in due:
            if errors.get(held.place) == ErrorCode.none:
                held.locked_at = asked_at
            elif len(kinds[held.place]) > 1:
                self._renew(wire, [held])
            else:
                self.drop(held)

    def drop(self, held: HeldRecord) -> None:
        """The lock of a message is lost: nobody may take it any more, and whoever has it cannot acknowledge it."""
        with self._engine.changed:
            if self._held.get((held.place, held.record.offset)) is held:
                del self._held[held.place, held.record.offset]
            if held in self._engine.waiting:
                self._engine.waiting.remove(held)

    def _request(self, wire: WireClient, request: Any, pending: Pending, *, at_least: int) -> Any:
        """Ask the leader. If it does not answer, nobody knows what became of the acknowledgements."""
        try:
            answer = wire.ask(request, at_least=at_least)
            if answer.error_code != ErrorCode.none:
                action = read_from(None, self._engine.settings.group_id)
                raise RequestRefused(answer.error_code, answer.error_message or answer.error_code.name.upper(), action)
        except BarnabasError as error:
            self._settle_all(pending, str(error))
            raise
        return answer

    def _close(self) -> None:
        """Send what was said last, and give back everything else by ending the session."""
        with self._engine.changed:
            pending, self._pending = self._pending, {}
            for place, offset, acknowledgement in self._alone:
                pending.setdefault(place, {})[offset] = acknowledgement
            self._alone.clear()
            for place, offset in self._held:
                if place not in self._names:  # of a partition that has left the session, whose end does not release it
                    pending.setdefault(place, {})[offset] = unheard(Acknowledgement.RELEASE)
        if self._wire is None or self._session.epoch == OPENING:
            self._settle_all(pending, "the queue was closed")
            return
        try:
            answer = self._request(
                self._wire, self._session.acknowledge(kinds_of(pending), closing=True), pending, at_least=1
            )
        except BarnabasError as error:
            log.info("The end of a share session with broker %d was not answered: %s", self.node.id, error)
            return
        for place, part in _parts(answer):
            self._settle_part(place, pending.pop(place, {}), part.error_code, again=False)
        self._settle_left(pending)

    # What is answered

    def _take(self, place: SharePartitionId, partition: TopicPartition, part: Any, asked_at: float) -> None:
        """Let the records that were acquired wait for the program, and say which offsets have none."""
        ranges = [AcquiredRange(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records]
        acquired = acquired_records(partition, bytes(part.records or b""), ranges)
        with self._engine.changed:
            for record in acquired.records:
                if self._has_said(place, record.offset, asked_at):
                    continue
                held = HeldRecord(self, place, record, asked_at)
                self._held[place, record.offset] = held
                self._engine.waiting.append(held)
            for offset in acquired.gaps:
                self._pending.setdefault(place, {})[offset] = unheard(Acknowledgement.GAP)
            self._engine.changed.notify_all()

    def _has_said(self, place: SharePartitionId, offset: int, asked_at: float) -> bool:
        """Whether the program has said already what became of a record, and its lock ended before that was sent.

        It is locked for this member again, so what was said holds, and the program does not get it a second time.
        """
        waiting = self._pending.get(place, {})
        if offset in waiting:
            waiting[offset] = waiting[offset]._replace(until=asked_at + self.lock_seconds)
            return True
        return any((place, offset) == one[:2] for one in self._alone)

    def _settle_part(
        self,
        place: SharePartitionId,
        offsets: dict[int, PendingAcknowledgement],
        code: ErrorCode,
        *,
        again: bool = True,
    ) -> None:
        """What became of the acknowledgements of a partition: all are stored, or none."""
        if code == ErrorCode.none:
            for pending in offsets.values():
                pending.stored.set_result(None)
        elif again and code == ErrorCode.invalid_record_state and len(offsets) > 1:
            with self._engine.changed:
                self._alone.extend((place, offset, pending) for offset, pending in offsets.items())
        else:
            if code in ANOTHER_LEADER:
                self._engine.look_for_leaders()
            if again and code in NOT_STORED_YET:
                offsets = self._try_again(place, offsets)
            not_stored(place, offsets, code.name.upper())

    def _try_again(
        self, place: SharePartitionId, offsets: dict[int, PendingAcknowledgement]
    ) -> dict[int, PendingAcknowledgement]:
        """Send these again in a moment, and return those whose lock is over."""
        now = time.monotonic()
        with self._engine.changed:
            for offset, pending in offsets.items():
                if now < pending.until:
                    self._pending.setdefault(place, {})[offset] = pending
        self._pause()
        return {offset: pending for offset, pending in offsets.items() if now >= pending.until}

    def _settle_left(self, pending: Pending) -> None:
        """Acknowledgements that the answer says nothing of."""
        self._settle_all(pending, "the broker did not answer for its partition")

    def _settle_all(self, pending: Pending, reason: str) -> None:
        for place, offsets in pending.items():
            not_stored(place, offsets, reason)

    def _refused(self, place: SharePartitionId, code: ErrorCode, message: str | None) -> None:
        if code in ANOTHER_LEADER:
            with self._engine.changed:
                lost = [held for held in self._held.values() if held.place == place]
            for held in lost:
                self.drop(held)  # the next leader hands it out again
            self._engine.look_for_leaders()
        elif code in FINAL:
            known = self._names.get(place)
            action = read_from(None if known is None else known.topic, self._engine.settings.group_id)
            self._engine.fail(RequestRefused(code, message or code.name.upper(), action))
        elif self._refusals.get(place) != code:
            self._refusals[place] = code
            name = self._names.get(place, place)
            log.warning(
                "Broker %d refused fetches of %s for group %s: %s",
                self.node.id,
                name,
                self._session.group_id,
                code.name,
            )

    def _lose(self, error: BarnabasError | None) -> None:
        """The session is over, and with it all locks: give up what waits, and what was said and not sent."""
        if self._wire is not None:
            self._wire.__exit__()
            self._wire = None
        self._session.reset()
        self._renewal_refused = False
        with self._engine.changed:
            self._held.clear()
            self._engine.waiting = type(self._engine.waiting)(
                held for held in self._engine.waiting if held.leader is not self
            )
            pending, self._pending = self._pending, {}
            for place, offset, one in self._alone:
                pending.setdefault(place, {})[offset] = one
            self._alone.clear()
        self._settle_all(pending, str(error) if error else "the queue was closed")
        if isinstance(error, RequestRefused) and error.code in FINAL | {ErrorCode.unsupported_version}:
            self._engine.fail(error)
        elif error is not None and not self._engine.closing:
            quiet = isinstance(error, BrokerUnreachable) or (
                isinstance(error, RequestRefused) and error.code in SESSION_LOST
            )
            level = log.info if quiet else log.warning
            level("The share session with broker %d ended, and is opened again: %s", self.node.id, error)

    # Renewal

    @property
    def _can_renew(self) -> bool:
        return self._renews and not self._renewal_refused and self.lock_seconds > 0

    def _due_renewals(self) -> list[HeldRecord]:
        """Records whose lock is half over, while the program may still work on them.

        Whoever takes a message wakes this thread, so all records are looked at only when one may be due.
        """
        now = time.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            for held in [held for held in self._held.values() if held.is_over()]:
                self.drop(held)
        if not self._can_renew or now < self._renewal_at:
            return []
        longest = self._engine.settings.longest_work
        renewed = [held for held in self._held.values() if now - held.acquired_at < longest]
        due = [held for held in renewed if now - held.locked_at >= self.lock_seconds / 2]
        later = (held.locked_at for held in renewed if now - held.locked_at < self.lock_seconds / 2)
        self._renewal_at = min(later, default=now) + self.lock_seconds / 2
        return due

    def _until_renewal(self) -> float | None:
        """Seconds until the next renewal; None if there is nothing to renew."""
        if not self._can_renew or not self._held:
            return None
        return max(self._renewal_at - time.monotonic(), RETRY_SECONDS)


def _parts(answer: Any) -> Iterable[tuple[SharePartitionId, Any]]:
    for topic in answer.responses:
        for part in topic.partitions:
            yield SharePartitionId(topic.topic_id, part.partition_index), part
