"""Loading the logs of a log directory when a broker starts.

After a clean stop, that costs next to nothing: where each log begins and ends stands in the checkpoints, and a log's
own files are looked at when it is first used. Logs that were not closed cleanly are recovered now, before the broker
serves anyone.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage import checkpoints, strays
from barnabas.storage.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from barnabas.storage.log.log import Log
from barnabas.storage.names import moved_from, partition_of
from barnabas.storage.recovery.loading import NO_GAP_IS_DAMAGE, TornLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Executor

    from barnabas.model.ids import TopicPartition
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.checkpoint_writer import CheckpointWriter
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.stray_logs import StrayLogs
    from barnabas.storage.strays import Offsets

logger = logging.getLogger(__name__)


class _Checkpoints(NamedTuple):
    """What the checkpoints of a directory said when the broker started."""

    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    cleaned: dict[TopicPartition, int]

    def list_all_of(self, tp: TopicPartition) -> bool:
        """Whether they hold what every log has that stands in them."""
        return tp in self.recovery_points and tp in self.log_starts and tp in self.high_watermarks


class LoadedDirectory(NamedTuple):
    """The logs that were found in a log directory, and whether it was closed cleanly."""

    logs: list[Log]
    clean: bool


class RecoveryProgress:
    """How far the loading of logs is, for those who watch it from other threads."""

    __slots__ = ("loaded", "logs")

    def __init__(self) -> None:
        self.logs = 0
        """Logs of the directories that were looked at so far."""
        self.loaded = 0

    def count(self, logs: Iterable[Log]) -> Iterator[Log]:
        """The same logs, each counted when it is there."""
        for log in logs:
            self.loaded += 1
            yield log


class DirectoryLoader:
    """Loads the logs of log directories."""

    def __init__(
        self,
        checkpoint_writer: CheckpointWriter,
        stray_logs: StrayLogs,
        default_config: LogConfig,
        threads: int,
        make_executor: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        self._checkpoint_writer = checkpoint_writer
        self._stray_logs = stray_logs
        self._default_config = default_config
        self._threads = threads
        self._make_executor = make_executor
        self.progress = RecoveryProgress()

    def load(self, store: LogDirectory, configs: Mapping[str, LogConfig]) -> LoadedDirectory:
        """Load the logs of a directory; `configs` are the settings of topics that differ from the default.

        Raises OSError and StorageFailed. Reads files, and after a crash all that was not flushed.
        """
        clean = checkpoints.take_clean_shutdown(store.files, store.path)
        found = self._read_checkpoints(store)
        partitions = self._find_partitions(store)
        if not clean and partitions:
            logger.info("%s was not closed cleanly: recovering its %d logs.", store.path, len(partitions))

        def load(partition: tuple[TopicPartition, str]) -> Log:
            tp, path = partition
            config = configs.get(tp.topic, self._default_config)
            if not found.list_all_of(tp) and (known := strays.read_offsets(store.files, path)) is not None:
                return self._recover_taken_back(tp, store, path, config, known)
            if clean:
                return _open_closed(tp, store, path, config, found)
            return self._recover(tp, store, path, config, found)

        self.progress.logs += len(partitions)
        if clean or self._threads == 1:
            return LoadedDirectory(list(self.progress.count(map(load, partitions))), clean)
        with self._make_executor(self._threads, "barnabas-recovery") as threads:
            return LoadedDirectory(list(self.progress.count(threads.map(load, partitions))), clean)

    def _read_checkpoints(self, store: LogDirectory) -> _Checkpoints:
        found = {name: store.read_checkpoint(name) for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED)}
        for name, offsets in found.items():
            self._checkpoint_writer.add_read(store, name, offsets)
        return _Checkpoints(*found.values())

    def _find_partitions(self, store: LogDirectory) -> list[tuple[TopicPartition, str]]:
        """The partitions of a directory; deleted ones go on being removed, and those set aside are noted."""
        found, set_aside = [], []
        for name in store.files.subdirectories(store.path):
            path = f"{store.path}/{name}"
            moved = moved_from(name)
            if moved is None:
                if (tp := partition_of(name)) is not None:
                    found.append((tp, path))
                else:
                    logger.warning("%r is not a partition's directory: it is left alone.", path)
            elif moved.suffix == "delete":
                store.discard((path,), 0, is_dir=True)
            elif moved.suffix == "stray":
                set_aside.append(name)
            else:
                logger.warning("%r is a -%s directory of Apache Kafka: it is left alone.", path, moved.suffix)
        self._stray_logs.find_in(store, set_aside)
        return found

    def _recover(
        self, tp: TopicPartition, store: LogDirectory, path: str, config: LogConfig, found: _Checkpoints
    ) -> Log:
        """Recover a log that was not closed cleanly.

        Where Kafka's cleaner has been, there may be gaps between segments, up to where the checkpoints say that it
        came. If they were lost, or not copied with the log, any gap may be one. In a log that was made here and that no
        checkpoint has listed yet, every gap is what a power loss has left.
        """
        is_new = checkpoints.is_marked_unlisted(store.files, path)
        is_lost = CLEANED in store.damaged or (tp not in found.recovery_points and config.compact and not is_new)
        is_unknown = is_lost and tp not in found.cleaned
        log = Log.recover(
            tp,
            store,
            path,
            config,
            log_start_offset=found.log_starts.get(tp, 0),
            recovery_point=found.recovery_points.get(tp, 0),
            high_watermark=found.high_watermarks.get(tp, 0),
            cleaned_to=NO_GAP_IS_DAMAGE if is_unknown else found.cleaned.get(tp),
        )
        if is_unknown:
            log.cleaned_to = None
        if is_new:
            self._checkpoint_writer.add_new(log)
        return log

    def _recover_taken_back(
        self, tp: TopicPartition, store: LogDirectory, path: str, config: LogConfig, known: Offsets
    ) -> Log:
        """Read a log whole that was taken back just before a crash, and does not stand in the checkpoints yet."""
        log = Log.recover(
            tp,
            store,
            path,
            config,
            log_start_offset=known.log_start_offset,
            recovery_point=0,
            high_watermark=known.high_watermark,
            cleaned_to=known.gaps_end,
        )
        log.cleaned_to = known.cleaned_to
        self._checkpoint_writer.add_taken_back(log)
        return log


def _open_closed(tp: TopicPartition, store: LogDirectory, path: str, config: LogConfig, found: _Checkpoints) -> Log:
    """A log that was closed cleanly: its files are looked at when it is first used, if the checkpoints list it."""
    is_listed = tp in found.recovery_points and tp in found.log_starts
    start, end = found.log_starts.get(tp, 0), found.recovery_points.get(tp, 0)
    high_watermark = found.high_watermarks.get(tp, 0)
    log = Log(tp, store, path, config, log_start_offset=start, recovery_point=end)
    log.cleaned_to = found.cleaned.get(tp)
    log.high_watermark = high_watermark  # opening looks for what is not known to be committed
    if not is_listed:
        with suppress(TornLog):  # it alone is not served
            log.open()
    log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
    return log
