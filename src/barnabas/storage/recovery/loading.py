"""Bringing a log from its files into memory.

After a clean stop nothing is read again but the ends. After any other stop, the segments from the recovery point on are
read batch by batch, and the CRC of each is checked: the first bad byte ends the log. What comes after it is removed,
indexes and producer state are rebuilt, and a warning says what was cut. A log is always a prefix of what was written: a
segment that does not begin where the one before it ends (its tail was lost with the power) is cut, too, except where
Kafka's cleaner has been: it leaves gaps between segments, and ours does not.

Whatever the stop was like, what lies before the recovery point was on disk. A log that lacks some of it is not served,
so that no offset is given out twice, and its files are left as they are.

Before any of that, leftovers.py clears what a crash left half-done.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import CorruptMessage, InvalidRecord, StorageFailed
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import DamagedCheckpoint
from barnabas.storage.log.epochs import LeaderEpochs
from barnabas.storage.producers.replaying import ended_after, load_producers, replay
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.producers.state import ProducerStates
from barnabas.storage.recovery.index_repair import IndexBuilder, ensure_indexes, repair_indexes
from barnabas.storage.recovery.leftovers import clear_leftovers
from barnabas.storage.recovery.scan import Scan
from barnabas.storage.segments.indexes import MAX_RELATIVE_OFFSET
from barnabas.storage.segments.segment import Segment, Tail
from barnabas.storage.segments.segments import segment_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.model.log_config import LogConfig
    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.log.epochs import EpochStart
    from barnabas.storage.producers.state import CompletedTransaction

logger = logging.getLogger(__name__)


NO_GAP_IS_DAMAGE: Final = (1 << 63) - 1
"""Cleaned to here, for all that is known: where the checkpoints are silent, Kafka's cleaner may have left any gap."""


class TornLog(StorageFailed):
    """Records that were on disk are missing."""


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
    sizes, snapshot_offsets = clear_leftovers(directory, path)
    now_ms = directory.clock.now_ms()
    segments = [Segment(directory.pool, path, base, sizes[base], config, now_ms) for base in sorted(sizes)]
    snapshots = Snapshots(files, path, snapshot_offsets)
    epochs = _load_epochs(directory, path, segments, log_start_offset)
    if clean and (damage := _check_end(path, segments, log_start_offset, recovery_point)) is not None:
        logger.warning("%s was closed cleanly, but is damaged: %s. It is recovered.", path, damage)
        clean, recovery_point = False, segments[-1].base_offset
    elif not clean:
        _check_synced(path, segments, log_start_offset, recovery_point, cleaned_to)

    producers = None
    flushed = len(segments) if clean else max(segment_number(segments, recovery_point), 0)
    for number, segment in enumerate(segments[:flushed]):
        ensure_indexes(segment)
        if not segment.txn_index.is_sound(segment.base_offset):
            _rebuild_aborted(segments, number, snapshots)
    unsynced_indexes = None
    if 0 < flushed < len(segments) and segments[flushed].base_offset == recovery_point:
        unsynced_indexes = segments[flushed - 1]
        repair_indexes(unsynced_indexes)
    if flushed < len(segments):
        producers = _recover(directory, path, segments, flushed, snapshots, epochs, cleaned_to)
    end_offset = segments[-1].next_offset() if segments else log_start_offset
    if end_offset < log_start_offset:
        logger.warning("Removed all segments of %s: they end before the log start offset %d.", path, log_start_offset)
        for segment in segments:
            _remove(directory, segment, snapshots)
        segments, end_offset, producers = [], log_start_offset, None
    if not segments:
        segments = [Segment.begin(directory.pool, path, end_offset, config, now_ms)]
        if end_offset > 0:  # only the file's name keeps the offset
            segments[0].make_file()
        epochs.clear()
        snapshots.remove_after(-1)
    if end_offset < recovery_point:
        logger.error(
            "%s ends at offset %d, but everything before %d was on disk. Those records are lost, and their offsets are "
            "given out again. Restore the log from a copy, or from another replica.",
            path,
            end_offset,
            recovery_point,
        )
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


def _check_end(path: str, segments: Sequence[Segment], log_start_offset: int, closed_at: int) -> str | None:
    """See whether a log that was closed at offset `closed_at` still ends there; returns what is wrong behind its end.

    Raises TornLog when records before that are missing.
    """
    if not segments:
        end_offset, damage = log_start_offset, "it has no segment"
    else:
        last = segments[-1]
        try:
            ensure_indexes(last)
            position, end_offset = last.tail()
            if position == last.size and end_offset >= closed_at:
                return None
        except CorruptMessage:
            pass
        position, end_offset = trusted_end(last)
        damage = f"byte {position} of {last.path} is where its last whole batch ends, and the file has {last.size}"
    if end_offset >= closed_at:
        return damage if segments else None
    raise _torn(path, f"was closed at offset {closed_at}", end_offset, damage)


def _check_synced(
    path: str, segments: Sequence[Segment], log_start_offset: int, recovery_point: int, cleaned_to: int
) -> None:
    """See whether a log that was not closed has all that was on disk; changes nothing. Raises TornLog."""
    hole = find_hole(segments, log_start_offset, recovery_point, cleaned_to)
    if hole is not None:
        damage = "it has no such segment"
        if hole.segment is not None and hole.tail.position < hole.segment.size:
            damage = f"byte {hole.tail.position} of {hole.segment.path} is where its whole batches end"
        raise _torn(path, f"was on disk up to offset {recovery_point}", hole.tail.offset, damage)


def _torn(path: str, was: str, end_offset: int, damage: str) -> TornLog:
    return TornLog(
        f"{path} {was}, but its records end at {end_offset}: {damage}. The partition is "
        "not served, so that no offset is given out twice. Put the files back from a copy; or, where the partition has "
        f"other replicas, stop the broker and remove {path}"
    ).with_remedy(Remedy(RemedyKind.ACCEPT_LOSS, str(Path(path).parent)))


class Hole(NamedTuple):
    """Offsets that a log had on disk and has no more."""

    segment: Segment | None
    """The one that breaks off; None where there is none at all."""
    tail: Tail
    """Where its batches end."""
    end_offset: int
    """Where what is left goes on: at the next segment, or where the log was known to be on disk."""


def find_hole(segments: Sequence[Segment], log_start_offset: int, recovery_point: int, cleaned_to: int) -> Hole | None:
    """What is missing before the recovery point, in the segment that reaches up to it; what was deleted is not."""
    if recovery_point <= log_start_offset:
        return None
    number = segment_number(segments, recovery_point)
    if number < 0:
        return Hole(None, Tail(0, log_start_offset), recovery_point) if not segments else None
    segment, after = segments[number], segments[number + 1 : number + 2]
    tail = trusted_end(segment, recovery_point)
    if tail.offset >= recovery_point or (after and after[0].base_offset <= cleaned_to):
        return None
    return Hole(segment, tail, after[0].base_offset if after else recovery_point)


def trusted_end(segment: Segment, up_to: int | None = None) -> Tail:
    """Where the batches end that can be trusted, whatever the indexes say; looks no further than offset `up_to`."""
    tail = Tail(0, segment.base_offset)
    if up_to is None or tail.offset < up_to:
        for batch in Scan(segment).in_order():
            tail = Tail(batch.position + batch.header.size, batch.header.last_offset + 1)
            if up_to is not None and tail.offset >= up_to:
                break
    return tail


def _load_epochs(
    directory: LogDirectory, path: str, segments: Sequence[Segment], log_start_offset: int
) -> LeaderEpochs:
    """The leader epochs, from their checkpoint; what it lacks is read from the batches.

    After a crash the log may begin earlier than when the checkpoint was written: records that were deleted are there
    again, because the checkpoint of log start offsets is older. A follower without their epochs would take them for
    its leader's.
    """
    until: int | None = None
    found: Sequence[EpochStart] = ()
    why = "its checkpoint has none."
    try:
        found = checkpoints.read_epochs(directory.files, path)
    except DamagedCheckpoint as error:
        why = str(error)
    filled = [segment for segment in segments if segment.size]
    if found:
        until = found[0].start_offset
        why = f"its checkpoint begins at offset {until}."
    if not filled or (until is not None and until <= max(log_start_offset, filled[0].base_offset)):
        return LeaderEpochs(found, path)
    epochs = LeaderEpochs(path=path)
    with suppress(CorruptMessage):  # recovery, or whoever reads there, finds it, too
        for header in _headers_before(segments, until):
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
    if found and not epochs.entries:  # the log has no batch before them
        return LeaderEpochs(found, path)
    logger.warning("The leader epochs of %s are read from its batches: %s", path, why)
    for entry in found:
        epochs.assign(*entry)
    return epochs


def _headers_before(segments: Sequence[Segment], offset: int | None) -> Iterator[BatchHeader]:
    for segment in segments:
        for _, header in segment.headers(0, segment.size):
            if offset is not None and header.base_offset >= offset:
                return
            yield header


def _rebuild_aborted(segments: Sequence[Segment], number: int, snapshots: Snapshots) -> None:
    """Make the transaction index of a segment anew: readers of committed records would get the aborted ones."""
    segment = segments[number]
    logger.warning("Rebuilt the transaction index %s: it was damaged.", segment.txn_index.path)
    states = load_producers(segments[:number], snapshots, segments[0].base_offset, segment.base_offset)
    segment.txn_index.reset()
    for position, header in segment.headers(0, segment.size):
        payload = b""
        if header.is_control:
            payload = segment.file.read(header.size - HEADER_SIZE, position + HEADER_SIZE)
        replay(states, header, payload, segment.txn_index)
    segment.txn_index.sync()


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
            "Truncated %s to offset %d: %s. Removed %d later segments.", path, expected, damage, len(removed)
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


def _recover_segment(segment: Segment, states: ProducerStates, epochs: LeaderEpochs) -> tuple[int, str | None]:
    """Check one segment and cut it at the first bad byte; returns its end offset, and what was wrong."""
    builder = IndexBuilder(segment)
    segment.txn_index.reset()
    next_offset, position = segment.base_offset, 0
    scan = Scan(segment)
    for batch in scan.in_order():
        header = batch.header
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


def _remove(directory: LogDirectory, segment: Segment, snapshots: Snapshots) -> None:
    segment.close()
    for path in (segment.path, segment.offset_index.file.path, segment.time_index.file.path, segment.txn_index.path):
        directory.files.remove(path)
    snapshots.remove(segment.base_offset)
