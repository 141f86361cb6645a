"""One partition that this broker follows: its log, whom it follows, and what it does with what the leader sends.

A follower writes what its leader wrote, with the offsets and epochs that it has there. Before the first fetch of an
epoch it cuts what the leader does not have (`machines/divergence`). Its high watermark is the leader's, at most its own
log end. Consumers may read from it what is below that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.machines.divergence import cut
from barnabas.machines.partition import check_epoch
from barnabas.protocol.replica_fetch import Position

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.partition import Watcher
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.replica_fetch import Fetched, Place
    from barnabas.storage.log import Log

logger = logging.getLogger(__name__)


class Follower:
    """A followed partition."""

    __slots__ = (
        "_watchers",
        "agrees",
        "caught_up",
        "leader_epoch",
        "leader_id",
        "log",
        "not_before",
        "place",
        "refusals",
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
        self.caught_up = False
        """Whether it had everything that was committed when it last fetched."""
        self.not_before = 0.0
        """After an error: when to try again, on the event loop's clock."""
        self.refusals = 0
        """How often the leader has said, without a break, that it is none."""
        self._watchers: set[Watcher] = set()

    def __repr__(self) -> str:
        return f"<Follower of {self.tp} at broker {self.leader_id}, epoch {self.leader_epoch}>"

    @property
    def position(self) -> Position:
        """Where the next fetch begins."""
        log = self.log
        return Position(self.leader_epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset)

    def compare(self, asked_epoch: int, leader_epoch: int, leader_end: int) -> None:
        """The leader said where an epoch ends there: cut what it does not have."""
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
        log.truncate_to(max(place.offset, log.log_start_offset))  # at its end, this drops epochs that have no record
        self.agrees = place.done

    def compare_without_epochs(self) -> None:
        """The log has no epochs: nothing above its high watermark is known to be committed."""
        self.log.truncate_to(min(self.log.high_watermark, self.log.log_end_offset))
        self.agrees = True

    def take(self, fetched: Fetched, now_ms: int) -> None:
        """Write what the leader sent. Raises CorruptMessage when it was damaged on the way."""
        log = self.log
        if fetched.diverging is not None:
            epoch, end_offset = fetched.diverging
            self.compare(log.latest_epoch, epoch, end_offset)
            return
        if fetched.records:
            log.append_replica(fetched.records, now_ms=now_ms)
        self.caught_up = log.log_end_offset >= fetched.high_watermark
        high_watermark = min(fetched.high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.high_watermark = high_watermark
            self.wake_watchers()
        if log.log_start_offset < fetched.log_start <= log.high_watermark:
            log.delete_records_before(fetched.log_start)

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
        for watcher in list(self._watchers):
            watcher.wake()

    def start_again(self, leader_start: int, leader_end: int) -> None:
        """The leader has nothing at our log's end: begin anew at its start, or cut at its end."""
        log = self.log
        if log.log_end_offset < leader_start:
            logger.warning("%s: the leader's log begins at %d, after our end; starting again there", log, leader_start)
            log.truncate_fully(leader_start)
        elif log.log_end_offset > leader_end:
            logger.warning("%s: the leader's log ends at %d, before ours; cutting there", log, leader_end)
            log.truncate_to(max(leader_end, log.log_start_offset))
        self.agrees = False
