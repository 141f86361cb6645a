"""All logs of a broker, in one or more log directories.

The manager starts and stops them, and holds the background work as small functions that the broker calls when it is
time; it has no timers of its own. After a clean stop, loading costs next to nothing: where each log begins and ends
stands in the checkpoints, and a log's own files are looked at when it is first used. Logs that were not closed cleanly
are recovered before the broker serves anyone.

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
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import BarnabasError, LogDirNotFound, NotLeaderOrFollower, StartupError, StorageFailed
from barnabas.model.ids import NO_ID, TopicPartition
from barnabas.model.log_config import LogConfig
from barnabas.storage import checkpoints, strays
from barnabas.storage.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, DamagedCheckpoint
from barnabas.storage.directory import LogDirectory
from barnabas.storage.files import FilePool, FileSystem
from barnabas.storage.log import Log
from barnabas.storage.names import moved_from, moved_name, partition_of
from barnabas.storage.recovery import TornLog
from barnabas.storage.retention import expired_segments
from barnabas.storage.strays import Offsets, Stray

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from barnabas.model.clock import Clock

logger = logging.getLogger(__name__)

DAY_MS: Final = 86_400_000

_FLUSH_THREADS: Final = 4
_CLOSE_THREADS: Final = 16
_NO_GAP_IS_DAMAGE: Final = (1 << 63) - 1
"""Cleaned to here, for all that is known: where the checkpoints are silent, compaction may have left any gap."""


_CHECKPOINTS: Final[Mapping[str, Callable[[Log], int | None]]] = {
    RECOVERY_POINTS: lambda log: log.recovery_point,
    LOG_STARTS: lambda log: log.log_start_offset,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
    CLEANED: lambda log: log.cleaned_to,
}
"""What each file says of a log; one that was never cleaned is left out."""


class _FlushWaiter(NamedTuple):
    offset: int
    done: Future[int]


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
        producer_id_expiration_ms: int = DAY_MS,
    ) -> None:
        if max_open_files is None:
            max_open_files = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, 64)
        self.pool = FilePool(files or FileSystem(), max_open_files)
        self._default_config = default_config or LogConfig()
        self._recovery_threads = recovery_threads
        self._clock = clock
        self._directories = {
            str(Path(path).absolute()): LogDirectory(
                str(Path(path).absolute()),
                self.pool,
                clock,
                producer_expiration_ms=producer_id_expiration_ms,
                background=self._submit,
                lower_checkpoints=self._lower_checkpoints,
            )
            for path in directories
        }
        self._logs: dict[TopicPartition, Log] = {}
        self._strays: dict[tuple[UUID, int], list[Stray]] = {}
        """Logs that were set aside, by topic id and partition."""
        self._taken_back: set[Log] = set()
        """Logs that were taken back, and do not stand in the checkpoints yet."""
        self._preferred: dict[tuple[UUID, int], str] = {}
        """Where logs shall be made, by their topics' ids: a later topic of the same name inherits nothing."""
        self._checkpoint_lock = threading.Lock()
        self._written: dict[tuple[str, str], dict[TopicPartition, int]] = {}
        self._names_lock = threading.Lock()
        self._gone: dict[TopicPartition, Log] = {}
        """Logs that were taken away while a flush wrote into their directories: their names are not free yet."""
        self._flush_lock = threading.Lock()
        self._flush_waiters: dict[Log, list[_FlushWaiter]] = {}
        self._flushing: set[Log] = set()
        self._executor: ThreadPoolExecutor | None = None
        self._closing = False

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
        return [stray for found in list(self._strays.values()) for stray in list(found)]

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

    # Starting

    def load(self, *, broker_id: int, cluster_id: str, configs: Mapping[str, LogConfig]) -> None:
        """Lock the directories, check whose they are, load every log and recover what was not closed cleanly. Blocks.

        `configs` has the settings of topics that differ from the default. A directory that cannot be read is left out;
        StartupError when none is left, or a directory belongs to someone else.
        """
        try:
            for store in self._directories.values():
                self._try(store, lambda store: self._take(store, broker_id, cluster_id))
            for store in self._directories.values():
                self._try(store, lambda store: self._load_directory(store, configs))
            if len(self.failed_directories) == len(self._directories):
                reasons = "; ".join(f"{path}: {reason}" for path, reason in self.failed_directories.items())
                raise StartupError(f"no log directory can be used: {reasons}")
        except StartupError:
            self.close()
            raise

    def _try(self, store: LogDirectory, work: Callable[[LogDirectory], None]) -> None:
        if store.failed is None:
            try:
                work(store)
            except OSError as error:
                store.fail(error, "loading", undone=False)
            except StorageFailed as error:
                store.distrust(f"loading failed: {error}")

    def _take(self, store: LogDirectory, broker_id: int, cluster_id: str) -> None:
        store.prepare()
        store.own(broker_id, cluster_id)

    def _load_directory(self, store: LogDirectory, configs: Mapping[str, LogConfig]) -> None:
        started = time.monotonic()
        clean = checkpoints.take_clean_shutdown(store.files, store.path)
        recovery_points = store.read_checkpoint(RECOVERY_POINTS)
        log_starts = store.read_checkpoint(LOG_STARTS)
        high_watermarks = store.read_checkpoint(HIGH_WATERMARKS)
        cleaned = store.read_checkpoint(CLEANED)
        partitions = self._find_partitions(store)
        if not clean and partitions:
            logger.info("%s was not closed cleanly: recovering %d logs", store.path, len(partitions))

        def load(tp: TopicPartition, path: str) -> Log:
            config = configs.get(tp.topic, self._default_config)
            recovery_point, log_start = recovery_points.get(tp, 0), log_starts.get(tp, 0)
            high_watermark = high_watermarks.get(tp, 0)
            is_noted = tp in recovery_points and tp in log_starts and tp in high_watermarks
            if not is_noted and (known := strays.read_offsets(store.files, path)) is not None:
                return self._recover_taken_back(tp, store, path, config, known)
            if not clean:
                is_lost = CLEANED in store.damaged or (tp not in recovery_points and config.compact)
                is_unknown = is_lost and tp not in cleaned
                log = Log.recover(
                    tp,
                    store,
                    path,
                    config,
                    log_start_offset=log_start,
                    recovery_point=recovery_point,
                    high_watermark=high_watermark,
                    cleaned_to=_NO_GAP_IS_DAMAGE if is_unknown else cleaned.get(tp),
                )
                if is_unknown:
                    log.cleaned_to = None
                return log
            log = Log(tp, store, path, config, log_start_offset=log_start, recovery_point=recovery_point)
            log.cleaned_to = cleaned.get(tp)
            log.high_watermark = high_watermark  # opening looks for what is not known to be committed
            if tp not in recovery_points or tp not in log_starts:
                with suppress(TornLog):  # it alone is not served
                    log.open()
            log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
            return log

        if clean or self._recovery_threads == 1:
            loaded = [load(tp, path) for tp, path in partitions]
        else:
            with ThreadPoolExecutor(self._recovery_threads, "barnabas-recovery") as threads:
                loaded = list(threads.map(lambda partition: load(*partition), partitions))
        for log in loaded:
            if log.tp in self._logs:
                raise StartupError(
                    f"{log.tp} is in two log directories, {self._logs[log.tp].log_dir} and {store.path}; "
                    "remove the one that is out of date"
                )
            self._logs[log.tp] = store.logs[log.tp] = log
        self._written[store.path, RECOVERY_POINTS] = recovery_points
        self._written[store.path, LOG_STARTS] = log_starts
        self._written[store.path, HIGH_WATERMARKS] = high_watermarks
        self._written[store.path, CLEANED] = cleaned
        for log in loaded if not clean else ():  # before anything is written after what was cut
            self._lower_checkpoints(log)
        store.loaded = True
        logger.info("loaded %d logs of %s in %.3f s", len(store.logs), store.path, time.monotonic() - started)

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
            cleaned_to=_NO_GAP_IS_DAMAGE,
        )
        log.cleaned_to = known.cleaned_to
        self._taken_back.add(log)
        return log

    def _find_partitions(self, store: LogDirectory) -> list[tuple[TopicPartition, str]]:
        found = []
        set_aside: list[Stray] = []
        for name in store.files.subdirectories(store.path):
            path = f"{store.path}/{name}"
            moved = moved_from(name)
            if moved is not None:
                if moved.suffix == "delete":
                    store.discard((path,), 0, is_dir=True)
                elif (stray := strays.find_stray(store, name, self._default_config.file_delete_delay_ms)) is not None:
                    set_aside.append(stray)
                else:
                    logger.warning("left %r alone: it is a -%s directory of Kafka", path, moved.suffix)
            elif (tp := partition_of(name)) is not None:
                found.append((tp, path))
            else:
                logger.warning("left %r alone: it is not a partition's directory", path)
        for stray in set_aside:
            self._strays.setdefault(stray.key, []).append(stray)
        if set_aside:
            logger.warning(
                "%d logs of %s are set aside, the first is %s: `barnabas log strays` shows them all",
                len(set_aside),
                store.path,
                set_aside[0].path,
            )
        return found

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

        It is made where it was preferred to be, or else in the directory with the fewest logs.

        A log that another topic of the same name left is set aside, and one of this topic that was set aside is taken
        back. A partition that is not new may lie in a directory that could not be loaded: as long as there is one, it
        is not made anew elsewhere.

        Waits for the file system, so it is best called in a thread; `get` finds the log when it is done.
        """
        with self._names_lock:
            log = self._logs.get(tp)
            if log is not None and self._may_be(log, topic_id):
                log.set_topic_id(topic_id)
                return log
            if log is not None:
                logger.info("%s belongs to an earlier topic of that name, or to none", log.directory)
                self._set_aside(log)
            stray = self._claim_stray(tp, topic_id)
            if stray is None:
                return self._create(tp, topic_id, config, is_new)
        return self._take_back(stray, tp, config)

    def _may_be(self, log: Log, topic_id: UUID) -> bool:
        """Whether a log is a topic's: an empty one without an id, made in part, is not if the topic's own is aside."""
        if log.topic_id == NO_ID and log.log_end_offset == 0:
            return not self._find_strays(log.tp, topic_id)
        return log.topic_id in (NO_ID, topic_id)

    def _claim_stray(self, tp: TopicPartition, topic_id: UUID) -> Stray | None:
        """The log of this partition that was set aside, if there is one, in its old place again."""
        found = self._find_strays(tp, topic_id)
        if not found:
            self._strays.pop((topic_id, tp.partition), None)
            return None
        stray = strays.furthest(found)
        known = stray.offsets or strays.read_offsets(stray.store.files, stray.path) or Offsets()
        strays.write_offsets(stray.store, stray.path, known)  # before it has a name that checkpoints speak of
        self._free_name(tp, stray.store)
        stray.store.files.rename(stray.path, f"{stray.store.path}/{tp}")
        self._strays[stray.key].remove(stray)
        return stray._replace(offsets=known)

    def _find_strays(self, tp: TopicPartition, topic_id: UUID) -> list[Stray]:
        """The logs of this partition that were set aside and are still there: an operator may have removed them."""
        found = self._strays.get((topic_id, tp.partition), []) if topic_id != NO_ID else []
        return [stray for stray in found if stray.store.files.exists(stray.path)]

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
                cleaned_to=_NO_GAP_IS_DAMAGE,
            )
            log.cleaned_to = known.cleaned_to
            log.flush()
        except (BarnabasError, OSError):
            with self._names_lock:
                store.files.rename(path, stray.path)
                self._strays.setdefault(stray.key, []).append(stray)
            raise
        with self._names_lock:
            self._logs[tp] = store.logs[tp] = log
            self._taken_back.add(log)
        if log.torn is not None:  # so that it is refused again after a crash
            self._checkpoint(store)
        logger.warning("took %s back as %s: it ends at offset %d", stray.path, path, log.log_end_offset)
        return log

    def _free_name(self, tp: TopicPartition, store: LogDirectory) -> None:
        """See to it that an earlier partition of the same name lends nothing to the one that is about to be made."""
        if any(tp in self._written.get((store.path, name), ()) for name in _CHECKPOINTS):
            self._checkpoint(store)
        if (gone := self._gone.pop(tp, None)) is not None:
            gone.wait_for_flush()

    def _create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig, is_new: bool) -> Log:
        offline = [store.path for store in self._directories.values() if not store.loaded]
        if offline and not is_new:
            raise StorageFailed(f"{tp} may be in {', '.join(offline)}, which could not be loaded")
        usable = [store for store in self._directories.values() if store.failed is None]
        if not usable:
            raise StorageFailed(f"{tp} cannot be made: all log directories have failed")
        preferred = self._preferred.pop((topic_id, tp.partition), None)
        store = min(usable, key=lambda store: (store.path != preferred, len(store.logs)))
        self._free_name(tp, store)
        path = f"{store.path}/{tp}"
        self._clear_away(tp, store, path, topic_id)
        log = Log.create(tp, store, path, config, topic_id)
        self._logs[tp] = store.logs[tp] = log
        return log

    def _clear_away(self, tp: TopicPartition, store: LogDirectory, path: str, topic_id: UUID) -> None:
        """Set aside what a log of this name has left here that could not be renamed when it was to go."""
        if not store.files.exists(path) or not any(entry.size for entry in store.files.entries(path)):
            return
        found = strays.topic_id_of(store.files, path)
        if found != topic_id:
            stray = f"{store.path}/{moved_name(tp, 'stray')}"
            with store.writing(f"renaming {path}"):
                store.files.rename(path, stray)
            logger.warning("%s belongs to an earlier topic of that name: it is set aside as %s", path, stray)
            left = Stray(stray, store, tp.topic, tp.partition, found, self._default_config.file_delete_delay_ms)
            self._strays.setdefault(left.key, []).append(left)

    def set_aside(self, log: Log) -> Stray | None:
        """Take a log away that is not this broker's any more, but keep its files; None if its disk does not allow it.

        Whether they may be removed is decided later, by who has asked the metadata tree. Waits for the file system, and
        for logs that are being made; runs in a thread.
        """
        with self._names_lock:
            return self._set_aside(log) if self._logs.get(log.tp) is log else None

    def _set_aside(self, log: Log) -> Stray | None:
        """Close a log and give its directory another name."""
        tp = log.tp
        store = self.store_of(log)
        topic_id, name, known = log.topic_id, moved_name(tp, "stray"), strays.offsets_of(log)
        del self._logs[tp], store.logs[tp]
        try:
            log.mark_deleted(f"{store.path}/{name}")
        except (BarnabasError, OSError) as error:
            logger.error("%s stays where it is: %s", log.directory, error)
            return None
        self._gone = {tp: each for tp, each in (self._gone | {tp: log}).items() if each.is_flushing}
        delay = log.config.file_delete_delay_ms
        stray = Stray(f"{store.path}/{name}", store, tp.topic, tp.partition, topic_id, delay, known)
        self._strays.setdefault(stray.key, []).append(stray)
        return stray

    def note_offsets(self, kept: Iterable[Stray]) -> set[str]:
        """Note beside logs that stay set aside what is known of their offsets. Waits for the file system.

        Returns the paths of those where that failed, as on a full disk.
        """
        failed = set()
        for stray in kept:
            if stray.offsets is not None:
                try:
                    strays.write_offsets(stray.store, stray.path, stray.offsets)
                except (BarnabasError, OSError) as error:  # it may have been taken back, or removed, meanwhile
                    logger.info("no offsets are noted in %s: %s", stray.path, error)
                    failed.add(stray.path)
        return failed

    def delete_stray(self, stray: Stray) -> bool:
        """Have a log that was set aside removed for good, after file.delete.delay.ms; False if it was taken back.

        Waits as `set_aside` does.
        """
        with self._names_lock:
            found = self._strays.get(stray.key, [])
            if stray not in found:
                return False
            path = f"{stray.store.path}/{moved_name(TopicPartition(stray.topic, stray.partition), 'delete')}"
            try:
                stray.store.check_removable()
                stray.store.files.rename(stray.path, path)
            except FileNotFoundError:  # an operator was faster
                found.remove(stray)
                return False
            except (BarnabasError, OSError) as error:
                logger.error("%s stays where it is: %s", stray.path, error)
                return False
            found.remove(stray)
            stray.store.discard((path,), self._clock.now_ms() + stray.delete_delay_ms, is_dir=True)
            return True

    # Background work

    def flush_through(self, log: Log, offset: int) -> Future[int]:
        """Done when everything before `offset` is on disk, with the recovery point; StorageFailed otherwise.

        Calls that come while a flush of the same log is under way share the next one.
        """
        done: Future[int] = Future()
        if log.recovery_point >= offset:
            done.set_result(log.recovery_point)
            return done
        with self._flush_lock:
            self._flush_waiters.setdefault(log, []).append(_FlushWaiter(offset, done))
            if log in self._flushing:
                return done
            self._flushing.add(log)
        self._submit(lambda: self._flush_for_waiters(log))
        return done

    def _flush_for_waiters(self, log: Log) -> None:
        while True:
            with self._flush_lock:
                waiters = self._flush_waiters.pop(log, [])
                if not waiters:
                    self._flushing.discard(log)
                    return
            try:
                recovery_point = log.flush()
            except Exception as error:
                for waiter in waiters:
                    waiter.done.set_exception(error)
                continue
            for waiter in waiters:
                if recovery_point >= waiter.offset:
                    waiter.done.set_result(recovery_point)
                else:
                    cut = NotLeaderOrFollower(f"{log.tp} was cut before offset {waiter.offset}")
                    waiter.done.set_exception(cut)

    def _submit(self, work: Callable[[], None]) -> None:
        with self._flush_lock:
            if self._closing:
                return
            if self._executor is None:
                self._executor = ThreadPoolExecutor(_FLUSH_THREADS, "barnabas-flush")
            try:
                self._executor.submit(work)
            except RuntimeError as error:  # it is in the queue nevertheless, and done by the next thread that starts
                logger.error("what is to be synced has to wait: %s", error)

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms has passed. Runs in a thread."""
        for log in self.logs():
            if log.log_end_offset > log.recovery_point and now_ms - log.last_flush_ms >= log.config.flush_ms:
                log.try_flush()

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets and high watermarks, where they changed. Runs in a thread."""
        for store in self._directories.values():
            if store.failed is None and store.loaded:
                try:
                    self._checkpoint(store)
                except StorageFailed as error:
                    logger.warning("could not write the checkpoints of %s: %s", store.path, error)

    def _checkpoint(self, store: LogDirectory) -> None:
        with self._checkpoint_lock:  # who looked earlier must not write later
            taken_back = [log for log in list(self._taken_back) if store.logs.get(log.tp) is log]
            logs = list(store.logs.values())
            for name, offset_of in _CHECKPOINTS.items():
                self._write(store, name, _offsets(logs, offset_of))
            for log in taken_back:
                strays.forget_offsets(store.files, str(log.directory))
                self._taken_back.discard(log)

    def _lower_checkpoints(self, log: Log) -> None:
        """Write the checkpoints that say more of a log than it does: before it is cut, or after a crash has cut it.

        Those who wait share a write. A log that was just taken back has a note of its own instead; from here on it
        stands in the checkpoints.
        """
        store, tp = self.store_of(log), log.tp
        if log in self._taken_back:
            self._checkpoint(store)
            return
        with self._checkpoint_lock:
            logs = list(store.logs.values())
            for name, offset_of in _CHECKPOINTS.items():
                if self._written.get((store.path, name), {}).get(tp, 0) > (offset_of(log) or 0):
                    self._write(store, name, _offsets(logs, offset_of))

    def checkpoint_cleaned(self, log: Log) -> None:
        """Write up to where logs are clean, after `log` was cleaned. Waits for the disk."""
        with self._checkpoint_lock:
            store = self.store_of(log)
            self._write(store, CLEANED, _offsets(list(store.logs.values()), _CHECKPOINTS[CLEANED]))

    def store_of(self, log: Log) -> LogDirectory:
        """The log directory that a log is in."""
        return self._directories[str(log.log_dir)]

    def _write(self, store: LogDirectory, name: str, offsets: dict[TopicPartition, int]) -> None:
        if self._written.get((store.path, name)) != offsets:
            store.write_checkpoint(name, offsets)
            self._written[store.path, name] = offsets

    @property
    def can_make_logs(self) -> bool:
        """Whether a directory takes writes, and none could not be loaded, in which a log may lie already."""
        stores = self._directories.values()
        return any(store.failed is None for store in stores) and all(store.loaded for store in stores)

    def try_failed_directories(self) -> list[Log]:
        """Use directories again that were full and have room now; returns their logs. Waits for the disk."""
        return [log for store in self._directories.values() if store.try_again() for log in list(store.logs.values())]

    def retention_pass(self, now_ms: int) -> int:
        """Remove the segments that retention says; returns how many. Runs in a thread."""
        removed = 0
        for log in self.logs():
            if not self.store_of(log).doubtful and log.upkeep.acquire(blocking=False):
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
            logger.warning("retention of %s did not finish: %s", log.tp, error)
            return 0
        if count:
            logger.info("removed %d segments of %s; it starts at %d", count, log.tp, log.log_start_offset)
        return count

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms."""
        for log in self.logs():
            log.expire_producers(now_ms)

    def delete_due(self, now_ms: int) -> int:
        """Remove deleted files and partitions whose file.delete.delay.ms has passed; returns how many. In a thread."""
        return sum(store.empty_trash(now_ms) for store in self._directories.values() if not store.doubtful)

    # Stopping

    def close(self, *, clean: bool = True) -> None:
        """Flush and close every log, write the checkpoints, mark the stop as clean, unlock. Blocks.

        With `clean=False` nothing is written, as in a crash.
        """
        with self._flush_lock:
            self._closing = True
        if self._executor is not None:
            self._executor.shutdown(wait=True)
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
                with ThreadPoolExecutor(_CLOSE_THREADS, "barnabas-close") as threads:
                    for _ in threads.map(Log.close, logs):
                        pass
            elif logs:
                logs[0].close()
            self._checkpoint(store)
            if not store.unrecovered:
                checkpoints.write_clean_shutdown(store.files, store.path)
        except (StorageFailed, OSError) as error:
            logger.error("%s was not closed cleanly; the next start reads its logs again: %s", store.path, error)


def _offsets(logs: Iterable[Log], offset_of: Callable[[Log], int | None]) -> dict[TopicPartition, int]:
    return {log.tp: offset for log in logs if (offset := offset_of(log)) is not None}
