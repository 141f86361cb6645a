"""One partition that this broker leads: its log, the rules of its leadership, and who waits for it.

Three kinds of waiting. A Produce with acks=all waits until its records are committed (`when_committed`): until the high
watermark has passed them, which with flush.messages needs a sync first. With acks=1 it waits for that sync alone
(`when_synced`), if one is due. A refusal that a leader could owe to not knowing that it was replaced waits until a
follower has shown that it was not (`when_confirmed`). A Fetch waits for records (`add_watcher`): a consumer's for the
high watermark, a follower's for the log's end. Consumers are told once per turn of the event loop, however many batches
were appended in it, followers in the next lull (`broker/lull`); both register in the same callback in which they found
the log too short, so no append is missed.

One object stands for one leadership. Where this broker leads on in a new one, with the log as it is, a Produce waits on
with the next object (`take_over`): its records are still there. A Fetch is woken, and looks for itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.broker.wakeups import Wakeups
from barnabas.machines.controller.image import INTERNAL_TOPICS
from barnabas.model.errors import (
    ApiError,
    InvalidTopic,
    InvalidTxnState,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequence,
    StorageFailed,
)
from barnabas.model.log_config import NEVER
from barnabas.protocol.records.batch import NO_SEQUENCE, read_header
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage import validation

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from concurrent.futures import Future

    from barnabas.broker.wakeups import Watcher
    from barnabas.machines.partition import PartitionLeader
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.records.batch import BatchHeader, HeaderFields
    from barnabas.storage.log import AppendInfo, EpochEnd, Log

ACKS_ALL: Final = -1
SYNC_AGAIN: Final = 0.5
"""Seconds after which a sync is tried again that failed for want of something other than a disk."""
GIVEN_UP: Final = 900.0
"""Seconds after which nobody comes again with a batch whose transaction was asked about."""


class Waiter(NamedTuple):
    """A callback for the moment when everything before `end_offset` is committed or synced, or cannot be any more."""

    end_offset: int
    done: Callable[[ApiError | None], None]


class Marker(NamedTuple):
    """The end of a producer's transaction, for one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    bumped: bool
    """Whether the epoch is one more than that of the transaction's batches (transaction.version 2)."""

    def ends(self, epoch: int) -> bool:
        """Whether it can be the end of a transaction of this epoch; a copy that comes late is not that of the next."""
        return not self.bumped or epoch < self.producer_epoch


class Guard:
    """Stands for questions to a transaction's coordinator; only a marker of the producer makes it void."""

    __slots__ = ("asked", "first_sequence")

    def __init__(self, first_sequence: int) -> None:
        self.asked = 0.0
        """When the last question began."""
        self.first_sequence = first_sequence
        """The lowest sequence that came with it: nothing above is stored before it."""


class Host(Protocol):
    """What a partition needs of whoever holds it."""

    def wake_soon(self, partition: Partition) -> None:
        """Wake the consumers that watch the partition when this turn of the event loop is over."""
        ...

    def wake_followers_soon(self, partition: Partition) -> None:
        """Wake the followers that watch the partition in the next lull."""
        ...

    def flush_through(self, log: Log, end_offset: int) -> Future[int]:
        """Sync the log up to here, in a thread."""
        ...

    def isr_may_grow(self, partition: Partition) -> None:
        """A follower has caught up: ask the controller to take it in."""
        ...

    def brokers_up(self) -> Container[int]:
        """The brokers that are registered."""
        ...


class Partition:
    """One partition that this broker leads."""

    __slots__ = (
        "_commit_waiters",
        "_confirm_waiters",
        "_failure",
        "_follower_watchers",
        "_host",
        "_successor",
        "_sync_waiters",
        "_syncs_again",
        "_verifying",
        "_wakeups",
        "_watchers",
        "is_internal",
        "leader",
        "log",
        "topic_id",
        "tp",
    )

    def __init__(self, host: Host, tp: TopicPartition, log: Log, leader: PartitionLeader) -> None:
        self.tp = tp
        self.log = log
        self.leader = leader
        self.topic_id = log.topic_id
        self.is_internal = tp.topic in INTERNAL_TOPICS
        self._host = host
        self._commit_waiters: deque[Waiter] = deque()
        self._sync_waiters: deque[Waiter] = deque()
        self._syncs_again = False
        """Whether a sync that failed is to be tried again soon."""
        self._confirm_waiters: list[Callable[[ApiError | None], None]] = []
        self._failure: ApiError | None = None
        """Why nothing more will be committed here."""
        self._successor: Partition | None = None
        """The next leadership, where this broker led on with the log as it was."""
        self._verifying: dict[tuple[int, int], Guard] = {}
        """The producers and epochs about whose transactions the coordinator was asked, the last question last.

        They stay after a refusal: the producer may have been told to come again. If it does not, they are forgotten
        when others ask.
        """
        self._watchers: set[Watcher] = set()
        self._wakeups = Wakeups(self._watchers)
        self._follower_watchers: set[Watcher] = set()
        log.high_watermark = leader.high_watermark

    @property
    def present(self) -> Partition:
        """This partition in its present leadership, as long as this broker led on without a break."""
        partition = self
        while partition._successor is not None:
            partition = partition._successor
        return partition

    def renewed(self) -> Partition:
        """The same leadership, for a log that takes writes again: all but who waits, see `take_over`."""
        partition = Partition(self._host, self.tp, self.log, self.leader)
        partition._verifying = self._verifying
        return partition

    def take_over(self, former: Partition) -> None:
        """This broker leads on, with the log as it is: who waits for records of the `former` leadership waits here.

        What was stored then is committed when the high watermark of this leadership has passed it. A leadership whose
        log failed has told everyone already.
        """
        if former._failure is not None:
            return
        former._successor = self
        self._commit_waiters, former._commit_waiters = former._commit_waiters, self._commit_waiters
        self._sync_waiters, former._sync_waiters = former._sync_waiters, self._sync_waiters
        _tell(self._commit_waiters, self.leader.high_watermark)
        _tell(self._sync_waiters, self.log.recovery_point)
        if self._sync_waiters:
            self.sync()  # the one that they waited for is the former leadership's, and tells only that

    def check(self, batch: bytes | memoryview, now_ms: int, version: int) -> BatchHeader:
        """Refuse a client's batch that must not be stored; returns its header."""
        if self.is_internal:
            raise InvalidTopic(f"Cannot append to internal topic {self.tp.topic}: only brokers write there")
        return validation.check(batch, self.log.config, now_ms, version)

    def check_enough_replicas(self) -> None:
        """Refuse acks=all when too few replicas are in sync."""
        needed = self.log.config.min_insync_replicas
        if len(self.leader.isr) < needed:
            raise NotEnoughReplicas(
                f"{len(self.leader.isr)} replicas of {self.tp} are in sync, min.insync.replicas is {needed}"
            )

    def too_few_in_sync(self) -> ApiError | None:
        """What acks=all is told of records that were committed while too few replicas were in sync."""
        needed = self.log.config.min_insync_replicas
        if len(self.leader.isr) >= needed:
            return None
        return NotEnoughReplicasAfterAppend(
            f"only {len(self.leader.isr)} replicas of {self.tp} have the records, min.insync.replicas is {needed}"
        )

    def append_plain(self, batch: memoryview, acks: int, now_ms: int) -> AppendInfo | None:
        """Check and store a batch of no transaction at once; None, with nothing done, if anything is unusual.

        Then `check_enough_replicas`, `check` and `append` say what is wrong, or what must be done before.
        """
        log = self.log
        config = log.config
        if acks == ACKS_ALL:
            if len(self.leader.isr) < config.min_insync_replicas:
                return None
        elif acks != 1 and acks != 0:
            return None
        if self.is_internal or not log.is_ready:
            return None
        header = validation.check_plain(batch, config, now_ms)
        return None if header is None else self.append(batch, header, now_ms)

    def append(
        self, batch: bytes | memoryview, header: HeaderFields, now_ms: int, in_sequence: bool = True
    ) -> AppendInfo:
        """Store a batch that `check` let pass; see Log.append."""
        log, leader = self.log, self.leader
        info = log.append(batch, leader.leader_epoch, now_ms, header, in_sequence)
        if log.config.flush_messages != NEVER and log.flush_required:
            self.sync()
        elif not info[4] and leader.appended(log.log_end_offset):  # by its place: this is where names cost
            log.high_watermark = leader.high_watermark
            if self._watchers or self._commit_waiters:
                self._committed()
        if leader.is_followed:
            self._host.wake_followers_soon(self)
        return info

    def begin_verification(self, producer_id: int, epoch: int, now: float, sequence: int = NO_SEQUENCE) -> Guard | None:
        """Before a first batch of a producer's transaction is stored; None if the transaction is open here already.

        The coordinator is then asked whether the transaction is open, and what comes back is shown to
        `end_verification` when the batch is stored. If a marker came meanwhile, the batch is too late: it would open a
        transaction that nobody ends. Each epoch has its own guard, so nobody's question suffers from that of a batch
        with another epoch, be it old or made up. `now` is on a clock that never goes back.
        """
        if self.log.is_ready and self.log.has_open_transaction(producer_id, epoch):
            return None
        guards = self._verifying
        guard = guards.pop((producer_id, epoch), None) or Guard(sequence)
        guard.asked = now
        guard.first_sequence = min(guard.first_sequence, sequence)
        guards[producer_id, epoch] = guard
        while guards[oldest := next(iter(guards))].asked < now - GIVEN_UP:
            del guards[oldest]
        return guard

    def end_verification(
        self, producer_id: int, epoch: int, guard: Guard | None, sequence: int = NO_SEQUENCE, *, bumped: bool = False
    ) -> None:
        """Refuse a batch whose transaction ended while it was asked about, or which stands after one that is missing.

        A batch before it may have been told to come again. With `bumped` a transaction has an epoch of its own, so its
        first batch in a partition is known by its number. Without a guard nobody was asked: the transaction was open,
        or the partition was not led, when the batch came. If it is not open now, the batch has to come again.
        """
        if self.log.has_open_transaction(producer_id, epoch):
            return
        if guard is None:
            raise NotEnoughReplicas(f"nobody was asked whether {self.tp} is part of the transaction: try again")
        if self._verifying.get((producer_id, epoch)) is not guard:
            raise InvalidTxnState(f"the transaction of producer {producer_id} ended meanwhile")
        if sequence > guard.first_sequence or (bumped and sequence > 0 and not self.log.knows_producer(producer_id)):
            raise OutOfOrderSequence(f"producer {producer_id} sent sequence {sequence}, and one before it is missing")

    def end_transaction(self, marker: Marker, now_ms: int) -> int:
        """Store the end of a producer's transaction; returns the log end offset after it. Raises ApiError."""
        self.check_enough_replicas()
        self.log.check_marker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, bumped=marker.bumped)
        kind = ControlType.COMMIT if marker.commit else ControlType.ABORT
        batch = build_marker(
            EndOfTransaction(kind, marker.coordinator_epoch),
            timestamp=now_ms,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )
        for producer_id, epoch in list(self._verifying):
            if producer_id == marker.producer_id and marker.ends(epoch):
                del self._verifying[producer_id, epoch]
        return self.append(batch, read_header(batch), now_ms).last_offset + 1

    def fetched_by(self, replica: int, broker_epoch: int, log_start: int, offset: int, now: float) -> None:
        """A follower, in one of its registrations, asks from `offset` on: it has everything from `log_start` to there.

        `now` is on a clock that never goes back.
        """
        leader = self.leader
        if replica not in leader.replicas or replica == leader.broker_id:
            raise NotLeaderOrFollower(f"broker {replica} is no replica of {self.tp}")
        if leader.fetched(replica, offset, now, broker_epoch, log_start):
            self._committed()
        if self._confirm_waiters and replica in leader.isr:
            self._confirmed(None)
        if replica not in leader.isr and leader.may_join(replica):
            self._host.isr_may_grow(self)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where a leader epoch, or the last one before it that the log has, ends.

        A log that was not open when this leadership began has not noted it. It must by now: otherwise an epoch that
        others have, and this log never had, seems to lie in the future, and they cut more than they have to.
        """
        log, current = self.log, self.leader.leader_epoch
        if log.latest_epoch < current:
            log.assign_epoch(current, log.log_end_offset)
        return log.offset_for_epoch(epoch)

    def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`, and tell the followers at once; `low_watermark` shows when they did the same.

        Raises OffsetOutOfRange.
        """
        self.log.delete_records_before(offset)
        self._host.wake_soon(self)
        self._host.wake_followers_soon(self)

    def low_watermark(self) -> int:
        """Where the log begins on every broker that is up."""
        return self.leader.low_watermark(self.log.log_start_offset, self._host.brokers_up())

    def commit_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller decided who is in sync."""
        if self.leader.commit_isr(isr, partition_epoch):
            self._committed()
        if len(self.leader.isr) == 1:
            self._confirmed(None)

    def must_wait(self, acks: int) -> bool:
        """Whether a client waits for records that were just appended and are not committed: with acks=all, or a sync.

        Those with acks=all wait for `when_committed`, others for `when_synced`.
        """
        return acks == ACKS_ALL or self.log.flush_required

    def when_committed(self, end_offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Call `done` once everything before `end_offset` is committed, or with the error that prevents it.

        Both may have happened since the append: then it is called at once, and nobody else would do it.
        """
        if end_offset <= self.leader.high_watermark:
            done(None)
        elif self._successor is not None:
            self._successor.when_committed(end_offset, done)
        elif self._failure is not None:
            done(self._failure)
        else:
            self._commit_waiters.append(Waiter(end_offset, done))

    def when_synced(self, end_offset: int, done: Callable[[ApiError | None], None]) -> None:
        """As `when_committed`, for the moment when everything before `end_offset` is on this broker's disk.

        Only for what was appended when a sync was due: nothing else begins one.
        """
        if end_offset <= self.log.recovery_point:
            done(None)
        elif self._successor is not None:
            self._successor.when_synced(end_offset, done)
        elif self._failure is not None:
            done(self._failure)
        else:
            self._sync_waiters.append(Waiter(end_offset, done))

    def when_confirmed(self, done: Callable[[ApiError | None], None]) -> None:
        """Call `done` once a follower in sync has fetched here, as it does from its leader alone; or with an error.

        Until then this broker may have been replaced, and not know what its successor stored. If it alone is in sync
        there can be no successor.
        """
        if self._failure is not None:
            done(self._failure)
        elif len(self.leader.isr) == 1:
            done(None)
        else:
            self._confirm_waiters.append(done)

    def _confirmed(self, error: ApiError | None) -> None:
        waiters, self._confirm_waiters = self._confirm_waiters, []
        for done in waiters:
            done(error)

    def add_watcher(self, watcher: Watcher, *, follower: bool = False) -> None:
        """Wake `watcher` when there is more to read: for a follower, as soon as it is appended."""
        (self._follower_watchers if follower else self._watchers).add(watcher)

    def is_followed_by(self, watcher: Watcher) -> bool:
        """Whether `watcher` is a follower's fetch that waits here: it was looked at in this leadership before."""
        return watcher in self._follower_watchers

    def remove_watcher(self, watcher: Watcher) -> None:
        """Forget `watcher`."""
        self._watchers.discard(watcher)
        self._follower_watchers.discard(watcher)

    def wake_consumers(self) -> None:
        """Let consumers look again: more is committed."""
        self._wakeups.wake()

    def wake_followers(self) -> None:
        """Let followers look again: more was appended."""
        for watcher in list(self._follower_watchers):
            watcher.wake()

    def wake_watchers(self) -> None:
        """Let everyone look again: there is more, or it is over."""
        self.wake_followers()
        self.wake_consumers()

    def sync(self) -> None:
        """Have everything synced that was appended, also before this leadership; it counts for `leader` then."""
        self._flush(self.log.log_end_offset)

    def _flush(self, end_offset: int) -> None:
        loop = asyncio.get_running_loop()
        future = self._host.flush_through(self.log, end_offset)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._flushed, end_offset, done))

    def _flushed(self, end_offset: int, done: Future[int]) -> None:
        error = done.exception()
        if error is not None:
            self._not_flushed(error)
            return
        _tell(self._sync_waiters, end_offset)
        if self.leader.appended(end_offset):
            self._committed()

    def _not_flushed(self, error: BaseException) -> None:
        """A sync failed. It is tried again, unless the directory takes no more writes or the log was cut.

        Whoever waits for it waits on: what they sent is stored, and refusing it would only bring it twice.
        """
        if not isinstance(error, StorageFailed) or self.log.is_failed:
            self.fail(error if isinstance(error, ApiError) else StorageFailed(str(error)))
        elif not self._syncs_again:
            self._syncs_again = True
            asyncio.get_running_loop().call_later(SYNC_AGAIN, self._sync_again)

    def _sync_again(self) -> None:
        self._syncs_again = False
        if self._failure is None and self._successor is None:
            self.sync()

    def _committed(self) -> None:
        if self._failure is not None:
            return  # a leadership that is over, and hears late of a sync or an ISR, says nothing more of the log
        high_watermark = self.log.high_watermark = self.leader.high_watermark
        _tell(self._commit_waiters, high_watermark)
        if self._watchers:
            self._host.wake_soon(self)

    def fail(self, error: ApiError) -> None:
        """Nothing that is not committed will be: tell everyone who waits."""
        self._failure = error
        for waiters in (self._commit_waiters, self._sync_waiters):
            while waiters:
                waiters.popleft().done(error)
        self._confirmed(error)
        self.wake_watchers()


def _tell(waiters: deque[Waiter], end_offset: int) -> None:
    """Everything before `end_offset` is safe now."""
    while waiters and waiters[0].end_offset <= end_offset:
        waiters.popleft().done(None)
