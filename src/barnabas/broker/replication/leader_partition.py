"""One partition that this broker leads: its log, the rules of its leadership, and the requests that wait for it.

Requests wait for four things:

    committed    A Produce with acks=all waits until the high watermark has passed its records (`when_committed`). With
                 flush.messages that needs a sync first.
    synced       A Produce with acks=1 waits for that sync alone, if one is due (`when_synced`). A thread may have done
                 it, and the recovery point may show it, before the leader counts it: only then can consumers read the
                 records, so only then is the Produce answered.
    confirmed    An error that a leader may give only because it does not know yet that it was replaced waits until a
                 follower in sync has fetched here (`when_confirmed`).
    records      A consumer's Fetch waits for the high watermark, a follower's for the log end (`add_watcher`).
                 Consumers are woken once per turn of the event loop, followers by fetch batching (`fetch_batching`).
                 Both begin to wait in the callback in which they found the log too short, so they miss no append.

One object stands for one leader epoch. Where this broker goes on leading in a new epoch, with the log as it is, a
Produce goes on waiting in the next object (`take_over`): its records are still there. A Fetch is woken and looks again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.broker.replication.traffic import UNCOUNTED
from barnabas.broker.replication.verification_guards import VerificationGuards
from barnabas.broker.replication.wakeups import Wakeups
from barnabas.machines.partition import ACKS_ALL
from barnabas.model.errors import (
    ApiError,
    InvalidRequiredAcks,
    InvalidTopic,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    StorageFailed,
)
from barnabas.model.internal_topics import INTERNAL_TOPICS
from barnabas.model.log_config import NEVER
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.log import validation

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from concurrent.futures import Future

    from barnabas.broker.replication.verification_guards import Marker
    from barnabas.broker.replication.wakeups import Watcher
    from barnabas.machines.fetch_session import ReplicaSession, SessionPartition
    from barnabas.machines.partition import PartitionLeader
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.records.batch import BatchHeader, HeaderFields
    from barnabas.storage.log.log import AppendInfo, EpochEnd, Log

SYNC_RETRY_SECONDS: Final = 0.5
"""How long to wait before a sync is tried again that failed although the log directory takes writes."""


class OffsetWaiter(NamedTuple):
    """Calls `done` when everything before `end_offset` is committed or synced, or with the error that prevents it."""

    end_offset: int
    done: Callable[[ApiError | None], None]


class LeaderHost(Protocol):
    """What a leader partition needs of the replica manager."""

    def wake_soon(self, partition: LeaderPartition) -> None:
        """Wake the consumers that wait for the partition when this turn of the event loop is over."""
        ...

    def wake_followers_soon(self, partition: LeaderPartition, /) -> None:
        """Wake the followers that wait for the partition, by fetch batching."""
        ...

    def flush_through(self, log: Log, end_offset: int) -> Future[int]:
        """Sync the log up to an offset, in a thread."""
        ...

    def isr_may_grow(self, partition: LeaderPartition) -> None:
        """A follower has caught up: propose to the controller that it joins the ISR."""
        ...

    def brokers_up(self) -> Container[int]:
        """The brokers that are registered."""
        ...


class LeaderPartition:
    """One partition that this broker leads."""

    __slots__ = (
        "_commit_waiters",
        "_confirm_waiters",
        "_failure",
        "_follower_watchers",
        "_host",
        "_resting",
        "_successor",
        "_sync_waiters",
        "_syncs_again",
        "_wakeups",
        "_watchers",
        "first_byte",
        "first_offset",
        "is_internal",
        "leader",
        "log",
        "topic_id",
        "tp",
        "traffic",
        "verification",
    )

    def __init__(self, host: LeaderHost, tp: TopicPartition, log: Log, leader: PartitionLeader) -> None:
        self.tp = tp
        self.log = log
        self.leader = leader
        self.topic_id = log.topic_id
        self.is_internal = tp.topic in INTERNAL_TOPICS
        self.first_offset, self.first_byte = log.log_end_offset, log.written_bytes
        """Where the log ended, and how much was written to it, when this leadership began (`traffic`)."""
        self.traffic = UNCOUNTED
        """What is counted of its topic."""
        self._host = host
        self._commit_waiters: deque[OffsetWaiter] = deque()
        self._sync_waiters: deque[OffsetWaiter] = deque()
        self._syncs_again = False
        """Whether a sync that failed will be tried again."""
        self._confirm_waiters: list[Callable[[ApiError | None], None]] = []
        self._failure: ApiError | None = None
        """Why nothing more will be committed in this leader epoch."""
        self._successor: LeaderPartition | None = None
        """The object of the next leader epoch, where this broker went on leading with the log as it was."""
        self.verification = VerificationGuards(tp, log)
        """Transactions whose first batches wait to be stored here."""
        self._watchers: dict[Watcher, None] = {}
        """In the order in which they came, which is that in which they are woken."""
        self._wakeups = Wakeups(self._watchers)
        self._follower_watchers: dict[Watcher, None] = {}
        self._resting: dict[int, tuple[ReplicaSession, SessionPartition]] = {}
        """Where the partition is at rest in a follower's session (`machines/resting`), by replica."""
        log.high_watermark = leader.high_watermark

    @property
    def present(self) -> LeaderPartition:
        """This partition in the present leader epoch, as long as this broker led it without a break."""
        partition = self
        while partition._successor is not None:
            partition = partition._successor
        return partition

    def leads_on_from(self, former: LeaderPartition) -> bool:
        """Whether this broker has led in every leader epoch since the `former` leadership, so that nobody else has."""
        while former is not self:
            after = former._successor
            if after is None or after.leader.leader_epoch > former.leader.leader_epoch + 1:
                return False
            former = after
        return True

    def renewed(self) -> LeaderPartition:
        """The same leadership, for a log that takes writes again, without the requests that wait (`take_over`)."""
        log = self.log
        unsynced = log.flush_required  # asked once: a thread may sync it meanwhile
        self.leader.appended(log.recovery_point if unsynced else log.log_end_offset)
        partition = LeaderPartition(self._host, self.tp, log, self.leader)
        partition.verification = self.verification
        if unsynced:
            partition.sync()
        return partition

    def take_over(self, former: LeaderPartition) -> None:
        """Let requests that wait in the `former` leader epoch wait here: this broker leads on with the log as it is.

        Records of the former epoch are committed when the high watermark of this one has passed them. A leadership
        whose log failed has answered all requests already.
        """
        if former._failure is not None:
            return
        former._successor = self
        self._commit_waiters, former._commit_waiters = former._commit_waiters, self._commit_waiters
        self._sync_waiters, former._sync_waiters = former._sync_waiters, self._sync_waiters
        _release(self._commit_waiters, self.leader.high_watermark)
        self._count_synced(self.log.recovery_point)
        if self._sync_waiters:
            self.sync()  # the sync that they waited for was begun by the former object, and ends there

    def check(self, batch: bytes | memoryview, now_ms: int, version: int) -> BatchHeader:
        """Refuse a client's batch that must not be stored; returns its header."""
        if self.is_internal:
            raise InvalidTopic(f"Cannot append to internal topic {self.tp.topic}: only brokers write there.")
        return validation.check(batch, self.log.config, now_ms, version)

    def check_acks(self, acks: int = ACKS_ALL) -> None:
        """Refuse to append with these acks. Raises NotEnoughReplicas or InvalidRequiredAcks."""
        needed = self.log.config.min_insync_replicas
        if self.leader.accepts(acks, needed):
            return
        if acks != ACKS_ALL:
            raise InvalidRequiredAcks(f"The acks are {acks}, but have to be 0, 1 or -1 (all).")
        raise NotEnoughReplicas(
            f"{len(self.leader.isr)} replicas of {self.tp} are in sync, but min.insync.replicas is {needed}."
        )

    def too_few_in_sync(self) -> ApiError | None:
        """The error for acks=all if records were committed while too few replicas were in sync; None if enough are."""
        needed = self.log.config.min_insync_replicas
        if self.leader.accepts(ACKS_ALL, needed):
            return None
        return NotEnoughReplicasAfterAppend(
            f"Only {len(self.leader.isr)} replicas of {self.tp} have the records, but min.insync.replicas is {needed}."
        )

    @property
    def commits_at_once(self) -> bool:
        """Whether what is appended is committed with that: it waits neither for another replica nor for a sync."""
        return len(self.leader.maximal_isr) == 1 and self.log.config.flush_messages == NEVER

    def append_plain(self, batch: memoryview, acks: int, now_ms: int) -> AppendInfo | None:
        """Check and store a batch that is in no transaction; None, with nothing done, if anything is unusual.

        Then `check_acks`, `check` and `append` raise what is wrong, or the caller does first what has to be done.
        """
        log = self.log
        config = log.config
        if self.is_internal or not log.is_ready or not self.leader.accepts(acks, config.min_insync_replicas):
            return None
        header = validation.check_plain(batch, config, now_ms)
        return None if header is None else self.append(batch, header, now_ms)

    def append(
        self, batch: bytes | memoryview, header: HeaderFields, now_ms: int, in_sequence: bool = True
    ) -> AppendInfo:
        """Store a batch that `check` let pass; see Log.append."""
        log = self.log
        leader = self.leader
        info = log.append(batch, leader.leader_epoch, now_ms, header, in_sequence)
        if self._resting:
            self._stir_all()
        if log.config.flush_messages != NEVER and log.flush_required:
            self.sync()
        elif not info[4] and leader.appended(log.log_end_offset):  # by its place: this is where names cost
            log.high_watermark = leader.high_watermark
            if self._watchers or self._commit_waiters:
                self._committed()
        if leader.is_followed:
            self._host.wake_followers_soon(self)
        self.traffic.batches += 1
        return info

    def end_transaction(self, marker: Marker, now_ms: int) -> int:
        """Store the end of a producer's transaction; returns the log end offset after it. Raises ApiError."""
        self.check_acks()
        self.log.producers.check_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            bumped=marker.bumped,
            by_broker=marker.by_broker,
        )
        kind = ControlType.COMMIT if marker.commit else ControlType.ABORT
        batch = build_marker(
            EndOfTransaction(kind, marker.coordinator_epoch),
            timestamp=now_ms,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )
        self.verification.end(marker)
        return self.append(batch, read_header(batch), now_ms).last_offset + 1

    def fetched_by(self, replica: int, broker_epoch: int, log_start: int, offset: int, now: float) -> None:
        """A follower fetches from `offset` on: it has all records from `log_start` to there.

        `broker_epoch` is that of its registration. `now` is on a clock that never goes back.
        """
        leader = self.leader
        if replica in self._resting:  # in another session of the same broker
            self.stir(replica)
        if replica not in leader.replicas or replica == leader.broker_id:
            raise NotLeaderOrFollower(f"Broker {replica} is not a replica of {self.tp}.")
        if leader.fetched(replica, offset, now, broker_epoch, log_start):
            self._committed()
        if self._confirm_waiters and replica in leader.isr:
            self._confirmed(None)
        if replica not in leader.isr and leader.may_join(replica):
            self._host.isr_may_grow(self)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where a leader epoch, or the last one before it that the log has, ends.

        A log that was not open when this leader epoch began has not stored it, and must by now. Otherwise an epoch that
        a follower has, and this log never had, would seem to lie in the future, and the follower would truncate more
        than it has to.
        """
        log, current = self.log, self.leader.leader_epoch
        if log.latest_epoch < current:
            log.assign_epoch(current, log.log_end_offset)
        return log.offset_for_epoch(epoch)

    def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`, and answer the followers at once; `low_watermark` shows when they followed.

        Raises OffsetOutOfRange.
        """
        self._stir_all()
        self.log.delete_records_before(offset)
        self._host.wake_soon(self)
        self._host.wake_followers_soon(self)

    def low_watermark(self) -> int:
        """Where the log begins on every broker that is up."""
        return self.leader.low_watermark(self.log.log_start_offset, self._host.brokers_up())

    def commit_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller committed an ISR."""
        self._stir_all()
        before = len(self.leader.isr)
        moved = self.leader.commit_isr(isr, partition_epoch)
        self.traffic.note_isr(before, len(self.leader.isr))
        if moved:
            self._committed()
        if len(self.leader.isr) == 1:
            self._confirmed(None)

    def must_wait(self, acks: int, last_offset: int) -> bool:
        """Whether a Produce waits for records that were just appended and are not committed.

        With acks=all it waits for `when_committed`; otherwise only while they are synced, for `when_synced`.
        """
        return acks == ACKS_ALL or not self.leader.counts(last_offset + 1)

    def when_committed(self, end_offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Call `done` once everything before `end_offset` is committed, or with the error that prevents it.

        Either may have happened since the append: then `done` is called at once.
        """
        if end_offset <= self.leader.high_watermark:
            done(None)
        elif self._successor is not None:
            self._successor.when_committed(end_offset, done)
        elif self._failure is not None:
            done(self._failure)
        else:
            self._commit_waiters.append(OffsetWaiter(end_offset, done))

    def when_synced(self, end_offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Call `done` once a sync has brought everything before `end_offset` to the disk and the leader has counted it.

        Or with the error that prevents it. Only for records that were appended when a sync was due: nothing else begins
        one.
        """
        if self.leader.counts(end_offset):
            done(None)
        elif self._successor is not None:
            self._successor.when_synced(end_offset, done)
        elif self._failure is not None:
            done(self._failure)
        else:
            self._sync_waiters.append(OffsetWaiter(end_offset, done))

    def when_confirmed(self, done: Callable[[ApiError | None], None]) -> None:
        """Call `done` once a follower in sync has fetched here, or with the error that prevents it.

        A follower fetches only from its leader. Until it does, another broker may lead already, and have stored records
        that this one does not know. If this broker alone is in sync, no other can have become the leader.
        """
        if self._failure is not None:
            done(self._failure)
        elif len(self.leader.isr) == 1:
            done(None)
        else:
            self._stir_all()
            self._confirm_waiters.append(done)

    def _confirmed(self, error: ApiError | None) -> None:
        waiters, self._confirm_waiters = self._confirm_waiters, []
        for done in waiters:
            done(error)

    def add_watcher(self, watcher: Watcher, *, follower: bool = False) -> None:
        """Wake a fetch when more is committed, or, for a follower, when more is appended."""
        (self._follower_watchers if follower else self._watchers)[watcher] = None

    def is_followed_by(self, watcher: Watcher) -> bool:
        """Whether a follower's fetch waits here: it was answered in this leader epoch before."""
        return watcher in self._follower_watchers

    def remove_watcher(self, watcher: Watcher) -> None:
        """Do not wake a fetch any more."""
        if self._watchers.pop(watcher, watcher) is watcher:  # it was none of the consumers'
            self._follower_watchers.pop(watcher, None)

    def put_to_rest(self, session: ReplicaSession, wanted: SessionPartition) -> None:
        """Have a follower's session look here no more until `stir`, if its next fetches cannot matter here.

        Call this in the callback in which the session looked here, for what had no error and no diverging epoch.
        """
        log, rest = self.log, session.rest
        if (
            wanted.fetch_offset == log.log_end_offset == wanted.sent_high_watermark
            and wanted.sent_log_start_offset == log.log_start_offset
            and self.leader.is_at_rest(rest.replica, rest.broker_epoch, wanted.fetch_offset, wanted.log_start_offset)
            and self._failure is None
            and not self._confirm_waiters
        ):
            if rest.replica in self._resting:
                self.stir(rest.replica)
            self._resting[rest.replica] = session, wanted
            session.put_to_rest(wanted, self)

    def stir(self, replica: int) -> None:
        """Have a replica's session look here again: call this before anything that concerns the replica changes."""
        session, wanted = self._resting.pop(replica)
        self.leader.fetched_at_rest(replica, session.rest.fetched_at)
        session.stirred(wanted)

    def _stir_all(self) -> None:
        for replica in list(self._resting):
            self.stir(replica)

    def wake_consumers(self) -> None:
        """Wake consumers' fetches: more is committed."""
        self._wakeups.wake()

    def wake_followers(self) -> None:
        """Wake followers' fetches: more was appended."""
        for watcher in list(self._follower_watchers):
            watcher.wake()

    def wake_watchers(self) -> None:
        """Wake all fetches: there is more to read, or this broker leads the partition no more."""
        self._stir_all()
        self.wake_followers()
        self.wake_consumers()

    def sync(self) -> None:
        """Sync everything that was appended, also before this leader epoch; `leader` counts it when that is done."""
        self._flush(self.log.log_end_offset)

    def _flush(self, end_offset: int) -> None:
        loop = asyncio.get_running_loop()
        future = self._host.flush_through(self.log, end_offset)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._flushed, end_offset, done))

    def _flushed(self, end_offset: int, done: Future[int]) -> None:
        error = done.exception()
        if error is not None:
            self._flush_failed(error)
        else:
            self.present._count_synced(end_offset)

    def _count_synced(self, end_offset: int) -> None:
        """Everything before `end_offset` is on the disk: let consumers read it, then answer those who wait for it."""
        if self._failure is not None:
            return  # the leadership that follows counts it
        if self.leader.appended(end_offset):
            self._committed()
        _release(self._sync_waiters, end_offset)

    def _flush_failed(self, error: BaseException) -> None:
        """A sync failed. It is tried again, unless the directory takes no more writes or the log was truncated.

        Requests go on waiting for it: their records are stored, and after an error the producer would send them twice.
        """
        if not isinstance(error, StorageFailed) or self.log.is_failed:
            self.fail(error if isinstance(error, ApiError) else StorageFailed(str(error)))
        elif not self._syncs_again:
            self._syncs_again = True
            asyncio.get_running_loop().call_later(SYNC_RETRY_SECONDS, self._sync_again)

    def _sync_again(self) -> None:
        self._syncs_again = False
        if self._failure is None and self._successor is None:
            self.sync()

    def _committed(self) -> None:
        if self._failure is not None:
            return  # a late sync or ISR of a leadership that is over must not move the log's high watermark
        high_watermark = self.log.high_watermark = self.leader.high_watermark
        _release(self._commit_waiters, high_watermark)
        if self._watchers:
            self._host.wake_soon(self)

    def fail(self, error: ApiError) -> None:
        """End this leadership: nothing more will be committed. Every request that waits is answered with the error."""
        self._failure = error
        self._stir_all()
        for waiters in (self._commit_waiters, self._sync_waiters):
            while waiters:
                waiters.popleft().done(error)
        self._confirmed(error)
        self.wake_watchers()


def _release(waiters: deque[OffsetWaiter], end_offset: int) -> None:
    """Call those that wait for offsets up to `end_offset`."""
    while waiters and waiters[0].end_offset <= end_offset:
        waiters.popleft().done(None)
