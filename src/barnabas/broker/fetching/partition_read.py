"""One partition of a Fetch: which of its records a consumer may see, and from which replica it had better read them.

Nothing here waits for the disk: where a log must be read from it first, DiskReadNeeded says how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from barnabas.model.errors import OffsetOutOfRange
from barnabas.protocol.messages.fetch_response import FetchedPartition
from barnabas.storage.files import ColdRead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.broker.replication.follower_partition import FollowerPartition
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.machines.controller.image import BrokerImage
    from barnabas.machines.fetch_session import SessionPartition
    from barnabas.storage.segments.segment import FileSlice

Fetched: TypeAlias = "FetchedPartition[SessionPartition, FileSlice]"


class DiskReadNeeded(Exception):
    """A log must read from disk before it can answer; `look` does so, in a thread, and leaves it in memory."""

    def __init__(self, wanted: SessionPartition, look: Callable[[], object], *, is_load: bool = False) -> None:
        super().__init__("the log must read from disk")
        self.wanted = wanted
        self.look = look
        self.is_load = is_load
        """Whether the log is not loaded yet, so that the others that were asked for may not be either."""


def read_for_consumer(
    wanted: SessionPartition,
    partition: LeaderPartition | FollowerPartition,
    high_watermark: int,
    read_committed: bool,
    left: int,
    first: bool,
) -> Fetched:
    """What a consumer may see: up to the high watermark, or the last stable offset. At most `left` bytes.

    The `first` batch of a response is sent whatever its size. Raises ApiError and DiskReadNeeded.
    """
    log, offset = partition.log, wanted.fetch_offset
    if not log.is_open and (read_committed or offset < high_watermark or wanted.last_fetched_epoch >= 0):
        raise DiskReadNeeded(wanted, log.open, is_load=True)
    stable = log.last_stable_offset(high_watermark)
    visible = stable if read_committed else high_watermark
    start = log.log_start_offset
    aborted: Sequence[tuple[int, int]] | None = () if read_committed else None
    if wanted.last_fetched_epoch >= 0 and (diverging := divergence(wanted, partition)) is not None:
        return FetchedPartition(wanted, 0, high_watermark, stable, start, aborted, diverging_epoch=diverging)
    if offset >= visible or offset < start:
        if not start <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(f"{partition.tp} has offsets {start} to {log.log_end_offset}, not {offset}.")
        return FetchedPartition(wanted, 0, high_watermark, stable, start, aborted)
    most = min(wanted.max_bytes, left)
    if most <= 0 and not first:
        return FetchedPartition(wanted, 0, high_watermark, stable, start, aborted)
    try:
        slices, size, transactions = log.read(offset, most, visible, first, may_block=False, committed=read_committed)
    except ColdRead:
        raise DiskReadNeeded(wanted, lambda: log.read(offset, most, visible, first, committed=read_committed)) from None
    if transactions:
        aborted = [(one.producer_id, one.first_offset) for one in transactions]
    return FetchedPartition(wanted, 0, high_watermark, stable, start, aborted, size, slices)


def divergence(wanted: SessionPartition, partition: LeaderPartition | FollowerPartition) -> tuple[int, int] | None:
    """The epoch and end offset where the fetcher's log diverges from ours, if it does."""
    end = partition.log.offset_for_epoch(wanted.last_fetched_epoch)
    if end.end_offset < 0:
        raise OffsetOutOfRange(f"{partition.tp} has no leader epoch {wanted.last_fetched_epoch}.")
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
        return end.epoch, end.end_offset
    return None


def nearer_replica(
    wanted: SessionPartition, partition: LeaderPartition, brokers: Mapping[int, BrokerImage], rack: str
) -> int | None:
    """A replica in sync in the consumer's rack that has what it asks for; None if the leader is as good."""
    leader = partition.leader
    racks = {each: brokers[each].rack for each in leader.isr if each in brokers}
    if racks.get(leader.broker_id) == rack:
        return None
    near = [each for each, found in racks.items() if found == rack and leader.has(each, wanted.fetch_offset)]
    return max(near, key=leader.end_of, default=None)
