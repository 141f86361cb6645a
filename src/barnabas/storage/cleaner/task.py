"""What a worker is given to clean, and what it tells of it: plain values, which go through a pipe as JSON."""

from __future__ import annotations

import json
from typing import NamedTuple

from barnabas.storage.cleaner.worker.rewrite import ProducerEnd
from barnabas.storage.segments.txn_index import AbortedTransaction


class SegmentFiles(NamedTuple):
    """One segment: its name's offset, the lengths of its files, and when it was last written."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    modified_ms: int


class CleanerLimits(NamedTuple):
    """What one cleaning may use."""

    memory: int
    """Bytes for the key map."""
    load_factor: float
    chunk: int
    """Bytes that are read at a time."""
    bytes_per_second: float
    """Read and written together."""


class CleaningTask(NamedTuple):
    """One log, or what can be cleaned of it."""

    directory: str
    segments: tuple[SegmentFiles, ...]
    """From the log's beginning, without a gap."""
    first_dirty: int
    end: int
    """Where the segments end: the first offset that stays as it is."""
    aborted: tuple[AbortedTransaction, ...]
    producers: dict[int, ProducerEnd]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    limits: CleanerLimits

    def encode(self) -> str:
        """As text."""
        return json.dumps(self)

    @classmethod
    def decode(cls, text: str) -> CleaningTask:
        """From text."""
        task = cls._make(json.loads(text))
        return task._replace(
            segments=tuple(map(SegmentFiles._make, task.segments)),
            aborted=tuple(map(AbortedTransaction._make, task.aborted)),
            producers={int(producer_id): ProducerEnd._make(end) for producer_id, end in task.producers.items()},
            limits=CleanerLimits._make(task.limits),
        )


class Counts(NamedTuple):
    """Records and bytes, before and after."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def plus(self, other: Counts) -> Counts:
        """Both together."""
        return Counts(*map(sum, zip(self, other, strict=True)))


class CleanedGroup(NamedTuple):
    """A new segment, in `.cleaned` files, for some old ones."""

    bases: tuple[int, ...]
    """The old segments; the new one has the name of the first."""
    sizes: dict[str, int]
    """The lengths of the new segment's files, by suffix."""
    counts: Counts

    def encode(self) -> str:
        """As text."""
        return json.dumps(self)

    @classmethod
    def decode(cls, text: str) -> CleanedGroup:
        """From text."""
        bases, sizes, counts = json.loads(text)
        return cls(tuple(bases), sizes, Counts._make(counts))


class CleanedLog(NamedTuple):
    """What was done in all."""

    end_offset: int
    """The first offset that is dirty now."""
    keys: int
    """Different keys in what was dirty."""
    counts: Counts

    def encode(self) -> str:
        """As text."""
        return json.dumps(self)

    @classmethod
    def decode(cls, text: str) -> CleanedLog:
        """From text."""
        end_offset, keys, counts = json.loads(text)
        return cls(end_offset, keys, Counts._make(counts))
