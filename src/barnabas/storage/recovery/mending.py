"""Making data directories right while no broker has them: the engine of `barnabas log mend`.

Two things are mended. Batches of `__consumer_offsets` that are part of a transaction have a sequence number in Apache
Kafka, always 0; earlier versions of Barnabas wrote none, and Kafka's cleaner gives such a partition up. And a log whose
end is missing (see recovery.py) can be used again when its owner accepts the loss: the offsets that are gone are held
by empty batches, as compaction leaves them, so that nobody is given them again.

A file is replaced as a whole, so a crash leaves the old one or the new one, and mending can be done again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.clock import ManualClock
from barnabas.model.errors import CorruptMessage, StartupError
from barnabas.model.ids import TopicPartition
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.model.log_config import NEVER, LogConfig
from barnabas.protocol.records.batch import (
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)
from barnabas.protocol.records.builder import seal
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import CLEANED, LOG_STARTS, RECOVERY_POINTS, DamagedCheckpoint
from barnabas.storage.directory import LogDirectory
from barnabas.storage.file_pool import FilePool
from barnabas.storage.files import FileSystem
from barnabas.storage.log.epochs import LeaderEpochs
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.producers.state import ProducerStates
from barnabas.storage.recovery.leftovers import clear_leftovers
from barnabas.storage.recovery.loading import Hole, find_hole
from barnabas.storage.segments.indexes import MAX_RELATIVE_OFFSET
from barnabas.storage.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PARTITION: Final = re.compile(r"(.+)-(\d+)")
_OPEN_FILES: Final = 64


class Mended(NamedTuple):
    """Something that was made right, or, unless it is `done`, left alone."""

    partition: TopicPartition
    what: str
    done: bool = True
    goes_on_at: int | None = None
    """Where a log would go on if its loss was accepted."""


def mend(path: Path, *, accept_loss: bool, files: FileSystem | None = None) -> Iterator[Mended]:
    """Mend the partitions of one log directory, and tell of each. Raises StartupError when a broker has it."""
    if (path / checkpoints.PARTITION_METADATA).exists():
        raise StartupError(f"{path} is a partition's directory; name the data directory, {path.absolute().parent}")
    pool = FilePool(files or FileSystem(), _OPEN_FILES)
    directory = LogDirectory(
        str(path.absolute()),
        pool,
        ManualClock(0),
        producer_expiration_ms=NEVER,
        background=lambda work: work(),
        lower_checkpoints=lambda log: None,
        list_in_checkpoints=lambda log: None,
    )
    directory.prepare()
    try:
        yield from _Mending(directory, accept_loss).all()
    finally:
        pool.close_idle()
        directory.unlock()


class _Mending:
    def __init__(self, directory: LogDirectory, accept_loss: bool) -> None:
        self._directory = directory
        self._files = directory.files
        self._accept_loss = accept_loss
        self._synced_to = directory.read_checkpoint(RECOVERY_POINTS)
        """How far logs were on disk: what is missing after that, the next start finds by itself."""
        self._starts = directory.read_checkpoint(LOG_STARTS)
        self._cleaned = directory.read_checkpoint(CLEANED)

    def all(self) -> Iterator[Mended]:
        for name in sorted(self._files.subdirectories(self._directory.path)):
            if (match := _PARTITION.fullmatch(name)) is not None:
                tp = TopicPartition(match[1], int(match[2]))
                if tp.topic == CONSUMER_OFFSETS or tp in self._synced_to:
                    yield from self._mend(tp, f"{self._directory.path}/{name}")

    def _mend(self, tp: TopicPartition, path: str) -> Iterator[Mended]:
        sizes, snapshots = clear_leftovers(self._directory, path)
        segments = [
            Segment(self._directory.pool, path, base, sizes[base], LogConfig(), self._directory.clock.now_ms())
            for base in sorted(sizes)
        ]
        if tp.topic == CONSUMER_OFFSETS:
            batches = sum(self._give_sequences(segment) for segment in segments)
            noted = sum(self._correct_snapshot(Snapshots(self._files, path).path(offset)) for offset in snapshots)
            if batches or noted:
                self._files.sync_dir(path)
                yield Mended(tp, f"{batches} batches and {noted} snapshots have a sequence number now")
        synced_to, start, cleaned_to = (each.get(tp, 0) for each in (self._synced_to, self._starts, self._cleaned))
        hole = find_hole(segments, start, synced_to, cleaned_to)
        if hole is not None:
            lost = f"offsets {hole.tail.offset} to {hole.end_offset - 1}"
            goes_on = f"the log goes on at {hole.end_offset}"
            if not self._accept_loss:
                yield Mended(tp, f"{lost} are missing", done=False, goes_on_at=hole.end_offset)
                return
            self._give_up(path, hole)
            yield Mended(tp, f"{lost} are given up: {goes_on}")

    # Sequence numbers

    def _give_sequences(self, segment: Segment) -> int:
        """Write a segment anew if batches lack their sequence number; returns how many did."""
        count = sum(header.lacks_sequence for _, header in segment.headers(0, segment.size))
        if count:
            modified_ms = self._files.modified_ms(segment.path)
            temporary = f"{segment.path}.tmp"
            self._files.remove(temporary)
            fd = self._files.open(temporary, create=True)
            try:
                end = 0
                for position, header in segment.headers(0, segment.size):
                    self._files.append_all(fd, _with_sequence(segment, position, header))
                    end = position + header.size
                if end < segment.size:
                    self._files.append_all(fd, segment.file.read(segment.size - end, end))
                self._files.sync(fd)
            finally:
                self._files.close(fd)
            self._files.set_modified_ms(temporary, modified_ms)
            segment.file.close()
            self._files.rename(temporary, segment.path)
        return count

    def _correct_snapshot(self, path: str) -> bool:
        """The producers of a snapshot have the sequence numbers that their batches have now."""
        try:
            states = ProducerStates.decode(self._files.read_file(path), 0)
        except CorruptMessage:
            return False  # the next start removes it
        if not states.give_sequences():
            return False
        self._files.write_file(path, states.encode(), sync=True)
        return True

    # What is lost

    def _give_up(self, path: str, hole: Hole) -> None:
        """Let a log go on behind a hole."""
        last = hole.segment
        if last is None or hole.end_offset - 1 - last.base_offset > MAX_RELATIVE_OFFSET:
            last = Segment.begin(self._directory.pool, path, hole.end_offset, LogConfig(), 0)
            last.make_file()
        else:
            last.cut(hole.tail.position)
            fd = last.file.acquire()
            try:
                for batch in self._empty_batches(path, hole.tail.offset, hole.end_offset):
                    self._files.append_all(fd, batch)
                self._files.sync(fd)
            finally:
                last.file.release()
                last.file.close()
            for index in (last.offset_index, last.time_index):  # the next start makes them anew
                index.file.close()
                self._files.remove(index.file.path)
        self._files.sync_dir(path)

    def _empty_batches(self, path: str, offset: int, end: int) -> Iterator[bytes]:
        """Batches without records for the offsets from `offset` to before `end`, one for each leader epoch."""
        try:
            epochs = LeaderEpochs(checkpoints.read_epochs(self._files, path))
        except DamagedCheckpoint as error:
            raise StartupError(f"{error}; start the broker once, which makes it anew, stop it and try again") from None
        starts = [start for _, start in epochs.entries if offset < start < end]
        for first, after in zip([offset, *starts], [*starts, end], strict=True):
            yield seal(
                BatchHeader(
                    base_offset=first,
                    batch_length=0,
                    leader_epoch=max(epochs.epoch_at(first), 0),
                    magic=MAGIC,
                    crc=0,
                    attributes=0,
                    last_offset_delta=after - 1 - first,
                    base_timestamp=NO_TIMESTAMP,
                    max_timestamp=NO_TIMESTAMP,
                    producer_id=NO_PRODUCER_ID,
                    producer_epoch=NO_PRODUCER_EPOCH,
                    base_sequence=NO_SEQUENCE,
                    record_count=0,
                ),
                b"",
            )


def _with_sequence(segment: Segment, position: int, header: BatchHeader) -> bytes:
    data = segment.file.read(header.size, position)
    if not header.lacks_sequence:
        return data
    if crc32c(data[CRC_START:]) != header.crc:
        raise CorruptMessage(f"the CRC of the batch at byte {position} of {segment.path} is wrong; nothing was changed")
    return seal(header._replace(base_sequence=0), data[HEADER_SIZE:])
