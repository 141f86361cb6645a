"""Bugs of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators import record_log
from barnabas.broker.handlers import fetch
from barnabas.storage.file_pool import FilePool
from barnabas.storage.files import FileSystem
from barnabas.storage.log.producers import LogProducers
from barnabas.storage.log.truncation import Truncation
from barnabas.storage.producers.state import ProducerStates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.broker.fetching.partition_read import Fetched
    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.file_pool import FileHandle
    from barnabas.storage.log.log import Log


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


def leases_kept() -> None:
    """A fetch for which descriptors run out keeps the leases that it took before (finding 12, e3)."""

    def lease(results: Sequence[Fetched]) -> Sequence[Fetched]:
        for result in results:
            for piece in result.slices:
                piece.file.acquire()
        return results

    fetch.lease_files = lease  # type: ignore[attr-defined]


def files_kept_open() -> None:
    """A file that cannot be written as a whole stays open."""

    def write_file(self: FileSystem, path: str, data: bytes, *, sync: bool = True) -> None:
        new = f"{path}.tmp"
        self.remove(new)
        fd = self.open(new, create=True)
        self.append_all(fd, data)
        if sync:
            self.sync(fd)
        self.close(fd)
        self.rename(new, path)
        if sync:
            self.sync_dir(path.rpartition("/")[0])

    FileSystem.write_file = write_file  # type: ignore[method-assign]


def lease_given_back_twice() -> None:
    """Replay of a coordinator's log gives back leases that nobody holds: files in use are closed (finding 10)."""

    def release(self: FilePool, handle: FileHandle) -> None:
        unused: list[int] = []
        with self._lock:
            if handle._leases:
                handle._leases -= 1
                unused = self._rest(handle)
            elif handle.pinned:
                self._idle[handle] = None  # its pin was counted as a lease
        self._close_all(unused)

    def retire(self: FilePool, handle: FileHandle) -> int:
        fd = handle.fd
        if not handle.pinned:
            handle.fd = -1
        self._open -= 1
        return fd

    def batches(log: Log, buffer_bytes: int) -> Iterator[tuple[BatchHeader, bytes]]:
        yield from read_batches(log, buffer_bytes)
        for segment in log.open().all:
            segment.file.release()

    read_batches = record_log._batches
    record_log._batches = batches
    FilePool.release = release  # type: ignore[method-assign]
    FilePool._retire = retire  # type: ignore[method-assign]
