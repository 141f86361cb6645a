"""All logs of a broker, in one or more log directories.

The manager starts and stops them, makes and deletes logs, and holds the background work as small functions that the
broker calls when it is time; it has no timers of its own. Its parts: loading at the start
(`recovery/directory_loading`), the offset checkpoints (`checkpoint_writer`), flushes that somebody waits for
(`flush_queue`), and logs that are set aside (`stray_logs`).

A directory that fails takes its logs out of writing, and no others.
"""

from __future__ import annotations

import logging
import resource
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import BarnabasError, LogDirNotFound, StartupError, StorageFailed
from barnabas.model.ids import NO_ID, TopicPartition
from barnabas.model.log_config import LogConfig
from barnabas.storage import checkpoints
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.checkpoints import DamagedCheckpoint
from barnabas.storage.directory import LogDirectory
from barnabas.storage.file_pool import FilePool
from barnabas.storage.files import SHORTAGES, FileSystem
from barnabas.storage.flush_queue import FlushQueue
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import expired_segments
from barnabas.storage.recovery.directory_loading import DirectoryLoader
from barnabas.storage.recovery.loading import TornLog
from barnabas.storage.stray_logs import StrayLogs
from barnabas.storage.strays import Offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Executor
    from uuid import UUID

    from barnabas.model.clock import Clock
    from barnabas.storage.flush_times import FlushTimes
    from barnabas.storage.recovery.directory_loading import RecoveryProgress
    from barnabas.storage.strays import Stray

logger = logging.getLogger(__name__)

DAY_MS: Final = 86_400_000

_CLOSE_THREADS: Final = 16


class LogManager:
    """The logs of one broker."""

    def __init__(
        self,
        directories: Sequence[Path | str],
        *,
        clock: Clock,
        default_config: LogConfig | None = None,
        files: FileSystem | None = None,
        recovery_threads: int = 1,
        max_open_files: int | None = None,
        make_pool: Callable[[FileSystem, int], FilePool] = FilePool,
        producer_id_expiration_ms: int = DAY_MS,
        flush_queue: FlushQueue | None = None,
        make_executor: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        max_open_files = max_open_files or max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, 64)
        self.pool = make_pool(files or FileSystem(), max_open_files)
        default_config = default_config or LogConfig()
        self._clock = clock
        self._checkpoints = CheckpointWriter()
        self._make_executor = make_executor
        self._flush_queue = flush_queue or FlushQueue(make_executor)
        self._strays = StrayLogs(default_config.file_delete_delay_ms)
        self._loader = DirectoryLoader(self._checkpoints, self._strays, default_config, recovery_threads, make_executor)
        self._directories = {
            str(Path(path).absolute()): LogDirectory(
                str(Path(path).absolute()),
                self.pool,
                clock,
                producer_expiration_ms=producer_id_expiration_ms,
                background=self._flush_queue.submit,
                lower_checkpoints=self._checkpoints.lower,
                list_in_checkpoints=self._checkpoints.list_log,
            )
            for path in directories
        }
        self._logs: dict[TopicPartition, Log] = {}
        self._preferred: dict[tuple[UUID, int], str] = {}
        """Where logs shall be made, by their topics' ids: a later topic of the same name inherits nothing."""
        self._names_lock = threading.Lock()
        """Held to make logs, set them aside and take them back: a directory's name has one user at a time."""
        self._gone: dict[TopicPartition, Log] = {}
        """Logs that were taken away while a flush wrote into their directories: their names are not free yet."""

    # What there is

    def get(self, tp: TopicPartition) -> Log | None:
        """The partition's log, if this broker has it."""
        return self._logs.get(tp)

    def logs(self) -> Collection[Log]:
        """Every log."""
        return list(self._logs.values())

    def logs_in(self, directory: Path) -> Collection[Log]:
        """The logs of one log directory."""
        store = self._directories.get(str(directory))
        return [] if store is None else list(store.logs.values())

    def strays(self) -> list[Stray]:
        """The logs that were set aside; without the lock, which whoever makes logs may hold for long."""
        return self._strays.all()

    @property
    def directories(self) -> tuple[Path, ...]:
        """log.dirs, as absolute paths."""
        return tuple(Path(path) for path in self._directories)

    @property
    def failed_directories(self) -> Mapping[Path, str]:
        """The directories that take no more writes, and why."""
        return {Path(path): store.failed for path, store in self._directories.items() if store.failed is not None}

    @property
    def have_failed(self) -> bool:
        """Whether a directory takes no more writes, or a log cannot be used."""
        return any(store.failed is not None or store.torn for store in self._directories.values())

    def failed_logs(self) -> list[TopicPartition]:
        """The logs of directories that take no more writes, and those that could not be used when they were loaded."""
        return [
            tp
            for store in self._directories.values()
            for tp in list(store.torn if store.failed is None else store.logs)
        ]

    def stored_cluster_id(self) -> str | None:
        """The cluster id in meta.properties, of the first directory that has one."""
        for path in self._directories:
            try:
                properties = checkpoints.read_meta_properties(self.pool.files, path)
            except DamagedCheckpoint as error:
                raise StartupError(str(error)) from None
            if properties is not None and properties.cluster_id is not None:
                return properties.cluster_id
        return None

    @property
    def flush_times(self) -> list[FlushTimes]:
        """How long syncs took, of each directory."""
        return [store.flush_times for store in self._directories.values()]

    @property
    def progress(self) -> RecoveryProgress:
        """How far `load` is."""
        return self._loader.progress

    # Starting

    def load(self, *, broker_id: int, cluster_id: str, configs: Mapping[str, LogConfig]) -> None:
        """Lock the directories, check whose they are, load every log and recover what was not closed cleanly. Blocks.

        `configs` has the settings of topics that differ from the default. A directory that cannot be read is left out;
        StartupError when none is left, or a directory belongs to someone else.
        """
        try:
            for store in self._directories.values():
                self._attempt(store, lambda store: self._lock_directory(store, broker_id, cluster_id))
            for store in self._directories.values():
                self._attempt(store, lambda store: self._load_directory(store, configs))
            if len(self.failed_directories) == len(self._directories):
                reasons = "; ".join(f"{path}: {reason}" for path, reason in self.failed_directories.items())
                raise StartupError(f"no log directory can be used: {reasons}")
        except StartupError:
            self.close()
            raise

    def _attempt(self, store: LogDirectory, work: Callable[[LogDirectory], None]) -> None:
        """Do a part of the start for one directory: if that fails, the directory has failed, and the others go on.

        A shortage of descriptors or memory is no failure of the disk. Nobody would load the directory again when it is
        over, so the broker does not start: StartupError.
        """
        if store.failed is None:
            try:
                work(store)
            except OSError as error:
                _refuse_shortage(store, error)
                store.fail(error, "loading", undone=False)
            except StorageFailed as error:
                _refuse_shortage(store, error.__cause__)
                store.distrust(f"loading failed: {error}")

    def _lock_directory(self, store: LogDirectory, broker_id: int, cluster_id: str) -> None:
        store.prepare()
        store.check_owner(broker_id, cluster_id)

    def _load_directory(self, store: LogDirectory, configs: Mapping[str, LogConfig]) -> None:
        started = time.monotonic()
        loaded = self._loader.load(store, configs)
        for log in loaded.logs:
            if log.tp not in self._logs or self._is_used_of_two(log, self._logs[log.tp]):
                self._logs[log.tp] = store.logs[log.tp] = log
            _ = log.topic_id  # read here: on the event loop, which needs all of them, it would be a file for each log
        if not loaded.clean:
            for log in store.logs.values():  # before anything is written after what was cut
                self._checkpoints.lower(log)
        store.loaded = True
        logger.info("Loaded %d logs of %s in %.3f s.", len(store.logs), store.path, time.monotonic() - started)

    def _is_used_of_two(self, log: Log, first: Log) -> bool:
        """Two directories have logs of one partition: set one aside. Whether the one that was found later is used.

        One that never had a record, and is of no other topic, was begun while descriptors or room ran short, and then
        made elsewhere.

        If they are of two topics, the earlier one was deleted, and the later one made, while a directory could not be
        used. Which one is which is known when the partition is asked for (`create`): if it is the one that is set aside
        now, the two change places.
        """
        aside, why = log, "for two topics of this name; it is used if it is the one of the topic that there is now"
        if _is_nothing_beside(log, first):
            why = "and has no records there"
        elif _is_nothing_beside(first, log):
            aside, why = first, "and has no records there"
            del first.store.logs[log.tp]
        elif NO_ID in (first.topic_id, log.topic_id) or first.topic_id == log.topic_id:
            raise StartupError(
                f"{log.tp} is in two log directories, {first.log_dir} and {log.log_dir}. "
                "Remove the one that is out of date"
            )
        stray = self._strays.set_aside(aside)
        self._checkpoints.forget(aside)
        aside.store.torn.discard(log.tp)
        self._strays.write_offsets(stray)
        logger.warning("%s is in two log directories, %s: %s is kept as %s.", log.tp, why, aside.directory, stray.path)
        return aside is first

    # Making and deleting logs

    def check_directory(self, directory: Path) -> None:
        """Whether logs can be made in a directory: raises LogDirNotFound, StorageFailed."""
        store = self._directories.get(str(directory))
        if store is None:
            raise LogDirNotFound(f"{directory} is not in log.dirs")
        if store.failed is not None:
            raise StorageFailed(f"{directory} has failed: {store.failed}")

    def prefer(self, topic_id: UUID, index: int, directory: Path) -> None:
        """When the partition's log is made, make it in this directory; forgotten when the broker stops."""
        self._preferred[topic_id, index] = str(directory)

    def forget_preference(self, topic_id: UUID, index: int) -> None:
        """The partition does not come here after all: should it come later, it goes where there is most room."""
        self._preferred.pop((topic_id, index), None)

    def create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig, *, is_new: bool = True) -> Log:
        """The partition's log, made if need be; StorageFailed when all directories have failed.

        It is made where it was begun before, or preferred to be, or else in the directory with the fewest logs.

        A log that another topic of the same name left is set aside, and one of this topic that was set aside is taken
        back. A partition that is not new may lie in a directory that could not be loaded: as long as there is one, it
        is not made anew elsewhere.

        Waits for the file system, so it is best called in a thread; `get` finds the log when it is done.
        """
        with self._names_lock:
            log = self._logs.get(tp)
            if log is not None and self._belongs_to(log, topic_id):
                log.set_topic_id(topic_id)
                return log
            if log is not None:
                kept = self._set_aside(log).path
                logger.warning("%s has another topic's id: it is kept as %s, and a new log begins.", log.path, kept)
            stray = self._strays.claim(tp, topic_id, self._free_name)
            if stray is None:
                return self._create(tp, topic_id, config, is_new)
        return self._take_back(stray, tp, config)

    def _belongs_to(self, log: Log, topic_id: UUID) -> bool:
        """Whether a log is that of a topic; one that is empty and has no id is not, if the topic's own is set aside."""
        if log.topic_id == NO_ID and log.log_end_offset == 0:
            return not self._strays.find(log.tp, topic_id)
        return log.topic_id in (NO_ID, topic_id)

    def _take_back(self, stray: Stray, tp: TopicPartition, config: LogConfig) -> Log:
        """Read a log that was set aside, like after a crash; if that fails, it is set aside again.

        Without the lock: it may take long, and nobody else makes or takes this partition meanwhile. What is known of
        its offsets stays with it until it stands in the checkpoints.
        """
        store, path, known = stray.store, f"{stray.store.path}/{tp}", stray.offsets or Offsets()
        try:
            log = Log.recover(
                tp,
                store,
                path,
                config,
                log_start_offset=known.log_start_offset,
                recovery_point=known.recovery_point,
                high_watermark=known.high_watermark,
                cleaned_to=known.gaps_end,
            )
            log.cleaned_to = known.cleaned_to
            log.flush()
        except (BarnabasError, OSError):
            with self._names_lock:
                self._strays.give_back(stray, path)
            raise
        with self._names_lock:
            self._logs[tp] = store.logs[tp] = log
            self._checkpoints.add_taken_back(log)
        if log.torn is not None:  # so that it is refused again after a crash
            self._checkpoints.write(store)
        logger.warning(
            "%s was set aside and is used again, as %s. It ends at offset %d.", stray.path, path, log.log_end_offset
        )
        return log

    def _free_name(self, tp: TopicPartition, store: LogDirectory) -> None:
        """See to it that an earlier partition of the same name lends nothing to the one that is about to be made."""
        if self._checkpoints.lists(store, tp):
            self._checkpoints.write(store)
        if (gone := self._gone.pop(tp, None)) is not None:
            gone.wait_for_flush()

    def _create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig, is_new: bool) -> Log:
        offline = [store.path for store in self._directories.values() if not store.loaded]
        if offline and not is_new:
            raise StorageFailed(
                f"{tp} may be in {', '.join(offline)}, which could not be loaded: it is not made elsewhere"
            )
        usable = [store for store in self._directories.values() if store.failed is None]
        if not usable:
            raise StorageFailed(f"{tp} cannot be made: all log directories have failed")
        preferred = self._preferred.pop((topic_id, tp.partition), None)
        store = min(  # where it was begun, and a call failed, it is gone on with
            usable,
            key=lambda store: (
                not self.pool.files.exists(f"{store.path}/{tp}"),
                store.path != preferred,
                len(store.logs),
            ),
        )
        self._free_name(tp, store)
        path = f"{store.path}/{tp}"
        self._strays.clear_away(tp, store, path, topic_id)
        log = Log.create(tp, store, path, config, topic_id)
        self._logs[tp] = store.logs[tp] = log
        if config.compact:
            self._checkpoints.add_new(log)
        return log

    def set_aside(self, log: Log) -> Stray | None:
        """Take a log away that is not this broker's any more, but keep its files; None if it was taken away before.

        Whether they may be removed is decided later, by who has asked the metadata tree. Waits for the file system, and
        for logs that are being made; runs in a thread.
        """
        with self._names_lock:
            return self._set_aside(log) if self._logs.get(log.tp) is log else None

    def _set_aside(self, log: Log) -> Stray:
        tp, store = log.tp, log.store
        del self._logs[tp], store.logs[tp]
        store.torn.discard(tp)
        stray = self._strays.set_aside(log)
        self._checkpoints.forget(log)
        self._gone = {tp: each for tp, each in (self._gone | {tp: log}).items() if each.is_flushing}
        return stray

    def write_stray_offsets(self, kept: Iterable[Stray]) -> set[str]:
        """Note beside logs that stay set aside what is known of their offsets. Waits as `set_aside` does.

        Returns the paths of those where that failed, as on a full disk.
        """
        failed = set()
        for stray in kept:
            with self._names_lock:  # for each alone: whoever takes one back writes the same file
                if not self._strays.write_offsets(stray):
                    failed.add(stray.path)
        return failed

    def delete_stray(self, stray: Stray) -> bool:
        """Have a log that was set aside removed for good, after file.delete.delay.ms; False if it was taken back.

        Waits as `set_aside` does.
        """
        with self._names_lock:
            return self._strays.delete(stray, self._clock.now_ms())

    # Background work

    def flush_through(self, log: Log, offset: int) -> Future[int]:
        """Done when everything before `offset` is on disk, with the recovery point; StorageFailed otherwise.

        Calls that come while a flush of the same log is under way share the next one.
        """
        return self._flush_queue.flush_through(log, offset)

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms has passed. Runs in a thread."""
        for log in self.logs():
            if log.log_end_offset > log.recovery_point and now_ms - log.durability.last_flush_ms >= log.config.flush_ms:
                log.durability.try_flush()

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets and high watermarks, where they changed. Runs in a thread."""
        for store in self._directories.values():
            if store.failed is None and store.loaded:
                try:
                    self._checkpoints.write(store)
                except StorageFailed as error:
                    logger.warning("Could not write the checkpoints of %s: %s", store.path, error)

    def checkpoint_cleaned(self, log: Log) -> None:
        """Write up to where logs are clean, after `log` was cleaned. Waits for the disk."""
        self._checkpoints.write_cleaned(log.store)

    @property
    def can_make_logs(self) -> bool:
        """Whether a directory takes writes, and none could not be loaded, in which a log may lie already."""
        stores = self._directories.values()
        return any(store.failed is None for store in stores) and all(store.loaded for store in stores)

    def try_failed_directories(self) -> list[Log]:
        """Use directories again that were full and have room now; returns their logs. Waits for the disk."""
        return [log for store in self._directories.values() if store.try_again() for log in list(store.logs.values())]

    @property
    def start_moves(self) -> int:
        """How often the start of any log has moved so far."""
        return sum(store.start_moves for store in self._directories.values())

    def retention_pass(self, now_ms: int) -> int:
        """Remove the segments that retention says; returns how many. Runs in a thread."""
        removed = 0
        for log in self.logs():
            if not log.store.doubtful and log.upkeep.acquire(blocking=False):
                try:
                    removed += self.remove_expired(log, now_ms)
                finally:
                    log.upkeep.release()
        return removed

    def remove_expired(self, log: Log, now_ms: int) -> int:
        """Remove the segments of one log that retention says; returns how many. The caller has the log's upkeep."""
        try:
            expired = expired_segments(log, now_ms)
            count = log.remove_segments(expired, now_ms) if expired.count else 0
        except (BarnabasError, OSError) as error:
            logger.warning("Old segments of %s were not all removed: %s. The next pass tries again.", log.tp, error)
            return 0
        if count:
            logger.info("Removed %d segments of %s: it starts at offset %d.", count, log.tp, log.log_start_offset)
        return count

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms."""
        for log in self.logs():
            log.producers.expire(now_ms)

    def delete_due(self, now_ms: int) -> int:
        """Remove deleted files and partitions whose file.delete.delay.ms has passed; returns how many. In a thread."""
        return sum(store.empty_trash(now_ms) for store in self._directories.values() if not store.doubtful)

    # Stopping

    def close(self, *, clean: bool = True) -> None:
        """Flush and close every log, write the checkpoints, mark the stop as clean, unlock. Blocks.

        With `clean=False` nothing is written, as in a crash.
        """
        self._flush_queue.close()
        try:
            if clean:
                for store in self._directories.values():
                    if store.loaded and store.failed is None:
                        self._close_directory(store)
        finally:
            for log in self.logs():
                log.abandon()
            self.pool.close_idle()
            for store in self._directories.values():
                store.unlock()

    def _close_directory(self, store: LogDirectory) -> None:
        try:
            logs = [log for log in store.logs.values() if log.is_open]
            if len(logs) > 1:  # syncs of many files go together in the disk's journal
                with self._make_executor(_CLOSE_THREADS, "barnabas-close") as threads:
                    for _ in threads.map(Log.close, logs):
                        pass
            elif logs:
                logs[0].close()
            self._checkpoints.write(store)
            if not store.unrecovered:
                checkpoints.write_clean_shutdown(store.files, store.path)
        except (StorageFailed, OSError) as error:
            logger.error("%s was not closed cleanly: %s. The next start recovers its logs.", store.path, error)


def _is_nothing_beside(log: Log, other: Log) -> bool:
    """Whether a log can be done without: it never had a record, and may be of the same topic as another one."""
    with suppress(TornLog):
        log.open()  # its files say it, and no checkpoint
    return log.torn is None and log.log_end_offset == 0 and log.topic_id in (NO_ID, other.topic_id)


def _refuse_shortage(store: LogDirectory, error: BaseException | None) -> None:
    """Raise StartupError if loading a directory failed because descriptors or memory ran out."""
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        raise StartupError(
            f"log directory {store.path} could not be loaded: {error.strerror}. Its files are as they were. Raise the "
            "limit of open files (ulimit -n) or the memory of the broker, then start it again"
        ) from error
