"""Truncating a log: a follower drops what its leader does not have.

Before anything is cut, neither memory nor the checkpoints on disk say more of the log than is left of it; and what has
to be read is read. The cut itself needs no descriptor, so it does not break off half-way when they run short. After it,
the log takes no batches until the disk has forgotten the cut part, too: it could come back with a crash, behind what
was written in its place.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.storage.producers.replaying import load_producers
from barnabas.storage.segments.cut import plan_cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.storage.log.log import Log
    from barnabas.storage.producers.state import ProducerStates
    from barnabas.storage.segments.cut import Cut
    from barnabas.storage.segments.segment import Segment
    from barnabas.storage.segments.segments import Segments

logger = logging.getLogger(__name__)


class Truncation:
    """Truncates one log, in a thread. Nobody appends meanwhile."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def truncate_to(self, offset: int) -> None:
        """See Log.truncate_to."""
        log = self._log
        segments = log.open()
        while log.log_start_offset <= offset < log.log_end_offset:
            if self._try_to_cut(segments, offset):
                return
        if offset < log.log_start_offset:
            self.start_anew(offset)
        else:
            with log.lock:
                log.epochs.truncate_from_end(offset)

    def start_anew(self, start_offset: int) -> None:
        """See Log.truncate_fully."""
        log = self._log
        segments = log.open()
        with log.durability.lock:
            with self._preparing():
                self._lower_offsets(min(start_offset, segments.all[0].base_offset), start_offset)
                first = segments.prepare_start(start_offset, log.store.clock.now_ms())
            with self._removing():
                self._drop_all(segments, first)
            with self._cutting():
                log.durability.sync_cut(segments)

    def _try_to_cut(self, segments: Segments, offset: int) -> bool:
        """Cut the log; False if retention or compaction has changed what was to be kept meanwhile."""
        log = self._log
        with log.durability.lock:
            if offset < log.log_start_offset:
                return False
            with self._preparing():
                with log.lock:
                    segments.holding(offset).write_indexes()  # the one part of the plan that changes something
                cut = plan_cut(segments.holding(offset), offset)
                self._lower_offsets(cut.end_offset, cut.end_offset)
                log.durability.write_snapshots()
                producers = self._producers_at(segments, cut.end_offset)
            with self._removing():
                if offset < log.log_start_offset or cut.segment not in segments.all:
                    return False
                self._cut(segments, cut, producers)
            with self._cutting():
                log.durability.sync_cut(segments)
        return True

    def _cut(self, segments: Segments, cut: Cut, producers: ProducerStates) -> None:
        log = self._log
        logger.info("%s: truncated to offset %d. The log ended at %d.", log.path, cut.end_offset, log.log_end_offset)
        segments.carry_out(cut)
        log.epochs.truncate_from_end(cut.end_offset)
        log.log_end_offset = cut.end_offset
        log.producers.truncate_to(producers, cut.offset, cut.end_offset)

    def _drop_all(self, segments: Segments, first: Segment) -> None:
        log, start_offset = self._log, first.base_offset
        logger.info(
            "%s: dropped all records before offset %d. The log starts anew at %d.",
            log.path,
            log.log_end_offset,
            start_offset,
        )
        segments.start_again(first)
        log.epochs.clear()
        log.cleaned_to = None
        log.log_start_offset = log.log_end_offset = log.recovery_point = log.high_watermark = start_offset
        log.producers.start_anew(start_offset)

    @contextmanager
    def _cutting(self, *, undone: bool = True) -> Iterator[None]:
        """Work on the files. If the log was deleted meanwhile, a missing file is no failure of the disk."""
        log = self._log
        with log.store.writing(f"truncating {log.path}", undone=undone):
            try:
                yield
            except FileNotFoundError as error:
                log.check_open(error)
                raise

    @contextmanager
    def _preparing(self) -> Iterator[None]:
        """Do what comes before the cut. If that fails, the log starts where it did: it is cut another time."""
        log = self._log
        before = log.log_start_offset
        try:
            with self._cutting():
                yield
        except BaseException:
            with log.lock:
                log.log_start_offset = max(log.log_start_offset, before)
            raise

    @contextmanager
    def _removing(self) -> Iterator[None]:
        """Change memory and files, in ways that need no descriptor: what breaks off here cannot be undone.

        Nothing is appended until the disk has it, too (`sync_cut`). That may fail when descriptors or room run
        short: then the next batch is refused, and the sync is tried again.
        """
        log = self._log
        with self._cutting(undone=False), log.lock:
            log.check_open()
            log.truncations += 1
            log.durability.closed_at = -1  # the log may grow to the same end again, with nothing of it on disk
            yield

    def _lower_offsets(self, offset: int, log_start_offset: int) -> None:
        """Before anything is cut: neither in memory nor on disk is more said of the log than is left of it.

        Otherwise a crash after the next appends would take them for known to be on disk, or for committed. Nothing is
        flushed meanwhile, so the recovery point does not rise again.
        """
        log = self._log
        with log.lock:
            log.check_open()
            log.recovery_point = min(log.recovery_point, offset)
            log.high_watermark = min(log.high_watermark, offset)
            log.log_start_offset = min(log.log_start_offset, log_start_offset)
            if log.cleaned_to is not None:
                log.cleaned_to = min(log.cleaned_to, offset)
        log.store.lower_checkpoints(log)

    def _producers_at(self, segments: Segments, end_offset: int) -> ProducerStates:
        """The producers as of an offset before the log's end. Reads the batches since the last snapshot, if it must."""
        producers = self._log.producers
        if producers.states.hold_since(end_offset):
            producers.states.end_offset = end_offset
            return producers.states
        view = segments.all
        return load_producers(view, producers.snapshots, view[0].base_offset, end_offset)
