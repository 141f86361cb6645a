"""One log directory (an entry of log.dirs): its lock, its checkpoints, whether it can still be written to.

A directory fails alone, and then takes no more writes; what was acknowledged stays readable. How it comes back depends
on what is known of its files:

    full       a write found no room (ENOSPC, EDQUOT), and what it had written was cut off again: memory and files
               agree. Old segments and deleted partitions are still removed, and it comes back by itself once something
               can be written and synced there again (`try_again`)
    doubtful   any other failure of the disk, a sync that failed, or a change that broke off half-way: nobody knows what
               is on the disk, so no later sync is believed. Its logs must be read again from their recovery points

A shortage of descriptors or memory is no failure of the disk: what could not be done is undone, and may be tried again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import StartupError, StorageFailed
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import DamagedCheckpoint, MetaProperties
from barnabas.storage.files import NO_ROOM, SHORTAGES, UnknownState
from barnabas.storage.flush_times import FlushTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.model.clock import Clock
    from barnabas.model.ids import TopicPartition
    from barnabas.storage.file_pool import FilePool
    from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)

_RETRY: Final = 1.0
_LONGEST_RETRY: Final = 30.0
"""Seconds until a full directory is tried again: twice as long each time, if it was full again soon after."""
_PROBE: Final = 1 << 20
"""Bytes that it must have room for."""
_PROBE_FILE: Final = "barnabas-probe"


class Trash(NamedTuple):
    """Files, or one directory, to be removed when their time has come."""

    due_ms: int
    paths: tuple[str, ...]
    is_dir: bool


IN_USE: Final = "log directory {} is in use by another broker. Stop that one, or give this one other log.dirs"


def check_broker(path: str, found: MetaProperties, broker_id: int) -> None:
    """Check that a directory is this broker's by its meta.properties; raises StartupError."""
    if found.version not in (0, 1):
        raise StartupError(f"{path} is of version {found.version}, which this version of Barnabas does not read")
    if found.broker_id not in (None, broker_id):
        raise StartupError(
            f"{path} belongs to broker {found.broker_id}, but broker.id is {broker_id}. Correct broker.id or log.dirs"
        )


class LogDirectory:
    """One of log.dirs, and what its logs share."""

    def __init__(
        self,
        path: str,
        pool: FilePool,
        clock: Clock,
        *,
        producer_expiration_ms: int,
        background: Callable[[Callable[[], None]], None],
        lower_checkpoints: Callable[[Log], None],
        list_in_checkpoints: Callable[[Log], None],
    ) -> None:
        self.path = path
        self.pool = pool
        self.files = pool.files
        self.clock = clock
        self.producer_expiration_ms = producer_expiration_ms
        self.background = background
        """Has something done soon, in another thread."""
        self.lower_checkpoints = lower_checkpoints
        """Lets no checkpoint on disk say more of a log than the log itself does; waits for the disk."""
        self.list_in_checkpoints = list_in_checkpoints
        """Has the checkpoints list a log, if they do not; waits for the disk."""
        self.failed: str | None = None
        """Why nothing more is written here."""
        self.doubtful = False
        """Whether it has failed in a way that only reading its logs again mends."""
        self._state = threading.Lock()
        """Held to change the two above: what is found out later must not be overwritten by what was known before."""
        self._retry_at = 0.0
        self._retry_seconds = 0.0
        """When to look again whether there is room, on a clock that never goes back, and how long was waited last."""
        self.torn: set[TopicPartition] = set()
        """Logs whose end was missing when they were loaded: they are not used."""
        self.unrecovered = False
        """Whether one of them was not closed cleanly: what is left of it was not gone over yet."""
        self.loaded = False
        self.damaged: set[str] = set()
        """Checkpoints that could not be read: what they do not say is unknown."""
        self.start_moves = 0
        """Another number whenever the start of a log has moved. Of two moves at once it may count one."""
        self.logs: dict[TopicPartition, Log] = {}
        self._lock: int | None = None
        self._trash: deque[Trash] = deque()
        self.flush_times = FlushTimes()

    def fail(self, error: OSError, doing: str, *, undone: bool = True) -> StorageFailed:
        """Stop writing here; returns the error to raise. `undone`: what was begun left no trace."""
        reason = f"{doing} failed: {error.strerror or error}"
        if not undone or isinstance(error, UnknownState):
            self.distrust(reason)
        elif error.errno in NO_ROOM:
            self._mark_full(reason)
        elif error.errno not in SHORTAGES:
            self.distrust(reason)
        return StorageFailed(f"log directory {self.path}: {reason}")

    def _mark_full(self, reason: str) -> None:
        with self._state:
            if self.failed is not None:
                return
            self.failed = reason
            now = self.clock.monotonic()
            again = self._retry_seconds > 0 and now - self._retry_at < 2 * _LONGEST_RETRY  # soon after it had room
            self._retry_seconds = min(2 * self._retry_seconds, _LONGEST_RETRY) if again else _RETRY
            self._retry_at = now + self._retry_seconds
        logger.error(
            "Log directory %s takes no more writes: %s. What was acknowledged stays readable. Make room: the directory "
            "is used again once %d bytes can be written.",
            self.path,
            reason,
            _PROBE,
        )

    def distrust(self, reason: str) -> None:
        """Stop writing here, until the logs were read again."""
        with self._state:
            if self.doubtful:
                return
            self.doubtful = True
            self.failed = reason
        logger.error(
            "Log directory %s takes no more writes: %s. What was acknowledged stays readable. Repair the disk, then "
            "restart the broker.",
            self.path,
            reason,
        )

    def try_again(self) -> bool:
        """Use the directory again if it was full and has room now; True if so. Waits for the disk; runs in a thread."""
        if self.failed is None or self.doubtful or not self.loaded or self.clock.monotonic() < self._retry_at:
            return False
        probe = f"{self.path}/{_PROBE_FILE}"
        try:
            fd = self.files.open(probe, create=True)
            try:
                self.files.append_all(fd, bytes(_PROBE))
                self.files.sync(fd)
            finally:
                self.files.close(fd)
                self.files.remove(probe)
        except OSError as error:
            if not isinstance(error, UnknownState) and error.errno in NO_ROOM | SHORTAGES:
                self._retry_at = self.clock.monotonic() + self._retry_seconds
            else:
                self.fail(error, "trying whether there is room")
            return False
        with self._state:
            if self.doubtful:
                return False
            self.failed = None
            self._retry_at = self.clock.monotonic()
        logger.warning("Log directory %s has room again, and takes writes.", self.path)
        return True

    def check_writable(self) -> None:
        """Raise StorageFailed when the directory has failed."""
        if self.failed is not None:
            raise StorageFailed(f"log directory {self.path} takes no more writes: {self.failed}")

    def check_removable(self) -> None:
        """Raise StorageFailed when the directory has failed, unless it is only full: then removing is what helps."""
        if self.doubtful:
            self.check_writable()

    @contextmanager
    def writing(self, doing: str, *, undone: bool = True, removes: bool = False) -> Iterator[None]:
        """Do something that writes: not if the directory has failed, and if it fails, so has the directory.

        `undone`: whether what breaks off leaves memory and files as they were, or as if less had been asked for.
        `removes`: whether it makes room, and so is allowed where the directory is full.
        """
        if removes:
            self.check_removable()
        else:
            self.check_writable()
        try:
            yield
        except OSError as error:
            raise self.fail(error, doing, undone=undone) from error

    def prepare(self) -> None:
        """Make the directory if need be, so that a power failure leaves it there with what is synced in it; lock it."""
        self.files.make_durable_dir(self.path)
        self._lock = self.files.lock(f"{self.path}/{checkpoints.LOCK}")
        if self._lock is None:
            raise StartupError(IN_USE.format(self.path))
        self.files.remove(f"{self.path}/{_PROBE_FILE}")  # where the process ended in the middle of `try_again`

    def unlock(self) -> None:
        """Let another process have the directory."""
        if self._lock is not None:
            self.files.close(self._lock)
            self._lock = None

    def check_owner(self, broker_id: int, cluster_id: str) -> None:
        """Check that the directory belongs to this broker; a new one is marked as its own."""
        try:
            found = checkpoints.read_meta_properties(self.files, self.path)
        except DamagedCheckpoint as error:
            raise StartupError(str(error)) from None
        path = f"{self.path}/{checkpoints.META_PROPERTIES}"
        if found is not None:
            check_broker(path, found, broker_id)
            if found.cluster_id not in (None, cluster_id):
                raise StartupError(
                    f"{path} belongs to cluster {found.cluster_id}, but this is cluster {cluster_id}. "
                    "Correct log.dirs, or the metadata store in use"
                )
        wanted = MetaProperties(
            broker_id=broker_id, cluster_id=cluster_id, directory_id=None if found is None else found.directory_id
        )
        if found is None or (found.version == 0 and found != wanted):
            checkpoints.write_meta_properties(self.files, self.path, wanted)

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Read one of the offset checkpoints; a damaged one counts as empty, and is noted as damaged."""
        try:
            return checkpoints.read_offsets(self.files, f"{self.path}/{name}")
        except DamagedCheckpoint as error:
            logger.warning("A damaged checkpoint counts as empty: %s. It is written anew.", error)
            self.damaged.add(name)
            return {}

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write one of the offset checkpoints."""
        with self.writing(f"writing {name}"):
            checkpoints.write_offsets(self.files, f"{self.path}/{name}", offsets)

    def discard(self, paths: tuple[str, ...], due_ms: int, *, is_dir: bool = False) -> None:
        """Have files, which were renamed already, removed later."""
        self._trash.append(Trash(due_ms, paths, is_dir))

    def empty_trash(self, now_ms: int) -> int:
        """Remove what is due; returns how many. Runs in a thread.

        The new names of directories are brought to the disk first: after a power failure none has its old name, and
        only some of its files.
        """
        removed, names_are_synced = 0, False
        for _ in range(len(self._trash)):
            trash = self._trash.popleft()
            if trash.due_ms > now_ms:
                self._trash.append(trash)
                continue
            try:
                if trash.is_dir and not names_are_synced:
                    self.files.sync_dir(self.path)
                    names_are_synced = True
                for path in trash.paths:
                    if trash.is_dir:
                        self.files.remove_tree(path)
                    else:
                        self.files.remove(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.warning(
                    "Could not remove files of deleted segments or partitions (%s): %s", ", ".join(trash.paths), error
                )
                if isinstance(error, UnknownState):
                    self.fail(error, "removing files")
                elif error.errno in SHORTAGES:
                    self._trash.append(trash)
                continue
            removed += 1
        return removed
