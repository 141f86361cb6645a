"""Bugs of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators import record_log
from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.storage.cleaner import swap
from barnabas.storage.cleaner.worker.cleaned_segment import CLEANED_SUFFIX
from barnabas.storage.file_pool import FilePool
from barnabas.storage.log.appending import Appender
from barnabas.storage.log.producers import LogProducers
from barnabas.storage.log.truncation import Truncation
from barnabas.storage.producers.replaying import aborted_by
from barnabas.storage.producers.state import ProducerStates
from barnabas.storage.segments.segments import SWAP_SUFFIX, Segments
from barnabas.storage.segments.txn_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.cleaner.task import CleanedGroup
    from barnabas.storage.file_pool import FileHandle
    from barnabas.storage.files import FileSystem
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segment import Segment


def recovery_point() -> None:
    """The recovery point stays where it was when a log is truncated."""
    lower = Truncation._lower_offsets

    def keep(self: Truncation, offset: int, log_start_offset: int) -> None:
        before = self._log.recovery_point
        lower(self, offset, log_start_offset)
        self._log.recovery_point = before

    Truncation._lower_offsets = keep  # type: ignore[method-assign]


def no_duplicates() -> None:
    """The broker takes a batch that it has already for a new one."""

    def check(self: ProducerStates, *_: Any, **__: Any) -> None:
        return None

    ProducerStates.check = check  # type: ignore[method-assign]


def uncommitted_reads() -> None:
    """Readers of committed data read up to the high watermark, whatever transaction is open before it."""

    def last_stable_offset(self: LogProducers, high_watermark: int) -> int:
        return high_watermark

    LogProducers.last_stable_offset = last_stable_offset  # type: ignore[method-assign]


def checkpoints_stay() -> None:
    """The recovery point is lowered in memory when a log is truncated, but not on disk (finding 8)."""

    def lower(self: Truncation, offset: int, log_start_offset: int) -> None:
        log = self._log
        with log.lock:
            log.recovery_point = min(log.recovery_point, offset)
            log.high_watermark = min(log.high_watermark, offset)
            log.log_start_offset = min(log.log_start_offset, log_start_offset)
            if log.cleaned_to is not None:
                log.cleaned_to = min(log.cleaned_to, offset)

    Truncation._lower_offsets = lower  # type: ignore[method-assign]


def index_after_marker() -> None:
    """An aborted transaction is noted after its marker was written; when that fails, the marker stays (finding 11)."""

    def write_control(self: Appender, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        log = self._log
        aborted = aborted_by(log.producers.states, header, bytes(batch[HEADER_SIZE:]))
        segment.write(batch, header.size, log.log_end_offset, header.last_offset, header.max_timestamp)
        if aborted is not None:
            segment.txn_index.append(aborted)

    Appender._write_control = write_control  # type: ignore[method-assign]


def index_not_synced() -> None:
    """The index of aborted transactions is not synced with its log (finding 12)."""

    def sync(self: TransactionIndex) -> None:
        """Leave it to the kernel."""

    TransactionIndex.sync = sync  # type: ignore[method-assign]


def sealed_active() -> None:
    """A segment counts as sealed before its successor is there: without one, it is never synced again (finding 12)."""

    def roll(self: Segments, base_offset: int, now_ms: int) -> bool:
        if self.active.base_offset == base_offset:
            return False
        self.active.finish_indexes()
        self.active.seal()
        self._set((*self.all, self._begin(base_offset, now_ms)))
        return True

    Segments.roll = roll  # type: ignore[method-assign]


def stale_swap() -> None:
    """A replacement of segments that fails leaves its `.swap` files behind (finding 12)."""

    def make_it_count(log: Log, files: FileSystem, directory: str, prefix: str, group: CleanedGroup) -> None:
        for suffix in group.sizes:
            files.rename(prefix + suffix + CLEANED_SUFFIX, prefix + suffix + SWAP_SUFFIX)
        files.sync_dir(directory)

    swap._make_it_count = make_it_count


def lease_given_back_twice() -> None:
    """Replay of a coordinator's log gives back leases that nobody holds: files in use are closed (finding 10)."""

    def release(self: FilePool, handle: FileHandle) -> None:
        with self._lock:
            if handle._leases:
                handle._leases -= 1
                self._rest(handle)
            elif handle.pinned:
                self._idle[handle] = None  # its pin was counted as a lease

    def close(self: FilePool, handle: FileHandle) -> None:
        fd = handle.fd
        if not handle.pinned:
            handle.fd = -1
        self._open -= 1
        self.files.close(fd)

    def batches(log: Log, buffer_bytes: int) -> Iterator[tuple[BatchHeader, bytes]]:
        yield from read_batches(log, buffer_bytes)
        for segment in log.open().all:
            segment.file.release()

    read_batches = record_log._batches
    record_log._batches = batches
    FilePool.release = release  # type: ignore[method-assign]
    FilePool._close = close  # type: ignore[method-assign]
