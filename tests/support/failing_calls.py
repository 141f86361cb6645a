"""A log that is written to while one call to the file system fails, and what must be true of it whatever that call was.

`FailingCalls` are real files of which the n-th call that a `Fault` concerns fails, once. `LogStory` tells one story:
records of plain, idempotent and transactional producers, markers, new segments and leader epochs, flushes, checkpoints,
expired segments. Each step that is refused is tried again, as clients do, until the log directory takes no more writes
for good. Beside the log it keeps what was acknowledged; `check` holds the two against each other:

- everything that was acknowledged, and is not expired, is there, at its offset;
- what is there beside it was at least sent;
- readers of committed data see all that was committed, and nothing of what was aborted.
"""

from __future__ import annotations

import errno
import os
from enum import Enum
from typing import TYPE_CHECKING, Final

from barnabas.model.clock import ManualClock
from barnabas.model.errors import BarnabasError, StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Record, read_records
from barnabas.storage.files import FileSystem, UnknownState
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, oldest, split, stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

    from barnabas.storage.log import Log

CONFIG: Final = LogConfig(segment_bytes=700, index_interval_bytes=100)
PLAIN, IDEMPOTENT, FIRST, SECOND = -1, 5, 7, 8
"""Producer ids; the last two write transactions."""
TRIES: Final = 4


class Fault(Enum):
    """What goes wrong."""

    NO_ROOM = "the disk is full, after half a write"
    NO_DESCRIPTOR = "too many files are open"
    BAD_DISK = "a write, a rename or a sync fails"
    BAD_SYNC = "a sync finds no room"
    SHORT_WRITE = "half is written, and no error"


class FailingCalls(FileSystem):
    """See the module's docstring; syncs are not waited for."""

    def __init__(self, fault: Fault, calls: int) -> None:
        """With a negative number of calls none fails."""
        self._fault = fault
        self._left = calls
        self._half = False
        self.is_armed = False
        self.hit = False

    def _fails(self, *faults: Fault) -> bool:
        if not self.is_armed or self._fault not in faults or self.hit:
            return False
        self._left -= 1
        self.hit = self._left == -1
        return self.hit

    def _fail(self, number: int, path: str = "") -> None:
        raise OSError(number, os.strerror(number), path)

    def open(self, path: str, *, create: bool = False) -> int:
        """See FileSystem."""
        if self._fails(Fault.NO_DESCRIPTOR):
            self._fail(errno.EMFILE, path)
        if create and not self.exists(path) and self._fails(Fault.NO_ROOM):
            self._fail(errno.ENOSPC, path)
        return super().open(path, create=create)

    def append(self, fd: int, data: Buffer) -> int:
        """See FileSystem."""
        if self._half:
            self._half = False
            self._fail(errno.ENOSPC)
        if self._fails(Fault.BAD_DISK):
            self._fail(errno.EIO)
        if self._fails(Fault.NO_ROOM, Fault.SHORT_WRITE):
            self._half = self._fault is Fault.NO_ROOM
            view = memoryview(data).cast("B")
            return super().append(fd, view[: -(-len(view) // 2)])
        return super().append(fd, data)

    def sync(self, fd: int) -> None:
        """See FileSystem."""
        self._sync()

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        if self._fails(Fault.NO_DESCRIPTOR):
            self._fail(errno.EMFILE, path)
        self._sync()

    def _sync(self) -> None:
        if self._fails(Fault.BAD_DISK):
            raise UnknownState(errno.EIO, "Input/output error")
        if self._fails(Fault.BAD_SYNC):
            raise UnknownState(errno.ENOSPC, "No space left on device")

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        if self._fails(Fault.BAD_DISK):
            self._fail(errno.EIO, new)
        super().rename(old, new)

    def read_file(self, path: str) -> bytes:
        """See FileSystem."""
        if self.exists(path) and self._fails(Fault.NO_DESCRIPTOR):
            self._fail(errno.EMFILE, path)
        return super().read_file(path)


class LogStory:
    """One log, what was done with it, and what was acknowledged."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._clock = ManualClock(NOW)
        self._epoch = 0
        self._sent: set[bytes] = set()
        self._acknowledged: dict[int, bytes] = {}
        self._sequences: dict[int, int] = {}
        self._open: dict[int, set[int]] = {}
        self._aborted: set[int] = set()
        self.start()
        self._manager.create(TP, TOPIC_ID, CONFIG)

    @property
    def log(self) -> Log:
        log = self._manager.get(TP)
        assert log is not None
        return log

    def start(self, files: FileSystem | None = None) -> None:
        """A broker's start."""
        self._manager = StepManager(self._root, files, self._clock).start({TP.topic: CONFIG})

    def stop(self, *, clean: bool) -> None:
        """Its stop, or its sudden end."""
        self._manager.close(clean=clean)

    def run(self, files: FailingCalls) -> None:
        """Go on with these files, from a start to where no more is written."""
        self.start(files)
        files.is_armed = True
        try:
            for step in self._steps():
                self._try(step)
        except StorageFailed:
            assert self._manager.failed_directories

    def _steps(self) -> list[Callable[[], object]]:
        return [
            *(lambda each=each: self._send(each) for each in (PLAIN, IDEMPOTENT, FIRST, SECOND)),
            lambda: self._end(FIRST, ControlType.ABORT),
            lambda: self._send(PLAIN),
            self._flush,
            lambda: self._send(FIRST),
            self._manager.checkpoint,
            self._next_epoch,
            *(lambda each=each: self._send(each) for each in (IDEMPOTENT, PLAIN, FIRST)),
            self._manager.drain,
            lambda: self._end(SECOND, ControlType.ABORT),
            lambda: self._end(FIRST, ControlType.COMMIT),
            lambda: self._send(IDEMPOTENT),
            self._expire,
            lambda: self._send(SECOND),
            self._manager.drain,
            lambda: self._end(SECOND, ControlType.ABORT),
            self._manager.checkpoint,
            *(lambda each=each: self._send(each) for each in (PLAIN, FIRST)),
            self._flush,
            lambda: self._end(FIRST, ControlType.ABORT),
        ]

    def _try(self, step: Callable[[], object]) -> None:
        """A step, again and again like a client, with time for a full disk to be found to have room."""
        for left in reversed(range(TRIES)):
            try:
                step()
                return
            except BarnabasError:
                self.check()
                self._clock.advance(60_000)
                self._manager.try_failed_directories()
                if not left:
                    raise

    def _send(self, producer: int) -> None:
        sequence = self._sequences.get(producer, 0)
        value = b"%d of %d" % (sequence, producer)
        self._sent.add(value)
        records = [Record(0, 0, None, value), Record(1, 0, None, value)]
        if producer == PLAIN:
            batch = build_batch(records, base_timestamp=NOW)
        else:
            batch = build_batch(
                records,
                base_timestamp=NOW,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=producer in (FIRST, SECOND),
            )
        info = self.log.append(batch, self._epoch, NOW)
        assert not info.duplicate
        self._sequences[producer] = sequence + 2
        offsets = {info.base_offset, info.last_offset}
        assert not offsets & self._acknowledged.keys()
        self._acknowledged.update(dict.fromkeys(offsets, value))
        if producer in (FIRST, SECOND):
            self._open.setdefault(producer, set()).update(offsets)
        self.log.high_watermark = self.log.log_end_offset

    def _end(self, producer: int, kind: ControlType) -> None:
        marker = build_marker(EndOfTransaction(kind, 0), timestamp=NOW, producer_id=producer, producer_epoch=0)
        self.log.append(marker, self._epoch, NOW)
        ended = self._open.pop(producer)
        if kind is ControlType.ABORT:
            self._aborted |= ended
        self.log.high_watermark = self.log.log_end_offset

    def _next_epoch(self) -> None:
        self._epoch += 1

    def _flush(self) -> None:
        self.log.flush()

    def _expire(self) -> None:
        if len(self.log.segments) > 2:
            self.log.remove_segments(oldest(self.log, 1), NOW)

    def check(self) -> None:
        """See the module's docstring."""
        log = self.log
        found = {}
        for batch in stored(log):
            found.update(_values(batch))
        wanted = {offset: value for offset, value in self._acknowledged.items() if offset >= log.log_start_offset}
        assert wanted.items() <= found.items()
        assert set(found.values()) <= self._sent
        stable = log.last_stable_offset(log.log_end_offset)
        seen = committed(log, stable)
        assert not seen & self._aborted
        assert {offset for offset in wanted.keys() - self._aborted if offset < stable} <= seen
        assert all(stable <= min(offsets) for offsets in self._open.values())

    def go_on(self) -> None:
        """After a restart producers go on where they were, and a batch that comes twice is known."""
        for producer in (IDEMPOTENT, FIRST, PLAIN):
            self._send(producer)
            self._send(producer)
        for producer in list(self._open):
            self._end(producer, ControlType.ABORT)
        self.check()


def _values(batch: bytes) -> dict[int, bytes]:
    """The records of a batch by their offsets; none for a marker."""
    header = read_header(batch)
    if header.is_control:
        return {}
    records = read_records(batch[HEADER_SIZE:], header.record_count)
    return {header.base_offset + record.offset_delta: record.value or b"" for record in records}


def committed(log: Log, up_to: int) -> set[int]:
    """The offsets of what a reader of committed data is handed."""
    seen: set[int] = set()
    offset = log.log_start_offset
    while offset < up_to:
        found = log.read(offset, 1 << 20, up_to, True, committed=True)
        data = b"".join(part.file.read(part.length, part.position) for part in found.slices)
        aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted)
        skipped: set[int] = set()
        for batch in split(data):
            header = read_header(batch)
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in skipped:
                seen |= _values(batch).keys()
            offset = header.last_offset + 1
    return seen
