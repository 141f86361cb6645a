"""Bringing a log from its files into memory.

After a clean stop nothing is read again but the ends. After any other, the segments from the recovery point on are read
batch by batch, and the CRC of each is checked: the first bad byte ends the log. What comes after it is removed, indexes
and producer state are rebuilt, and a warning says what was cut. A log is always a prefix of what was written: a segment
that does not begin where the one before it ends (its tail was lost with the power) is cut, too, except where Kafka's
cleaner has been: it leaves gaps between segments, and ours does not.

Before any of that, leftovers are dealt with: files being deleted or cleaned when the process ended are removed, and
finished replacements (`.swap`) are put in place.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import CorruptMessage, InvalidRecord, StartupError
from barnabas.protocol.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.control import ControlType, control_type, read_marker
from barnabas.protocol.records.records import read_records
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import DamagedCheckpoint
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.producer_state import ProducerStates, Snapshots
from barnabas.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
    Timestamped,
    file_name,
)
from barnabas.storage.segments import SWAP_SUFFIX, segment_number
from barnabas.storage.txn_index import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.model.log_config import LogConfig
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.producer_state import CompletedTransaction
    from barnabas.storage.txn_index import TransactionIndex

logger = logging.getLogger(__name__)

_CLEANED: Final = ".cleaned"
_TEMPORARY: Final = ".tmp"
_DIGITS: Final = 20
_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class LoadedLog:
    """What was found on disk."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: Snapshots
    ended: list[CompletedTransaction]
    """The transactions whose markers are not known to be committed, in the order of their markers."""


def load(
    directory: LogDirectory,
    path: str,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    high_watermark: int,
    cleaned_to: int = 0,
    clean: bool,
) -> LoadedLog:
    """Load the log in `path`; unless the stop was clean, recover it first.

    Between segments that begin at offset `cleaned_to` or before, there may be gaps.
    """
    files = directory.files
    sizes, snapshot_offsets = _clear_leftovers(directory, path)
    now_ms = directory.clock.now_ms()
    segments = [Segment(directory.pool, path, base, sizes[base], config, now_ms) for base in sorted(sizes)]
    snapshots = Snapshots(files, path, snapshot_offsets)
    epochs = _load_epochs(directory, path, segments)
    if clean and segments:
        try:
            _ensure_indexes(segments[-1])
            segments[-1].next_offset()
        except CorruptMessage as error:
            logger.warning("recovering %s although the last stop was clean: %s", path, error)
            clean, recovery_point = False, segments[-1].base_offset

    producers = None
    flushed = len(segments) if clean else max(segment_number(segments, recovery_point), 0)
    for segment in segments[:flushed]:
        _ensure_indexes(segment)
    unsynced_indexes = None
    if 0 < flushed < len(segments) and segments[flushed].base_offset == recovery_point:
        unsynced_indexes = segments[flushed - 1]
        _repair_indexes(unsynced_indexes)
    if flushed < len(segments):
        producers = _recover(directory, path, segments, flushed, snapshots, epochs, cleaned_to)
    end_offset = segments[-1].next_offset() if segments else log_start_offset
    if end_offset < log_start_offset:
        logger.warning("removed all segments of %s: they end before the log start offset %d", path, log_start_offset)
        for segment in segments:
            _remove(directory, segment, snapshots)
        segments, end_offset, producers = [], log_start_offset, None
    if not segments:
        segments = [Segment.begin(directory.pool, path, end_offset, config, now_ms)]
        if end_offset > 0:  # only the file's name keeps the offset
            segments[0].make_file()
        epochs.clear()
        snapshots.remove_after(-1)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    recovery_point = end_offset if clean else min(recovery_point, end_offset)
    for segment, following in pairwise(segments):
        segment.sealed = True
        segment.synced = following.base_offset <= recovery_point and segment is not unsynced_indexes
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    if epochs.changes:
        checkpoints.write_epochs(files, path, epochs.entries, sync=True)
        epochs.changes = 0
    snapshots.remove_strays(segment.base_offset for segment in segments)
    if producers is None:
        if clean and not snapshots.offsets:
            producers = ProducerStates(end_offset)
        else:
            producers = load_producers(segments, snapshots, segments[0].base_offset, end_offset)
    committed = max(high_watermark, log_start_offset)
    ended = ended_after(segments, snapshots, committed, end_offset) if producers.have_markers else []
    producers.expire(now_ms - directory.producer_expiration_ms)
    return LoadedLog(segments, log_start_offset, end_offset, recovery_point, epochs, producers, snapshots, ended)


def load_producers(
    segments: Sequence[Segment], snapshots: Snapshots, first_offset: int, end_offset: int
) -> ProducerStates:
    """The producer state at `end_offset`: from the newest snapshot before it, and the batches since.

    `segments` begin at `first_offset`. A snapshot from before that is of no use: what came after it is gone in part.
    """
    states = snapshots.load(end_offset)
    if states is None or states.end_offset < first_offset:
        states = ProducerStates(first_offset)
    _replay_up_to(states, segments, end_offset)
    return states


def ended_after(
    segments: Sequence[Segment], snapshots: Snapshots, offset: int, end_offset: int
) -> list[CompletedTransaction]:
    """The transactions that are ended by markers from `offset` on.

    Where they begin is known by the producer state at `offset`, which is made only if there are markers.
    """
    if not any(header.is_control for _, _, header in _batches(segments, offset, end_offset)):
        return []
    states = load_producers(segments, snapshots, segments[0].base_offset, offset)
    return _replay_up_to(states, segments, end_offset)


def _replay_up_to(states: ProducerStates, segments: Sequence[Segment], end_offset: int) -> list[CompletedTransaction]:
    """Bring the producer state to `end_offset`; returns the transactions that ended on the way."""
    ended = []
    for segment, position, header in _batches(segments, states.end_offset, end_offset):
        payload = b""
        if header.is_control:
            payload = segment.file.read(header.size - HEADER_SIZE, position + HEADER_SIZE)
        completed = replay(states, header, payload, None)
        if completed is not None:
            ended.append(completed)
    states.end_offset = end_offset
    return ended


def _batches(segments: Sequence[Segment], offset: int, end_offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """The batches from the one that holds `offset` on that begin before `end_offset`, with their positions."""
    if offset >= end_offset:
        return
    for segment in segments[max(segment_number(segments, offset), 0) :]:
        if segment.base_offset >= end_offset:
            return
        found = segment.locate(max(offset, segment.base_offset), segment.size)
        if found is None:
            continue
        for position, header in segment.headers(found.position, segment.size):
            if header.base_offset >= end_offset:
                return
            yield segment, position, header


def replay(
    states: ProducerStates, header: BatchHeader, payload: bytes, txn_index: TransactionIndex | None
) -> CompletedTransaction | None:
    """Note a batch of the log in the producer state; `payload` is only looked at in control batches.

    Returns the transaction that the batch ends, if it does.
    """
    ended = None
    base_offset, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
    if producer_id >= 0:
        if attributes & CONTROL:
            ended = _replay_control(states, header, payload, txn_index)
        else:
            transactional = bool(attributes & TRANSACTIONAL)
            states.record(producer_id, epoch, sequence, base_offset, delta, timestamp, transactional)
    states.end_offset = base_offset + delta + 1
    return ended


def _replay_control(
    states: ProducerStates, header: BatchHeader, payload: bytes, txn_index: TransactionIndex | None
) -> CompletedTransaction | None:
    if header.record_count == 0:
        return None
    record = next(read_records(payload, header.record_count))
    if control_type(record.key) not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    ended = states.end_transaction(header, read_marker(record))
    if ended is not None and ended.aborted and txn_index is not None:
        stable = states.first_open_transaction()
        stable = ended.last_offset + 1 if stable is None else stable
        txn_index.append(AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable))
    return ended


def _load_epochs(directory: LogDirectory, path: str, segments: Sequence[Segment]) -> LeaderEpochs:
    try:
        return LeaderEpochs(checkpoints.read_epochs(directory.files, path))
    except DamagedCheckpoint as error:
        logger.warning("rebuilding the leader epochs of %s from its batches: %s", path, error)
    epochs = LeaderEpochs()
    for segment in segments:
        for _, header in segment.headers(0, segment.size):
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
    return epochs


def _clear_leftovers(directory: LogDirectory, path: str) -> tuple[dict[int, dict[str, int]], set[int]]:
    """Remove what a crash left half-done.

    Returns the lengths of the segments' files, by base offset and suffix, and the offsets of the snapshots.
    """
    files = directory.files
    found = {entry.name: entry.size for entry in files.entries(path) if not entry.is_dir}
    _finish_swaps(directory, path, found)
    sizes: dict[int, dict[str, int]] = {}
    snapshots: set[int] = set()
    for name, size in found.items():
        digits, suffix = name[:_DIGITS], name[_DIGITS:]
        if not (len(digits) == _DIGITS and digits.isdecimal()):
            if name.endswith(_TEMPORARY):
                files.remove(f"{path}/{name}")
        elif suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            sizes.setdefault(int(digits), {})[suffix] = size
        elif suffix == SNAPSHOT_SUFFIX:
            snapshots.add(int(digits))
        elif suffix.endswith((DELETED_SUFFIX, _TEMPORARY)):
            files.remove(f"{path}/{name}")
    for base in [base for base, of_segment in sizes.items() if LOG_SUFFIX not in of_segment]:
        for suffix in sizes.pop(base):
            logger.warning("removed %s/%s: it has no log file", path, file_name(base, suffix))
            files.remove(f"{path}/{file_name(base, suffix)}")
    return sizes, snapshots


def _finish_swaps(directory: LogDirectory, path: str, found: dict[str, int]) -> None:
    """Put finished replacements of segments (`.swap`) in place, drop unfinished ones (`.cleaned`)."""
    files = directory.files
    cleaned = [name for name in found if name.endswith(_CLEANED)]
    first_cleaned = min((int(name[:_DIGITS]) for name in cleaned), default=None)
    for name in cleaned:
        files.remove(f"{path}/{name}")
        del found[name]
    swaps = [name for name in found if name.endswith(SWAP_SUFFIX)]
    if first_cleaned is not None:
        for name in [name for name in swaps if int(name[:_DIGITS]) >= first_cleaned]:
            files.remove(f"{path}/{name}")
            swaps.remove(name)
            del found[name]
    for name in [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]:
        first = int(name[:_DIGITS])
        end = _end_of_file(directory, f"{path}/{name}", first)
        for other in [other for other in found if other[:_DIGITS].isdecimal() and not other.endswith(SWAP_SUFFIX)]:
            if first <= int(other[:_DIGITS]) < end:
                files.remove(f"{path}/{other}")
                del found[other]
    for name in swaps:
        final = name.removesuffix(SWAP_SUFFIX)
        files.rename(f"{path}/{name}", f"{path}/{final}")
        found[final] = found.pop(name)
        logger.info("put %s/%s in place of the segments it was made from", path, final)


def _end_of_file(directory: LogDirectory, path: str, base_offset: int) -> int:
    """The offset after the last batch of a log file that has no index."""
    handle = directory.pool.handle(path)
    position, end = 0, base_offset
    try:
        while len(head := handle.read(HEADER_SIZE, position)) == HEADER_SIZE:
            header = BatchHeader._make(HEADER.unpack(head))
            if header.size < HEADER_SIZE:
                raise CorruptMessage(f"{path} has no batch at byte {position}; remove it, and the old segments stay")
            end = header.last_offset + 1
            position += header.size
    finally:
        handle.close()
    return end


def _ensure_indexes(segment: Segment) -> None:
    """Rebuild the indexes of a segment where a file is missing or cannot be an index."""
    if segment.size > 0 and (segment.offset_index.damaged or segment.time_index.damaged):
        _rebuild_indexes(segment)


def _repair_indexes(segment: Segment) -> None:
    """Make good what may be lost of the indexes of a segment that ended at the recovery point.

    Its batches were synced while it was still active. It was sealed after that, perhaps just before the crash.
    """
    if segment.offset_index.is_sound() and segment.time_index.is_sound():
        segment.complete_time_index()
    else:
        _rebuild_indexes(segment)


def _rebuild_indexes(segment: Segment) -> None:
    logger.warning("rebuilding the indexes of %s: they are missing or damaged", segment.path)
    builder = _IndexBuilder(segment)
    for position, header in segment.headers(0, segment.size):
        builder.add(position, header)
    builder.finish()


class _IndexBuilder:
    """Makes the indexes of a segment anew, as writing it would have."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._largest = Timestamped(-1, segment.base_offset)
        self._last_entry = 0
        segment.offset_index.reset()
        segment.time_index.reset()

    def add(self, position: int, header: BatchHeader) -> None:
        """Take the next batch into account."""
        if header.max_timestamp > self._largest.timestamp:
            self._largest = Timestamped(header.max_timestamp, header.last_offset)
        if position - self._last_entry > self._segment.index_interval:
            self._segment.offset_index.append(header.last_offset, position)
            self._segment.time_index.append(*self._largest)
            self._last_entry = position

    def finish(self) -> None:
        """Write the indexes."""
        self._segment.rebuilt(self._largest)
        self._segment.finish_indexes()


def _recover(
    directory: LogDirectory,
    path: str,
    segments: list[Segment],
    first: int,
    snapshots: Snapshots,
    epochs: LeaderEpochs,
    cleaned_to: int,
) -> ProducerStates:
    """Check the segments from number `first` on, cut what is bad, and drop the segments after that.

    A gap between two segments is bad, unless it ends at offset `cleaned_to` or before.
    """
    start = segments[first].base_offset
    snapshots.remove_after(start)
    states = load_producers(segments[:first], snapshots, segments[0].base_offset, start)
    expected = start
    kept = first
    damage: str | None = None
    for segment in segments[first:]:
        if segment.base_offset < expected or (segment.base_offset > expected and segment.base_offset > cleaned_to):
            damage = f"{segment.path} begins at offset {segment.base_offset}, but the log before it ends at {expected}"
            break
        kept += 1
        if segment.base_offset > start:
            states.end_offset = segment.base_offset
            snapshots.take(states, sync=False)
        expected, damage = _recover_segment(segment, states, epochs)
        if damage is not None:
            break
    removed = segments[kept:]
    if damage is not None:
        logger.warning(
            "cut the log %s at offset %d: %s; removed %d later segments", path, expected, damage, len(removed)
        )
    for segment in removed:
        _remove(directory, segment, snapshots)
    del segments[kept:]
    if damage is not None:
        if segments:
            directory.files.sync_file(segments[-1].path)
        directory.files.sync_dir(path)
    states.end_offset = expected
    return states


def _remove(directory: LogDirectory, segment: Segment, snapshots: Snapshots) -> None:
    segment.close()
    for path in (segment.path, segment.offset_index.file.path, segment.time_index.file.path, segment.txn_index.path):
        directory.files.remove(path)
    snapshots.remove(segment.base_offset)


def _recover_segment(segment: Segment, states: ProducerStates, epochs: LeaderEpochs) -> tuple[int, str | None]:
    """Check one segment and cut it at the first bad byte; returns its end offset, and what was wrong."""
    builder = _IndexBuilder(segment)
    segment.txn_index.reset()
    next_offset, position = segment.base_offset, 0
    scan = _Scan(segment)
    for batch in scan:
        header = batch.header
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            scan.damage = f"offsets go back at byte {batch.position} of {segment.path}"
            break
        if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            scan.damage = f"offset {header.last_offset} at byte {batch.position} is too large for {segment.path}"
            break
        try:
            replay(states, header, batch.payload, segment.txn_index)
        except InvalidRecord as error:
            scan.damage = f"{error} at byte {batch.position} of {segment.path}"
            break
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        builder.add(batch.position, header)
        next_offset, position = header.last_offset + 1, batch.position + header.size
    if position < segment.size:
        scan.damage = scan.damage or f"{segment.size - position} bytes at the end of {segment.path} are no batch"
        segment.cut(position)
    builder.finish()
    return next_offset, scan.damage


class _Checked(NamedTuple):
    position: int
    header: BatchHeader
    payload: bytes


class _Scan:
    """The batches of a segment whose CRC is right, up to the first that is not; `damage` then says what is wrong."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.damage: str | None = None

    def __iter__(self) -> Iterator[_Checked]:
        segment = self._segment
        position, begin, data = 0, 0, b""
        while position < segment.size:
            start = position - begin
            if start + HEADER_SIZE > len(data):
                data, begin, start = segment.file.read(_CHUNK, position), position, 0
                if len(data) < HEADER_SIZE:
                    return
            header = BatchHeader._make(HEADER.unpack_from(data, start))
            size = header.size
            if size < HEADER_SIZE or position + size > segment.size:
                self.damage = f"{size} bytes are claimed by the batch at byte {position} of {segment.path}"
                return
            if start + size > len(data) and size <= _CHUNK:
                data, begin, start = segment.file.read(_CHUNK, position), position, 0
            if header.magic in (0, 1):
                self._refuse_old_format(position, size)
            if header.magic != MAGIC or self._crc(data, start, position, size) != header.crc:
                self.damage = f"the CRC of the batch at byte {position} of {segment.path} is wrong"
                return
            payload = data[start + HEADER_SIZE : start + size] if header.is_control else b""
            yield _Checked(position, header, payload)
            position += size

    def _crc(self, data: bytes, start: int, position: int, size: int) -> int:
        if start + size <= len(data):
            return crc32c(memoryview(data)[start + CRC_START : start + size])
        return self._checksum(crc32c, position + CRC_START, position + size)

    def _checksum(self, function: Callable[[bytes, int], int], position: int, end: int) -> int:
        crc = 0
        while position < end:
            part = self._segment.file.read(min(_CHUNK, end - position), position)
            crc = function(part, crc)
            position += len(part)
        return crc

    def _refuse_old_format(self, position: int, size: int) -> None:
        """Raise if this really is a message of the old format, which must not be taken for damage."""
        covered = position + LOG_OVERHEAD + 4
        crc = int.from_bytes(self._segment.file.read(4, covered - 4), "big")
        if self._checksum(zlib.crc32, covered, position + size) == crc:
            raise StartupError(
                f"{self._segment.path} holds messages of Kafka's format v0 or v1, which Barnabas does not read; "
                "copy the topic with Kafka 3 into one of format v2"
            )
