"""One partition's log: the signatures that the broker uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from uuid import UUID

    from barnabas.model.ids import TopicPartition
    from barnabas.model.log_config import LogConfig


class AppendInfo(NamedTuple):
    """Where a batch went."""

    base_offset: int
    last_offset: int
    append_time: int
    log_start_offset: int
    duplicate: bool


class TimestampOffset(NamedTuple):
    """The answer of a search by time; `leader_epoch` is -1 when unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record; both are -1 when the log knows nothing of it."""

    epoch: int
    end_offset: int


class FileHandle(Protocol):
    """A file that is open while someone holds a lease on it."""

    revoked: bool
    """The file was truncated after this handle was given out: what is queued must not be sent."""

    @property
    def fd(self) -> int:
        """The descriptor; valid between acquire() and release()."""
        ...

    def acquire(self) -> int:
        """Hold the file open and return its descriptor."""
        ...

    def release(self) -> None:
        """Give back one acquire()."""
        ...


class FileSlice(NamedTuple):
    """Bytes of a file, for sendfile."""

    file: FileHandle
    position: int
    length: int
    warm: bool


class ReadResult(NamedTuple):
    """What a read found; `size` is the sum of the slices."""

    slices: tuple[FileSlice, ...]
    size: int


class ProducerInfo(NamedTuple):
    """What DescribeProducers tells of one producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class Log(Protocol):
    """One partition's log."""

    tp: TopicPartition
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    """Everything before this offset is on disk (fsync)."""
    high_watermark: int
    """Set by the broker whenever it moves; retention and checkpoints use it."""

    @property
    def topic_id(self) -> UUID:
        """The topic's id, or NO_ID."""
        ...

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        ...

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        ...

    @property
    def flush_required(self) -> bool:
        """flush.messages is reached: the produce handler waits for LogManager.flush_through before it answers."""
        ...

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or -1."""
        ...

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        ...

    def append(self, batch: bytes | memoryview, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """As leader: give one validated batch its place and write it."""
        ...

    def append_replica(self, batches: bytes | memoryview, *, now_ms: int) -> AppendInfo | None:
        """As follower: write whole batches as they are."""
        ...

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Remember that `epoch` starts at `start_offset` (on becoming leader)."""
        ...

    def read(self, offset: int, max_bytes: int, up_to: int, min_one: bool, *, may_block: bool = True) -> ReadResult:
        """Slices from the batch that holds `offset`; with may_block=False raises ColdRead instead of waiting for disk."""
        ...

    def offset_for_time(self, timestamp: int, *, up_to: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp`. Runs in a thread."""
        ...

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp. Runs in a thread."""
        ...

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of `offset`, or -1."""
        ...

    def offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where `epoch` ends."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on."""
        ...

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything and start again at `start_offset`."""
        ...

    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset` (at most the high watermark); returns the new log start offset."""
        ...

    def flush(self, up_to: int | None = None) -> int:
        """Sync to disk; returns the new recovery point. Runs in a thread."""
        ...

    def producers(self) -> Iterable[ProducerInfo]:
        """The producers that the log remembers."""
        ...
