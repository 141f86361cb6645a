"""Writing the offset checkpoints of log directories from what their logs say.

Two things hold. A checkpoint on disk never says more of a log than is left of it: `lower` runs before a log is cut. And
whoever looked at the logs earlier does not write later: one lock covers both.

A log that no checkpoint lists yet has a file of its own in its directory that says so, until one does: a log that was
made here as a compacted one (`checkpoints.mark_unlisted`), or that was set aside and is taken back, with its offsets
(`strays`). A log that becomes a compacted one is listed at once (`list_log`).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import StorageFailed
from barnabas.storage import checkpoints, strays
from barnabas.storage.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.model.ids import TopicPartition
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)

_OFFSETS: Final[Mapping[str, Callable[[Log], int | None]]] = {
    RECOVERY_POINTS: lambda log: log.recovery_point,
    LOG_STARTS: lambda log: log.log_start_offset,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
    CLEANED: lambda log: log.cleaned_to,
}
"""What each file says of a log; one that was never cleaned is left out."""


class CheckpointWriter:
    """Writes the checkpoints of a broker's log directories."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}
        """What each file holds, by directory and name."""
        self._new: dict[Log, None] = {}
        """Logs that were made here and are not listed yet."""
        self._taken_back: dict[Log, None] = {}
        """Logs that were taken back and are not listed yet."""

    def add_read(self, store: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """A file was read at the start: it holds `offsets`."""
        self._written[store.path, name] = offsets

    def add_new(self, log: Log) -> None:
        """A log was made, or was made just before a crash."""
        self._new[log] = None

    def add_taken_back(self, log: Log) -> None:
        """A log that was set aside is used again."""
        self._taken_back[log] = None

    def forget(self, log: Log) -> None:
        """A log is not used any more."""
        self._new.pop(log, None)
        self._taken_back.pop(log, None)

    def lists(self, store: LogDirectory, tp: TopicPartition) -> bool:
        """Whether a file of this directory lists the partition, of whatever log."""
        return any(tp in self._written.get((store.path, name), ()) for name in _OFFSETS)

    def list_log(self, log: Log) -> None:
        """Write the files of a log's directory if they do not list the log: it is compacted from now on.

        A compacted log that is not listed, and is not marked as made here, may have gaps that Kafka's cleaner left.
        """
        if not self.lists(log.store, log.tp):
            try:
                self.write(log.store)
            except StorageFailed as error:
                logger.warning("Could not write the checkpoints of %s: %s", log.store.path, error)

    def write(self, store: LogDirectory) -> None:
        """Write the files of a directory, where they changed. Waits for the disk; raises StorageFailed."""
        with self._lock:
            new = [log for log in list(self._new) if store.logs.get(log.tp) is log]
            taken_back = [log for log in list(self._taken_back) if store.logs.get(log.tp) is log]
            logs = list(store.logs.values())
            for name in _OFFSETS:
                self._write(store, name, logs)
            for log in new:
                checkpoints.unmark_unlisted(store.files, log.path)
                self._new.pop(log, None)
            for log in taken_back:
                strays.forget_offsets(store.files, log.path)
                self._taken_back.pop(log, None)

    def lower(self, log: Log) -> None:
        """Write the files that say more of a log than it does: before it is cut, or after a crash has cut it.

        Those who wait share a write. A log that was just taken back has a note of its own instead; from here on the
        checkpoints list it.
        """
        store, tp = log.store, log.tp
        if log in self._taken_back:
            self.write(store)
            return
        with self._lock:
            for name, offset_of in _OFFSETS.items():
                if self._written.get((store.path, name), {}).get(tp, 0) > (offset_of(log) or 0):
                    self._write(store, name, list(store.logs.values()))  # here: each log is asked after a crash

    def write_cleaned(self, store: LogDirectory) -> None:
        """Write up to where the logs of a directory are clean. Waits for the disk."""
        with self._lock:
            self._write(store, CLEANED, list(store.logs.values()))

    def _write(self, store: LogDirectory, name: str, logs: Iterable[Log]) -> None:
        offset_of = _OFFSETS[name]
        offsets = {log.tp: offset for log in logs if (offset := offset_of(log)) is not None}
        if self._written.get((store.path, name)) != offsets:
            store.write_checkpoint(name, offsets)
            self._written[store.path, name] = offsets
