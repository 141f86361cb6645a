"""One partition that this broker follows: its log, its leader, and what it does with fetched records.

A follower appends the leader's batches with their offsets and leader epochs. Before the first fetch of a leader epoch
it finds out which records the leader does not have (`machines/divergence`). They are truncated in a thread
(`log_changes`), and the partition is followed anew. The high watermark is the leader's, at most the follower's own log
end. Consumers may read from a follower up to its high watermark.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.replication.traffic import UNCOUNTED
from barnabas.broker.replication.wakeups import Wakeups
from barnabas.machines.divergence import truncation_point
from barnabas.machines.partition import check_epoch
from barnabas.protocol.messages.replica_fetch import FetchPosition
from barnabas.protocol.records.batch import read_header

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.replication.wakeups import Watcher
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.messages.replica_fetch import Fetched, Place
    from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)


class FollowerPartition:
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
        "traffic",
    )

    def __init__(self, tp: TopicPartition, topic_id: UUID, log: Log, leader_id: int, leader_epoch: int) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.place: Place = (topic_id.bytes, tp.partition)
        """How fetch requests name it."""
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.agrees = False
        """Whether all records of the log are known to be in the leader's log."""
        self.starts_anew = False
        """Whether no record of the log is in the leader's log: it is emptied, and starts where the leader's log starts.

        Not where the logs diverged: it would lack the leader's records before that offset, and count as in sync.
        """
        self.traffic = UNCOUNTED
        """What is counted of its topic."""
        self.caught_up = False
        """Whether it had everything that was committed when it last fetched."""
        self.not_before = 0.0
        """After an error: when to try again, on the event loop's clock."""
        self.refusals = 0
        """How often in a row the leader has answered with an error that passes soon."""
        self._watchers: dict[Watcher, None] = {}
        self._wakeups = Wakeups(self._watchers)

    def __repr__(self) -> str:
        return f"{self.tp} from broker {self.leader_id} (leader epoch {self.leader_epoch})"

    @property
    def position(self) -> FetchPosition:
        """Where the next fetch begins."""
        log = self.log
        return FetchPosition(self.leader_epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset)

    def compare(self, asked_epoch: int, leader_epoch: int, leader_end: int) -> int | None:
        """The leader said where an epoch ends in its log: returns where to truncate ours, None for nowhere."""
        log = self.log
        own = log.offset_for_epoch(leader_epoch)
        point = truncation_point(
            asked_epoch=asked_epoch,
            leader_epoch=leader_epoch,
            leader_end=leader_end,
            own_epoch=own.epoch,
            own_end=own.end_offset,
            log_end=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        return self._agree(point.offset, point.done)

    def compare_without_epochs(self) -> int | None:
        """The log has no epochs: returns where to truncate it, None for nowhere.

        Nothing above its high watermark is known to be committed. The high watermark of an empty log says nothing, so
        its end offset need not be in the leader's log.
        """
        log = self.log
        if 0 < log.log_end_offset == log.log_start_offset:
            self.agrees, self.starts_anew = False, True
            return None
        return self._agree(min(log.high_watermark, log.log_end_offset), True)

    def _agree(self, offset: int, done: bool) -> int | None:
        """The logs agree up to `offset`. Unless `done`, the leader has to be asked again after that is truncated."""
        log = self.log
        self.agrees = False
        if offset < log.log_start_offset:
            logger.warning(
                "The log of %s agrees with its leader's only up to offset %d, before its own start. It is emptied and "
                "copied again.",
                self,
                offset,
            )
            self.starts_anew = True
        elif offset < log.log_end_offset:
            return offset
        else:
            log.truncate_to(offset)  # which drops epochs that have no record, and waits for nothing
            self.agrees = done
        return None

    def take(self, fetched: Fetched, now_ms: int) -> int | None:
        """Append what the leader sent; returns where to truncate what it does not have, None for nowhere.

        Raises CorruptMessage when the records were damaged on the way.
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
        """The end of the log is not in the leader's log: returns where to truncate, None for nowhere.

        If the two logs have no offset in common, this one starts anew.
        """
        log = self.log
        self.agrees = False
        if log.log_end_offset < leader_start or leader_end < log.log_start_offset:
            logger.warning(
                "The log of %s has no offset in common with its leader's, which has %d to %d. It is emptied and copied "
                "again.",
                self,
                leader_start,
                leader_end,
            )
            self.starts_anew = True
        elif leader_end < log.log_end_offset:
            logger.warning(
                "The log of %s ends at offset %d, but its leader's at %d. It is truncated to that.",
                self,
                log.log_end_offset,
                leader_end,
            )
            return leader_end
        return None

    def may_start_at(self, leader_start: int) -> bool:
        """Whether a log that has to start anew starts there already: it is empty, and has no epochs."""
        log = self.log
        if log.latest_epoch < 0 and log.log_start_offset == log.log_end_offset == leader_start:
            self.agrees, self.starts_anew = True, False
        return self.agrees

    def begins_within(self, fetched: Fetched) -> bool:
        """Whether the first of these batches, which the log refused, is the one that the leader's log begins within.

        So it is where DeleteRecords has deleted the beginning of a batch. This log is empty, and starts at that place;
        or it ends there, and the leader has deleted all that it has. These may be other records than the leader's were:
        of an earlier epoch, of which the leader only knows that its own log begins after it.
        """
        log, end = self.log, self.log.log_end_offset
        if not fetched.records:
            return False
        first = read_header(fetched.records)
        if not first.base_offset < end <= first.last_offset:
            return False
        is_empty = log.log_start_offset == end and log.latest_epoch < 0
        return is_empty or end <= fetched.log_start

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client with an older or a newer leader epoch."""
        check_epoch(self.leader_epoch, current_leader_epoch)

    def add_watcher(self, watcher: Watcher, *, follower: bool = False) -> None:
        """Wake a consumer's fetch when there is more to read. No broker follows a follower."""
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Watcher) -> None:
        """Forget `watcher`."""
        self._watchers.pop(watcher, None)

    def wake_watchers(self) -> None:
        """Wake all fetches: there is more to read, or this broker follows the partition no more."""
        self._wakeups.wake()
