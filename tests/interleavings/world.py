"""One log on which two operations meet, and what must be true of it whatever their order was.

The log holds plain, idempotent and transactional records with keys, several segments, leader epochs, aborted and
committed transactions. It is written once and copied for every run. Few descriptors may be open, so the pool closes
files all the time. The rules:

- an answer to a reader holds batches that the log had, in order and without a gap; a reader of committed records sees
  all that were committed and nothing that was aborted;
- what was acknowledged is there in the end, apart from what was to go, and the checker finds nothing, also after a
  restart;
- nobody waits for ever, and no descriptor or lease is left over.
"""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import OffsetOutOfRange, UnknownTopicOrPartition
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.check import check
from barnabas.storage.checkpoints import CLEANED, write_offsets
from barnabas.storage.cleaner.cleaner import clean
from barnabas.storage.cleaner.plan import examine
from barnabas.storage.cleaner.process import InThisProcess
from barnabas.storage.cleaner.worker.cleaning import CleaningAborted
from barnabas.storage.log.log import Log
from tests.support.committed import committed_offsets
from tests.support.compaction import LIMITS, compacted, keyed, records_of
from tests.support.logs import NOW, TOPIC_ID, TP, oldest, split, store, stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.log.log import ReadResult
    from barnabas.storage.segments.txn_index import AbortedTransaction
    from tests.interleavings.stepped import SteppedFiles

CONFIG: Final = compacted(segment_bytes=600, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1)
OPEN_FILES: Final = 8
FIRST, SECOND = 7, 8
"""Producers of transactions."""


class Written(NamedTuple):
    """What the log holds at first."""

    values: dict[int, tuple[bytes | None, bytes | None]]
    """Keys and values of the records by offset."""
    aborted: frozenset[int]
    """Offsets of records that were aborted."""
    superseded: frozenset[int]
    """Offsets of records whose key has a later value that was committed."""
    end_offset: int


class Answer(NamedTuple):
    """What a reader was sent."""

    offset: int
    batches: list[bytes]
    aborted: Sequence[AbortedTransaction] | None
    """The aborted transactions that it was told of; None if it did not ask."""


class Unanswered(Exception):
    """The connection of a reader was closed: what it was to be sent is gone."""


def write(root: Path) -> Written:
    """Make the log that every run begins with, and close it cleanly."""
    home = store(root)
    log = Log.create(TP, home, f"{root}/{TP}", CONFIG, TOPIC_ID)
    aborted: set[int] = set()
    sequences = {FIRST: 0, SECOND: 0}

    def send(producer: int, number: int, epoch: int) -> set[int]:
        pairs = [(b"k%d" % (number % 3), b"%d" % number), (b"only %d" % number, b"x" * 40)]
        batch = keyed(pairs)
        if producer >= 0:
            sequence = sequences[producer]
            sequences[producer] = sequence + 2
            batch = keyed(pairs, producer_id=producer, producer_epoch=0, sequence=sequence, transactional=True)
        info = log.append(batch, epoch, NOW)
        return {info.base_offset, info.last_offset}

    def end(producer: int, kind: ControlType, epoch: int) -> None:
        marker = build_marker(EndOfTransaction(kind, 0), timestamp=NOW, producer_id=producer, producer_epoch=0)
        log.append(marker, epoch, NOW)

    for turn in range(3):
        send(-1, turn, turn)
        aborted |= send(FIRST, 10 + turn, turn)
        send(SECOND, 20 + turn, turn)
        aborted |= send(FIRST, 30 + turn, turn)
        end(FIRST, ControlType.ABORT, turn)
        end(SECOND, ControlType.COMMIT, turn)
    log.high_watermark = log.log_end_offset
    batches = stored(log)
    values = {record.offset: (record.key, record.value) for record in records_of(batches)}
    newest = {key: offset for offset, (key, _) in values.items() if offset not in aborted}
    written = Written(
        values,
        frozenset(aborted),
        frozenset(offset for offset, (key, _) in values.items() if newest.get(key, offset) > offset),
        log.log_end_offset,
    )
    assert len(log.segments) >= 4
    log.close()
    return written


class Template:
    """The files of a directory, read once: the first thing that every run does is to write them anew."""

    def __init__(self, root: Path) -> None:
        self._folders = [path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_dir()]
        self._files = {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}

    def write(self, root: Path) -> None:
        """Make a directory that holds the same."""
        root.mkdir()
        for folder in self._folders:
            (root / folder).mkdir()
        for name, data in self._files.items():
            (root / name).write_bytes(data)


class World:
    """A copy of the log, with operations that run in a thread of their own each."""

    def __init__(
        self, root: Path, template: Template, written: Written, files: SteppedFiles, judged: set[bytes]
    ) -> None:
        template.write(root)
        self._root = root
        self._files = files
        self._judged = judged
        """What earlier runs have left behind, and was found to be right."""
        self._sizes = {file.stat().st_ino: file.stat().st_size for file in root.rglob("*.log")}
        """Of the segments that were there at first, by inode."""
        self.written = written
        self.home = store(root, files, open_files=OPEN_FILES)
        end = written.end_offset
        self.log = Log(TP, self.home, f"{root}/{TP}", CONFIG, log_start_offset=0, recovery_point=end)
        self.log.high_watermark = end
        self.log.open()
        self._at_first = self.log.segments
        self.sent: set[int] = set()
        """Offsets of what was appended since."""
        self.cut_at = end
        """Where the log is cut."""
        self.may_start_at = 0
        """Where the log may begin, because of what was to go."""
        self.is_cleaned = self.is_closed = False
        self.answers: list[Answer] = []

    @property
    def _is_shrinking(self) -> bool:
        return self.cut_at < self.written.end_offset or self.may_start_at > 0

    # What runs in threads

    def read(self, offset: int, *, committed: bool = False) -> None:
        """Fetch twice as a consumer does: find the bytes, hold the file, send them."""
        for _ in range(2):
            end = self.log.log_end_offset
            try:
                found = self.log.read(offset, 1 << 20, end, True, committed=committed)
            except OffsetOutOfRange:
                assert offset < self.may_start_at or offset > self.cut_at, f"{offset} is out of range"
                return
            except UnknownTopicOrPartition:
                assert self.is_closed
                return
            if not found.slices:
                return
            try:
                data = self._sent(found)
            except (Unanswered, FileNotFoundError):
                assert self.is_closed or self._is_shrinking, "an answer is gone"
                return
            batches = split(data)
            assert sum(map(len, batches)) == len(data), "half a batch"
            self.answers.append(Answer(offset, batches, found.aborted if committed else None))
            offset = read_header(batches[-1]).last_offset + 1

    def _sent(self, found: ReadResult) -> bytes:
        parts = []
        for part in found.slices:
            if not part.file.lease():
                return b""
            try:
                if part.file.revoked:
                    raise Unanswered
                data = self.home.files.read(part.file.fd, part.length, part.position)
                if len(data) < part.length or part.file.revoked:
                    raise Unanswered
                parts.append(data)
            finally:
                part.file.release()
        return b"".join(parts)

    def find_time(self, timestamp: int) -> None:
        """ListOffsets by time: the first record, since all have the same time or a later one."""
        try:
            found = self.log.offset_for_time(timestamp, up_to=self.log.log_end_offset)
        except UnknownTopicOrPartition:
            assert self.is_closed
            return
        if found is None:
            assert self.cut_at == 0
            return
        assert found.offset <= max(self.may_start_at, 1) or self.is_cleaned, found

    def append(self, count: int = 6) -> None:
        """As the leader does, beyond the end of the active segment."""
        for _ in range(count):
            batch = keyed([(b"new %d" % self.log.log_end_offset, b"y" * 60)])
            info = self.log.append(batch, 3, NOW)
            self.log.high_watermark = self.log.log_end_offset
            self.sent.add(info.base_offset)

    def make_next_file(self) -> None:
        """Make the file of the next segment ahead of time."""
        self.log.appender.make_next_file()

    def flush(self) -> None:
        """As the flush queue does."""
        before = self.log.log_end_offset
        self.log.flush()
        assert self.is_closed or self.log.recovery_point >= min(before, self.cut_at)

    def expire(self, count: int = 2) -> None:
        """Retention: remove the oldest segments."""
        bases = [segment.base_offset for segment in self._at_first]
        self.may_start_at = max(self.may_start_at, bases[count])
        with self.log.upkeep:
            try:
                self.log.remove_segments(oldest(self.log, count), NOW)
            except UnknownTopicOrPartition:
                assert self.is_closed

    def clean(self) -> None:
        """Compaction."""
        self.is_cleaned = True
        try:
            with self.log.upkeep:
                todo = examine(self.log, NOW)
                if todo.is_due:
                    clean(todo, self.home, InThisProcess(self.home.files), LIMITS, NOW)
        except (UnknownTopicOrPartition, CleaningAborted):
            assert self.is_closed or self._is_shrinking
        except FileNotFoundError:  # while its directory gets another name; the cleaner's manager leaves the log to that
            assert self.is_closed

    def truncate(self, offset: int) -> None:
        """As a follower does."""
        self.cut_at = min(self.cut_at, offset)
        try:
            self.log.truncate_to(offset)
        except UnknownTopicOrPartition:
            assert self.is_closed

    def start_anew(self, offset: int) -> None:
        """As a follower does that is too far behind."""
        self.cut_at, self.may_start_at = min(self.cut_at, 0), max(self.may_start_at, offset)
        self.log.truncate_fully(offset)

    def begin_within(self) -> None:
        """As a follower does whose leader's log starts, where this one ends, within a batch."""
        end = self.written.end_offset
        self.cut_at, self.may_start_at = min(self.cut_at, 0), max(self.may_start_at, end)
        batch = keyed([(b"within %d" % number, b"z" * 60) for number in range(4)])
        try:
            self.log.start_within((end - 2).to_bytes(8, "big") + batch[8:], now_ms=NOW)
        except UnknownTopicOrPartition:
            assert self.is_closed
        if self.log.log_end_offset == end + 2:
            self.sent |= set(range(end - 2, end + 2))
        elif self.log.log_end_offset == end:  # it was deleted before
            self.cut_at = end

    def close(self) -> None:
        """A clean stop."""
        self.is_closed = True
        self.log.close()

    def delete(self) -> None:
        """The topic is deleted."""
        self.is_closed = True
        self.log.mark_deleted(f"{self._root}/{TP}.0123456789abcdef-delete")

    # What must be true

    def judge(self) -> None:
        """Hold the answers, and what is left, against the rules."""
        for answer in self.answers:
            self._judge_answer(answer)
        if self.log.directory.exists():
            self._judge_rest()

    def _judge_answer(self, answer: Answer) -> None:
        records = records_of(answer.batches)
        for record in records:
            known = self.written.values.get(record.offset)
            assert known == (record.key, record.value) or record.offset in self.sent, f"{record} is not {known}"
        last = read_header(answer.batches[-1]).last_offset
        seen = {record.offset for record in records}
        wanted = {offset for offset in self.written.values if answer.offset <= offset <= last} - self._removable()
        assert wanted <= seen, f"{sorted(wanted - seen)} are missing"
        if answer.aborted is not None:
            visible = committed_offsets(answer.batches, answer.aborted)
            assert not visible & self.written.aborted, f"{sorted(visible & self.written.aborted)} were aborted"
            assert wanted - self.written.aborted <= visible, "committed records are taken for aborted"

    def _removable(self) -> frozenset[int]:
        return self.written.superseded | self.written.aborted if self.is_cleaned else frozenset()

    def _judge_rest(self) -> None:
        log = self.log
        if not self.is_closed:
            self._judge_disk(log)
            log.flush()
            self._judge_disk(log)
            self._judge_log(log)
            log.close()
        assert self.home.pool.open_count == 0, f"{self.home.pool.open_count} descriptors are open"
        assert log.recovery_point == log.log_end_offset
        left = self._left_behind(log)
        if left not in self._judged:
            self._judge_restart(log)
            self._judged.add(left)

    def _left_behind(self, log: Log) -> bytes:
        """All that a restart finds, in short: many orders of a pair leave the same behind."""
        known = (log.log_start_offset, log.log_end_offset, log.cleaned_to, self.cut_at, self.may_start_at)
        told = hashlib.blake2b(repr((known, sorted(self.sent), self.is_cleaned, self.is_closed, log.path)).encode())
        for folder, folders, names in os.walk(self._root):
            folders.sort()
            for name in sorted(names):
                path = f"{folder}/{name}"
                data = Path(path).read_bytes()
                told.update(f"{path} {len(data)} ".encode() + data)
        return told.digest()

    def _judge_restart(self, log: Log) -> None:
        again = Log(
            TP,
            store(self._root),
            log.path,
            CONFIG,
            log_start_offset=log.log_start_offset,
            recovery_point=log.recovery_point,
        )
        again.cleaned_to = log.cleaned_to
        self._judge_log(again)
        again.close()
        if again.cleaned_to is not None:
            write_offsets(again.store.files, f"{self._root}/{CLEANED}", {TP: again.cleaned_to})
        assert not check(again.directory).errors, check(again.directory).errors

    def _judge_disk(self, log: Log) -> None:
        """Segments before the recovery point are on disk as they are."""
        for segment, following in pairwise(log.segments):
            file = Path(segment.path).stat()
            on_disk = self._files.synced.get(file.st_ino, self._sizes.get(file.st_ino, 0))
            assert following.base_offset > log.recovery_point or on_disk >= segment.size, f"{segment} is not on disk"

    def _judge_log(self, log: Log) -> None:
        assert (log.cleaned_to or 0) <= log.log_end_offset
        batches = stored(log)
        seen = {record.offset: (record.key, record.value) for record in records_of(batches)}
        assert log.log_start_offset <= self.may_start_at
        wanted = {
            offset: pair
            for offset, pair in self.written.values.items()
            if log.log_start_offset <= offset < self.cut_at and offset not in self._removable()
        }
        assert wanted.items() <= seen.items(), f"{sorted(wanted.keys() - seen.keys())} are lost"
        beyond = {offset for offset in seen if offset >= self.cut_at}
        assert beyond == self.sent, f"{sorted(beyond)} are there, {sorted(self.sent)} were sent"
