"""Bugs of replication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.controller.metadata_updates import MetadataUpdates
from barnabas.broker.replication.follower_partition import FollowerPartition
from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.broker.replication.log_changes import LogChanges
from barnabas.machines.partition import PartitionLeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.inter_broker import StopReplicaRequest


def early_acks() -> None:
    """A Produce with acks=all is answered when the leader has it."""

    def must_wait(self: LeaderPartition, acks: int, last_offset: int) -> bool:
        return self.log.flush_required

    LeaderPartition.must_wait = must_wait  # type: ignore[method-assign]


def own_end() -> None:
    """The high watermark is the leader's own log end."""

    def advance(self: PartitionLeader) -> bool:
        moved = self.high_watermark < self._log_end_offset
        self.high_watermark = max(self.high_watermark, self._log_end_offset)
        return moved

    PartitionLeader._advance = advance  # type: ignore[method-assign]


def unsure_ends() -> None:
    """A new leader gives out its high watermark before it is sure to know all that the one before it gave out."""
    PartitionLeader.knows_high_watermark = property(lambda self: True)  # type: ignore[method-assign, assignment]


def lagging_joins() -> None:
    """A follower may join the ISR before it has what is committed."""

    def may_join(self: PartitionLeader, replica: int) -> bool:
        return self._ends.get(replica, -1) >= 0

    PartitionLeader.may_join = may_join  # type: ignore[method-assign]


def no_truncation() -> None:
    """A follower fetches on from its log end, whatever its leader has before that."""

    def compare(self: FollowerPartition, asked_epoch: int, leader_epoch: int, leader_end: int) -> int | None:
        return self._agree(self.log.log_end_offset, True)

    FollowerPartition.compare = compare  # type: ignore[method-assign]


def truncation_on_the_loop() -> None:
    """A log is truncated on the event loop, which reads it again and waits for the disk (finding 8, its high part)."""

    async def truncate(self: LogChanges, follower: FollowerPartition, truncate_log: Callable[[], None]) -> None:
        try:
            truncate_log()
        finally:
            self._end(follower.tp, follower.topic_id)
        self._user.use_log(follower.log, follower.topic_id)

    LogChanges._truncate = truncate  # type: ignore[method-assign]


def divided_batch() -> None:
    """A follower's log never begins within a batch, although its leader's may after DeleteRecords."""
    FollowerPartition.begins_within = lambda *_: False  # type: ignore[method-assign]


def clamped() -> None:
    """A follower whose log starts above its leader's end keeps its start, instead of starting anew (finding 7)."""

    def agree(self: FollowerPartition, offset: int, done: bool) -> int | None:
        log = self.log
        offset = max(offset, log.log_start_offset)
        self.agrees = False
        if offset < log.log_end_offset:
            return offset
        log.truncate_to(offset)
        self.agrees = done
        return None

    def out_of_range(self: FollowerPartition, leader_start: int, leader_end: int) -> int | None:
        log = self.log
        self.agrees = False
        if log.log_end_offset < leader_start:
            self.starts_anew = True
        elif leader_end < log.log_end_offset and log.log_start_offset < log.log_end_offset:
            return max(leader_end, log.log_start_offset)
        return None

    def compare_without_epochs(self: FollowerPartition) -> int | None:
        return agree(self, min(self.log.high_watermark, self.log.log_end_offset), True)

    FollowerPartition._agree = agree  # type: ignore[method-assign]
    FollowerPartition.compare_without_epochs = compare_without_epochs  # type: ignore[method-assign]
    FollowerPartition.out_of_range = out_of_range  # type: ignore[method-assign]


def stopped_leads() -> None:
    """A replica that the controller has stopped is still in the image: its log is made anew, empty, and led again."""

    def stop_replica(self: MetadataUpdates, request: StopReplicaRequest, broker_id: int) -> None:
        """The image stays as it is until the next message."""

    MetadataUpdates.stop_replica = stop_replica  # type: ignore[method-assign]
