"""One cleaning, as far as it is about bytes: notes the keys, writes the new segments, and says when each is ready.

This is the half that a worker runs. It reads segments that nobody changes and writes files that nobody else knows of;
putting these in place is up to whoever is told of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.errors import BarnabasError, CorruptMessage
from barnabas.storage.cleaner.plan import group_segments
from barnabas.storage.cleaner.task import CleanedGroup, CleanedLog, Counts
from barnabas.storage.cleaner.worker.cleaned_segment import CleanedSegment
from barnabas.storage.cleaner.worker.key_map import KeyMap
from barnabas.storage.cleaner.worker.payload import add_keys
from barnabas.storage.cleaner.worker.rewrite import Rewriter, unpacked
from barnabas.storage.cleaner.worker.source import batches
from barnabas.storage.cleaner.worker.throttle import Throttle
from barnabas.storage.cleaner.worker.transactions import CleanedTransactions
from barnabas.storage.segments.file_names import LOG_SUFFIX, file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.storage.cleaner.task import CleaningTask, SegmentFiles
    from barnabas.storage.cleaner.worker.source import SourceBatch
    from barnabas.storage.files import FileSystem


class CleaningAborted(BarnabasError):
    """The log changed under the cleaning, or the broker stops: nothing is wrong, and it is tried again another time."""


class Cleaning:
    """One task being carried out."""

    def __init__(self, task: CleaningTask, files: FileSystem) -> None:
        self._task = task
        self._files = files
        self._spend = Throttle(task.limits.bytes_per_second).spend
        self._keys = KeyMap(task.limits.memory, task.limits.load_factor, task.first_dirty)

    def run(self, on_group: Callable[[CleanedGroup], bool]) -> CleanedLog:
        """Clean the log; `on_group` is called with every new segment, and says whether to go on."""
        task, keys = self._task, self._keys
        self._note_keys()
        transactions = CleanedTransactions(task.aborted)
        rewriter = Rewriter(
            keys,
            task.first_dirty,
            transactions,
            task.producers,
            now_ms=task.now_ms,
            delete_retention_ms=task.delete_retention_ms,
        )
        counts = Counts()
        segments = [segment for segment in task.segments if segment.base_offset < keys.end_offset]
        for group in group_segments(segments, task.segment_bytes, task.segment_index_bytes, task.end):
            cleaned = self._write(group, rewriter, transactions)
            counts = counts.plus(cleaned.counts)
            if not on_group(cleaned):
                raise CleaningAborted(f"{task.directory} changed while it was cleaned")
        return CleanedLog(keys.end_offset, len(keys.last), counts)

    def _batches(self, segment: SegmentFiles) -> Iterator[SourceBatch]:
        path = f"{self._task.directory}/{file_name(segment.base_offset, LOG_SUFFIX)}"
        return batches(self._files, path, segment.size, self._task.limits.chunk, self._spend)

    def _note_keys(self) -> None:
        """Fill the key map from the dirty part, as far as it has room."""
        task, keys = self._task, self._keys
        transactions = CleanedTransactions(task.aborted)
        ends = [segment.base_offset for segment in task.segments[1:]] + [task.end]
        for segment, end in zip(task.segments, ends, strict=True):
            if end <= task.first_dirty:
                continue
            for header, data, at, _ in self._batches(segment):
                if header.last_offset < task.first_dirty:
                    continue
                if header.is_control:
                    payload = unpacked(header, data, at)
                    transactions.is_spent(header, payload.data[payload.start : payload.end])
                elif not transactions.is_aborted(header) and header.record_count:
                    if not keys.has_room(header.record_count):
                        return
                    payload = unpacked(header, data, at)
                    counted = add_keys(*payload, header.base_offset, task.first_dirty, keys.last)
                    if counted != header.record_count:
                        raise CorruptMessage(
                            f"the batch at offset {header.base_offset} of {task.directory} holds {counted} records, "
                            f"its header says {header.record_count}"
                        )
                keys.end_offset = header.last_offset + 1
            keys.end_offset = end

    def _write(
        self, group: Sequence[SegmentFiles], rewriter: Rewriter, transactions: CleanedTransactions
    ) -> CleanedGroup:
        task = self._task
        base_offset = group[0].base_offset
        out = CleanedSegment(self._files, task.directory, base_offset, task.index_interval_bytes, self._spend)
        records_in = records_out = bytes_in = 0
        last = max((segment for segment in group if segment.size), default=group[0])
        try:
            for segment in group:
                end = segment.size if segment is last else -1
                for header, data, at, position in self._batches(segment):
                    size = header.size
                    records_in += header.record_count
                    bytes_in += size
                    written = rewriter.rewrite(header, data, at, is_last=position + size == end)
                    if written is None:
                        continue
                    records_out += written.records
                    batch = memoryview(data)[at : at + size] if written.data is None else memoryview(written.data)
                    out.add(batch, header.last_offset, written.max_timestamp)
            aborted, transactions.aborted = transactions.aborted, []
            sizes = out.finish(aborted, group[-1].modified_ms)
        except BaseException:
            out.abort()
            raise
        counts = Counts(records_in, records_out, bytes_in, sizes[LOG_SUFFIX])
        return CleanedGroup(tuple(segment.base_offset for segment in group), sizes, counts)
