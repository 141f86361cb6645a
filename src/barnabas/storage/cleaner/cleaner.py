"""Cleaning one log: gives a worker what it needs to know, and swaps in each new segment as it becomes ready.

The caller has the log's upkeep, so no segment is removed by retention meanwhile. The log can still be cut or deleted:
then the next swap finds it changed, and the cleaning ends without harm.

Before anything goes, the log is flushed: a record is superseded by one that is on disk, and if that one is part of a
transaction, so is the marker that committed it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from barnabas.storage.cleaner.process import CleaningFailed
from barnabas.storage.cleaner.report import LastCleaning
from barnabas.storage.cleaner.swap import swap_in
from barnabas.storage.cleaner.task import CleaningTask, SegmentFiles
from barnabas.storage.cleaner.worker.cleaned_segment import CLEANED_SUFFIX, discard
from barnabas.storage.cleaner.worker.cleaning import CleaningAborted
from barnabas.storage.cleaner.worker.rewrite import ProducerEnd
from barnabas.storage.segments.file_names import file_name
from barnabas.storage.segments.segments import SWAP_SUFFIX

if TYPE_CHECKING:
    from barnabas.storage.cleaner.plan import LogToClean
    from barnabas.storage.cleaner.process import Cleans
    from barnabas.storage.cleaner.task import CleanedGroup, CleanerLimits
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.files import FileSystem
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segment import Segment
    from barnabas.storage.segments.txn_index import AbortedTransaction

logger = logging.getLogger(__name__)


def clean(todo: LogToClean, store: LogDirectory, worker: Cleans, limits: CleanerLimits, now_ms: int) -> LastCleaning:
    """Clean a log and note up to where; raises what `worker` raises, or StorageFailed. Runs in a thread."""
    log = todo.log
    started = time.monotonic()
    by_base = {segment.base_offset: segment for segment in todo.segments}

    def on_group(group: CleanedGroup) -> bool:
        return swap_in(log, store, [by_base[base] for base in group.bases], group, todo.truncations)

    try:
        _clear_leftovers(log, store.files)
        if log.flush() < todo.log_end_offset:
            raise CleaningAborted(f"{log.tp} was truncated before it was on disk")
        done = worker.clean(task_for(todo, store.files, limits, now_ms), on_group)
    except Exception as error:
        _clear(log, store.files, todo.segments)
        if log.is_closed or log.truncations != todo.truncations:  # whatever was found wrong may be no more than that
            raise CleaningAborted(f"{log.tp} was cut or closed while it was cleaned") from error
        raise
    _note(todo, done.end_offset)
    return LastCleaning(
        time_ms=now_ms,
        seconds=round(time.monotonic() - started, 3),
        first_dirty=todo.first_dirty,
        cleaned_to=done.end_offset,
        keys=done.keys,
        **done.counts._asdict(),
    )


def _note(todo: LogToClean, end_offset: int) -> None:
    """Note up to where the log is clean. A cut lowers that before it removes anything: its lock is held throughout."""
    log = todo.log
    with log.durability.lock, log.lock:
        if log.truncations != todo.truncations:
            raise CleaningAborted(f"{log.tp} was cut when it was just cleaned")
        log.cleaned_to = end_offset


def task_for(todo: LogToClean, files: FileSystem, limits: CleanerLimits, now_ms: int) -> CleaningTask:
    """What a worker needs to know."""
    log, config = todo.log, todo.log.config
    return CleaningTask(
        directory=str(log.directory),
        segments=tuple(
            SegmentFiles(
                segment.base_offset,
                segment.size,
                segment.offset_index.size,
                segment.time_index.size,
                files.modified_ms(segment.path),
            )
            for segment in todo.segments
        ),
        first_dirty=todo.first_dirty,
        end=todo.end,
        aborted=tuple(_aborted_transactions(log, todo.end)),
        producers={producer_id: ProducerEnd(*end) for producer_id, end in log.producers.ends().items()},
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        limits=limits,
    )


def _aborted_transactions(log: Log, end: int) -> list[AbortedTransaction]:
    """The aborted transactions that have a record before `end`; a marker may come later."""
    return [
        transaction
        for segment in log.segments
        if not segment.txn_index.is_empty
        for transaction in segment.txn_index.entries()
        if transaction.first_offset < end
    ]


def _clear_leftovers(log: Log, files: FileSystem) -> None:
    """Remove what an earlier cleaning could not: beside it, a start after a crash would take a finished swap back."""
    directory = str(log.directory)
    names = [entry.name for entry in files.entries(directory)]
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        raise CleaningFailed(
            f"{directory} has a replacement of segments that was not finished. The next start of the broker finishes it"
        )
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            files.remove(f"{directory}/{name}")


def _clear(log: Log, files: FileSystem, segments: tuple[Segment, ...]) -> None:
    """Remove what an unfinished cleaning left."""
    directory = str(log.directory)
    if not log.is_closed and not log.is_failed:
        for segment in segments:
            try:
                discard(files, f"{directory}/{file_name(segment.base_offset, '')}")
            except OSError as error:
                logger.warning(
                    "Files of an unfinished cleaning in %s were not removed: %s. The next start removes them.",
                    directory,
                    error,
                )
                return
