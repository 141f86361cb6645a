"""One partition's directory: segments, indexes, epochs, producers."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from barnabas.storage.check.indexes import Batch, OffsetIndex, TimeIndex
from barnabas.storage.check.text import read_checkpoint, read_number, read_text
from barnabas.storage.check.transactions import TransactionsCheck

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from barnabas.storage.check.report import Report

_SEGMENT_FILE: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")
_UNFINISHED: Final = re.compile(r".*\.(cleaned|swap|tmp)")
_OTHER_FILE: Final = re.compile(
    r"leader-epoch-checkpoint|partition\.metadata|barnabas-unlisted"
    r"|.*\.deleted"  # waits for file.delete.delay.ms to pass
    r"|next-\d+\.log\.tmp"  # for the next segment
    r"|quorum-state|\d{20}-\d{10}\.checkpoint"  # of KRaft's metadata log
)
_TOPIC_ID: Final = re.compile(r"topic_id: [A-Za-z0-9_-]{22}")

_BATCH: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM: Final = 21
_LENGTH_BEHIND: Final = 12
_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CHUNK: Final = 1024 * 1024
_MAX_RELATIVE: Final = 2**31 - 1
_LAST_CODEC: Final = 4
_CONTROL: Final = 0x20
_MAX_MARKER: Final = 1024

OFFSETS_TOPIC: Final = "__consumer_offsets"


class _Epochs(NamedTuple):
    """The leader epochs of a partition and the offsets at which they start, both rising."""

    numbers: list[int]
    starts: list[int]

    def at(self, offset: int) -> int | None:
        """The epoch of an offset; None before the first."""
        index = bisect_right(self.starts, offset)
        return self.numbers[index - 1] if index else None


class Extent(NamedTuple):
    """Where the segments of a partition begin and end."""

    base: int
    end: int


class PartitionCheck:
    """One partition's directory.

    `cleaned_to` is how far it was compacted, None if it never was. From offset `unread` on it is read again by the next
    start, which then knows the leader epochs that batches have there; None after a clean stop.
    """

    def __init__(self, path: Path, report: Report, *, cleaned_to: int | None = None, unread: int | None = None) -> None:
        self._path = path
        self._report = report
        self._cleaned_to = cleaned_to
        self._unread = unread
        self._is_offsets = path.absolute().name.startswith(f"{OFFSETS_TOPIC}-")
        self._bases: list[int] = []
        self._files: set[str] = set()
        self._epochs = _Epochs([], [])
        self._producers: dict[int, tuple[int, int]] = {}
        self._last_epoch = -1
        self._transactions = TransactionsCheck(report, unread=unread)

    def check(self) -> Extent:
        """Check everything."""
        self._report.partitions += 1
        self._list_files()
        self._check_metadata()
        self._check_epochs()
        if not self._bases and (self._files or any(self._epochs.starts)):
            self._report.warn(self._path, None, "holds no segment, though it was written to")
        end = 0
        for number, base in enumerate(self._bases):
            following = self._bases[number + 1] if number + 1 < len(self._bases) else None
            if number and base > end:
                self._check_gap(end, base)
            end = self._check_segment(base, following)
        if self._epochs.starts and self._epochs.starts[-1] > end:
            self._report.error(
                self._path / "leader-epoch-checkpoint",
                None,
                f"epoch {self._epochs.numbers[-1]} starts at {self._epochs.starts[-1]}, after the log's end {end}",
            )
        for name in sorted(self._files):
            if name.endswith(".snapshot"):
                self._check_snapshot(self._path / name, end)
        return Extent(self._bases[0] if self._bases else 0, end)

    def _check_gap(self, end: int, base: int) -> None:
        """Between two segments there may be offsets that compaction has removed, and no others.

        A compacted segment is replaced with all of its files, so that where some are left, the log file was lost.
        """
        traces = [name for name in sorted(self._files) if end <= int(name.partition(".")[0]) < base]
        if self._cleaned_to is None or base > self._cleaned_to or traces:
            left = f"; {traces[0]} is left of it" if traces else ""
            self._report.error(
                self._path,
                None,
                f"a segment is missing: offsets {end} to {base - 1}, before {base:020d}.log, are in none{left}",
            )

    def _list_files(self) -> None:
        for entry in sorted(self._path.iterdir()):
            match = _SEGMENT_FILE.fullmatch(entry.name)
            if match:
                self._files.add(entry.name)
                if match[2] == "log":
                    self._bases.append(int(match[1]))
            elif _OTHER_FILE.fullmatch(entry.name):
                continue
            elif _UNFINISHED.fullmatch(entry.name):
                self._report.warn(entry, None, "is left over from work that was not finished")
            else:
                self._report.warn(entry, None, "does not belong here")
        for name in self._files:
            stem, _, kind = name.partition(".")
            if kind not in ("log", "snapshot") and int(stem) not in self._bases:
                self._report.warn(self._path / name, None, "is an index without its segment")

    def _check_metadata(self) -> None:
        path = self._path / "partition.metadata"
        if not path.exists():
            self._report.warn(path, None, "is missing: the partition does not know its topic's id")
            return
        lines = read_text(path).splitlines()
        if len(lines) < 2 or lines[0] != "version: 0" or not _TOPIC_ID.fullmatch(lines[1]):
            what = "does not hold a version and a topic id: a power loss leaves such until a log is synced first"
            self._report.warn(path, None, what)

    def _holds_batches(self) -> bool:
        """Whether there is something to have an epoch: a replica may have made its first file and got nothing yet."""
        return any((self._path / f"{base:020d}.log").stat().st_size for base in self._bases)

    def _check_epochs(self) -> None:
        path = self._path / "leader-epoch-checkpoint"
        if not path.exists():
            if not self._report.in_use and self._holds_batches():
                self._report.warn(path, None, "is missing")
            return
        for row in read_checkpoint(path, 2, self._report):
            epoch, start = read_number(row[0]), read_number(row[1])
            if epoch is None or start is None:
                self._report.error(path, None, f"{' '.join(row)!r} is not an epoch and an offset")
                return
            if self._epochs.numbers and (epoch <= self._epochs.numbers[-1] or start <= self._epochs.starts[-1]):
                self._report.error(path, None, f"epoch {epoch} at {start} does not come after the one before it")
            self._epochs.numbers.append(epoch)
            self._epochs.starts.append(start)

    def _check_segment(self, base: int, following: int | None) -> int:
        """Check one segment and its indexes; returns the offset after its last batch."""
        report = self._report
        report.segments += 1
        path = self._path / f"{base:020d}.log"
        done = following is not None
        index = OffsetIndex(path.with_suffix(".index"), base, report, done=done)
        times = TimeIndex(path.with_suffix(".timeindex"), base, report, done=done)
        end = base
        with path.open("rb") as file:
            for batch in self._batches(file, path, done=done):
                if batch.base_offset < end:
                    report.error(path, batch.position, f"offset {batch.base_offset} follows offset {end - 1}")
                if batch.last_offset - base > _MAX_RELATIVE:
                    report.error(
                        path, batch.position, f"offset {batch.last_offset} is too far from the segment's start"
                    )
                if following is not None and batch.last_offset >= following:
                    report.error(
                        path, batch.position, f"offset {batch.last_offset} reaches into the segment from {following}"
                    )
                self._check_leader_epoch(path, batch)
                index.follow(batch)
                times.follow(batch)
                end = max(end, batch.last_offset + 1)
        index.finish(path.stat().st_size)
        times.finish()
        self._transactions.check(path.with_suffix(".txnindex"), base, end)
        return end

    def _batches(self, file: BinaryIO, path: Path, *, done: bool) -> Iterator[Batch]:
        """Go over the batches of a segment and check what can be told of each alone."""
        report = self._report
        size = path.stat().st_size
        report.size += size
        position = 0
        while position < size:
            head = file.read(_BATCH.size)
            if len(head) < _BATCH.size:
                self._check_tail(file, path, position, head, "no whole batch", done=done)
                return
            fields = _BATCH.unpack(head)
            base_offset, length, leader_epoch, magic, crc, attributes, delta, _, max_timestamp = fields[:9]
            end = position + _LENGTH_BEHIND + length
            if magic != 2 or length < _BATCH.size - _LENGTH_BEHIND or end > size:
                self._check_tail(file, path, position, head, f"magic {magic}, length {length}: no batch", done=done)
                return
            marker = b""
            if attributes & _CONTROL and end - position <= _MAX_MARKER:
                marker = file.read(end - position - _BATCH.size)
                actual = crc32c(head[_CRC_FROM:] + marker)
            else:
                actual = _crc(head[_CRC_FROM:], file, end - position - _BATCH.size)
            if actual != crc:
                report.error(path, position, "the CRC-32C does not match")
            else:
                self._transactions.follow(attributes, fields[9], base_offset, base_offset + delta, marker)
            count = fields[12]
            if delta < 0 or not 0 <= count <= delta + 1:
                report.error(path, position, f"{count} records do not fit offsets 0 to {delta}")
            if base_offset < 0:
                report.error(path, position, f"the base offset is {base_offset}")
            if attributes & 7 > _LAST_CODEC:
                report.error(path, position, f"compression codec {attributes & 7} does not exist")
            self._check_producer(path, position, attributes, fields[9], fields[10], fields[11], delta)
            report.watched(end - position)
            report.batches += 1
            report.records += max(count, 0)
            yield Batch(position, base_offset, base_offset + delta, max_timestamp, leader_epoch)
            position = end

    def _check_tail(self, file: BinaryIO, path: Path, position: int, head: bytes, what: str, *, done: bool) -> None:
        """Report what follows the last batch; zeros at the end of the newest segment are space that was reserved."""
        left = path.stat().st_size - position
        zeros = not done and not any(head)
        while zeros and (chunk := file.read(_CHUNK)):
            zeros = not any(chunk)
        if zeros:
            self._report.warn(path, position, f"{left} zeros follow the last batch")
        else:
            self._report.error(path, position, f"{what}, and {left} bytes are left")

    def _check_producer(
        self, path: Path, position: int, attributes: int, producer: int, epoch: int, sequence: int, delta: int
    ) -> None:
        if producer < 0 or attributes & _CONTROL:
            return
        if self._is_offsets and epoch >= 0 and sequence <= 0:  # a coordinator writes 0 in each; ours once wrote nothing
            self._report.unsequenced += sequence < 0
            return
        if epoch < 0 or sequence < 0:
            self._report.error(path, position, f"producer {producer} has epoch {epoch} and sequence {sequence}")
            return
        last_epoch, last_sequence = self._producers.get(producer, (epoch, -1))
        wrapped = last_sequence - sequence > 2**30
        if epoch < last_epoch:
            self._report.warn(path, position, f"producer {producer} went back from epoch {last_epoch} to {epoch}")
        elif epoch == last_epoch and sequence <= last_sequence and not wrapped:
            self._report.warn(path, position, f"producer {producer} has sequence {sequence} after {last_sequence}")
        self._producers[producer] = (epoch, (sequence + delta) & 0x7FFFFFFF)

    def _check_leader_epoch(self, path: Path, batch: Batch) -> None:
        epoch = batch.leader_epoch
        if epoch < self._last_epoch:
            self._report.error(path, batch.position, f"leader epoch {epoch} follows {self._last_epoch}")
        is_new = epoch > self._last_epoch
        self._last_epoch = max(epoch, self._last_epoch)
        known = self._epochs.at(batch.base_offset)
        if known is None or known == epoch:
            return
        if self._unread is not None and batch.base_offset >= self._unread and epoch > self._epochs.numbers[-1]:
            if is_new:
                self._report.warn(
                    self._path / "leader-epoch-checkpoint",
                    None,
                    f"does not have epoch {epoch} yet, which starts at {batch.base_offset}",
                )
        else:
            self._report.error(
                path, batch.position, f"leader epoch {epoch} stands where leader-epoch-checkpoint has {known}"
            )

    def _check_snapshot(self, path: Path, end: int) -> None:
        offset = int(path.stem)
        if offset > end:
            self._report.warn(path, None, f"speaks of offsets up to {offset}, the log ends at {end}")
        data = path.read_bytes()
        if len(data) < _SNAPSHOT_HEAD.size:
            self._report.error(path, None, f"{len(data)} bytes are too few for a snapshot")
            return
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != 1:
            self._report.error(path, 0, f"has version {version}")
        elif crc32c(data[6:]) != crc:
            self._report.error(path, 2, "the CRC-32C does not match")
        elif len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
            self._report.error(path, 6, f"{count} producers do not take {len(data)} bytes")
        else:
            seen = set()
            for producer, _, _, last_offset, *_ in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
                if producer in seen or last_offset >= offset:
                    self._report.error(path, None, f"producer {producer}, last offset {last_offset}, does not fit")
                seen.add(producer)


def _crc(start: bytes, file: BinaryIO, size: int) -> int:
    """The CRC of `start` and the file's next `size` bytes, read in pieces."""
    crc = crc32c(start)
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        crc = crc32c(chunk, crc)
        size -= len(chunk)
    return crc
