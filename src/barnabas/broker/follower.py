"""One partition that this broker follows: its log, whom it follows, and what it does with what the leader sends.

A follower writes what its leader wrote, with the offsets and epochs that it has there. Before the first fetch of an
epoch it finds out what the leader does not have (`machines/divergence`), which is then cut in a thread (`replicas`);
the partition is followed anew after that. Its high watermark is the leader's, at most its own
log end. Consumers may read from it what is below that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.wakeups import Wakeups
from barnabas.machines.divergence import cut
from barnabas.machines.partition import check_epoch
from barnabas.protocol.replica_fetch import Position

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.wakeups import Watcher
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.replica_fetch import Fetched, Place
    from barnabas.storage.log import Log

logger = logging.getLogger(__name__)


class Follower:
    """A followed partition."""

    __slots__ = (
        "_wakeups",
        "_watchers",
        "agrees",
        "caught_up",
        "leader_epoch",
        "leader_id",
        "log",
        "not_before",
        "place",
        "refusals",
        "starts_anew",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, topic_id: UUID, log: Log, leader_id: int, leader_epoch: int) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.place: Place = (topic_id.bytes, tp.partition)
        """What it is called when it is fetched."""
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.agrees = False
        """Whether the log is known to be a part of the leader's."""
        self.starts_anew = False
        """Whether nothing of the log is the leader's: all of it goes, and it starts where the leader's log starts.

        Not where the logs parted: it would lack what the leader has before that, and be taken for in sync.
        """
        self.caught_up = False
        """Whether it had everything that was committed when it last fetched."""
        self.not_before = 0.0
        """After an error: when to try again, on the event loop's clock."""
        self.refusals = 0
        """How often the leader has said, without a break, that it is none."""
        self._watchers: set[Watcher] = set()
        self._wakeups = Wakeups(self._watchers)

    def __repr__(self) -> str:
        return f"<Follower of {self.tp} at broker {self.leader_id}, epoch {self.leader_epoch}>"

    @property
    def position(self) -> Position:
        """Where the next fetch begins."""
        log = self.log
        return Position(self.leader_epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset)

    def compare(self, asked_epoch: int, leader_epoch: int, leader_end: int) -> int | None:
        """The leader said where an epoch ends there: returns where to cut what it does not have, None for nothing."""
        log = self.log
        own = log.offset_for_epoch(leader_epoch)
        place = cut(
            asked_epoch=asked_epoch,
            leader_epoch=leader_epoch,
            leader_end=leader_end,
            own_epoch=own.epoch,
            own_end=own.end_offset,
            log_end=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        return self._agree(place.offset, place.done)

    def compare_without_epochs(self) -> int | None:
        """The log has no epochs: nothing above its high watermark is known to be committed.

        That of an empty log says nothing at all, so nothing shows that its end is a place in the leader's log.
        """
        log = self.log
        if 0 < log.log_end_offset == log.log_start_offset:
            self.agrees, self.starts_anew = False, True
            return None
        return self._agree(min(log.high_watermark, log.log_end_offset), True)

    def _agree(self, offset: int, done: bool) -> int | None:
        """The logs agree up to `offset`; unless it is `done`, ask again then."""
        log = self.log
        self.agrees = False
        if offset < log.log_start_offset:
            logger.warning("%s: the leader agrees up to %d only, before our start; starting anew", log, offset)
            self.starts_anew = True
        elif offset < log.log_end_offset:
            return offset
        else:
            log.truncate_to(offset)  # which drops epochs that have no record, and waits for nothing
            self.agrees = done
        return None

    def take(self, fetched: Fetched, now_ms: int) -> int | None:
        """Write what the leader sent; returns where to cut what it does not have, None for nothing.

        Raises CorruptMessage when it was damaged on the way.
        """
        log = self.log
        if fetched.diverging is not None:
            epoch, end_offset = fetched.diverging
            return self.compare(log.latest_epoch, epoch, end_offset)
        if fetched.records:
            log.append_replica(fetched.records, now_ms=now_ms)
        self.caught_up = log.log_end_offset >= fetched.high_watermark
        high_watermark = min(fetched.high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.high_watermark = high_watermark
            self.wake_watchers()
        if log.log_start_offset < fetched.log_start <= log.high_watermark:
            log.delete_records_before(fetched.log_start)
        return None

    def out_of_range(self, leader_start: int, leader_end: int) -> int | None:
        """The leader has nothing at our log's end: returns where to cut, None for nothing.

        If the two logs have no offset in common, ours starts anew.
        """
        log = self.log
        self.agrees = False
        if log.log_end_offset < leader_start or leader_end < log.log_start_offset:
            logger.warning("%s: the leader has %d to %d; starting anew", log, leader_start, leader_end)
            self.starts_anew = True
        elif leader_end < log.log_end_offset:
            logger.warning("%s: the leader's log ends at %d, before ours; cutting there", log, leader_end)
            return leader_end
        return None

    def may_start_at(self, leader_start: int) -> bool:
        """Whether a log that is to start anew does so there already: it is empty, and has no epochs."""
        log = self.log
        if log.latest_epoch < 0 and log.log_start_offset == log.log_end_offset == leader_start:
            self.agrees, self.starts_anew = True, False
        return self.agrees

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client that knows an older or a newer leadership than this one."""
        check_epoch(self.leader_epoch, current_leader_epoch)

    def add_watcher(self, watcher: Watcher, *, follower: bool = False) -> None:
        """Wake `watcher` when there is more to read. Nobody follows a follower."""
        self._watchers.add(watcher)

    def remove_watcher(self, watcher: Watcher) -> None:
        """Forget `watcher`."""
        self._watchers.discard(watcher)

    def wake_watchers(self) -> None:
        """Let everyone look again: there is more, or it is over."""
        self._wakeups.wake()
