"""The only door to the file system for everything below log.dirs.

`FileSystem` is a thin layer over the system calls: tests put one in its place that loses unsynced writes, tears the
last one, fails a sync or fills the disk. `FilePool` opens files when they are needed and keeps only so many
descriptors: ten thousand partitions fit into a limit of a few thousand.

Who may use a descriptor:

- A *lease* (acquire, release) holds the file open; any thread may take one. A slice that waits to be sent has a lease.
- A *pin* keeps the file open that a log appends to, so that an append need not ask the pool. The pool may take a pin
  away when descriptors run short, but not while the file's `writing` is set. Whoever writes sets it before looking at
  `pinned`; the pool clears `pinned` before looking at `writing`. So one of the two always sees the other.

Invariant: a descriptor is closed only when nobody has a lease or a pin on it, and `fd`, the one place that has its
number, is -1 before it is closed. So no one ever writes to a number that now belongs to another file. A lease that is
given back twice breaks this for whoever still holds one: the process ends at once (`halt`), since what it would write
next may land in another partition's file. A kill at any moment loses nothing that was acknowledged.

A handle opens its file by name, maybe long after it was given out. So a name means one file for as long as a handle may
have it: a file that is to go gets a name that no other file had or will have (`new_number`), before its old name is
used again.

Descriptors that run out are closed first where nobody uses them, whatever is to be opened; only then is it an error.

The event loop takes the pool's lock all the time, so nothing is opened or renamed under it: on a disk that hangs,
whoever opens a file waits, and nobody else.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
import os
import shutil
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

_FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", None)
_OPEN_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_PINS_SHARE: Final = 0.75
_MOST_HELD: Final = 2
"""How many times the limit may be open before a slice that is to be sent gets no further file."""
HALTED: Final = 70
"""The exit code of a process that could not trust its own descriptors (EX_SOFTWARE)."""

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def halt(reason: str) -> NoReturn:
    """End the process at once, with the stack in its log: going on might write into a wrong file."""
    logger.critical("%s; the broker ends at once, so that nothing is written to a wrong file", reason, stack_info=True)
    os._exit(HALTED)


class UnknownState(OSError):
    """Nobody knows what a file holds: a sync failed, whatever a later one says, or half a write cannot be cut off."""


class ColdRead(BarnabasError):
    """The bytes are not in memory: read them in a thread."""


class DirEntry(NamedTuple):
    """A name in a directory; `size` is 0 for a directory."""

    name: str
    is_dir: bool
    size: int


def _has_no_spare() -> bool:
    return False


class FileSystem:
    """The system calls that storage makes."""

    close_unused: Callable[[], bool] = staticmethod(_has_no_spare)
    """Closes descriptors that nobody uses; False when there is none. Given by the pool."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and appending; on a file system that became read-only, for reading."""
        try:
            return self._descriptor(path, _OPEN_APPEND | (os.O_CREAT if create else 0))
        except OSError as error:
            if create or error.errno not in (errno.EROFS, errno.EACCES):
                raise
            return self._descriptor(path, os.O_RDONLY | os.O_CLOEXEC)

    def _descriptor(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS or not self.close_unused():
                raise
        return os.open(path, flags, 0o644)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def append(self, fd: int, data: Buffer) -> int:
        """Write at the file's end in one call; returns how much was written, which may be less than all."""
        return os.write(fd, data)

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the file's end."""
        data = os.pread(fd, size, position)
        while len(data) < size and (more := os.pread(fd, size - len(data), position + len(data))):
            data += more
        return data

    def read_cached(self, fd: int, size: int, position: int) -> bytes:
        """Like read, but raises ColdRead instead of waiting for the disk (where the system can tell)."""
        if _NOWAIT is None:
            return self.read(fd, size, position)
        buffer = bytearray(size)
        try:
            count = os.preadv(fd, [buffer], position, _NOWAIT)
        except BlockingIOError:
            raise ColdRead(f"{size} bytes at {position} are not in memory; read them in a thread") from None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            return self.read(fd, size, position)
        if count == size:
            return bytes(buffer)
        if position + count < self.size(fd):
            raise ColdRead(f"{size} bytes at {position} are only partly in memory; read them in a thread")
        return bytes(buffer[:count])

    def size(self, fd: int) -> int:
        """The file's length."""
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(fd, size)

    def cut_back(self, fd: int, size: int) -> None:
        """After a write that failed: cut the file to what it was. Raises UnknownState when that fails, too."""
        try:
            self.truncate(fd, size)
        except OSError as error:
            raise UnknownState(error.errno, f"{error.strerror}, and half a write could not be cut off") from error

    def sync(self, fd: int) -> None:
        """Bring the file's bytes and length to the disk. After a failure the file's state on disk is unknown."""
        try:
            if _FULL_SYNC is not None:
                fcntl.fcntl(fd, _FULL_SYNC)
            elif sys.platform == "linux":
                os.fdatasync(fd)
            else:
                os.fsync(fd)
        except OSError as error:
            raise UnknownState(error.errno, error.strerror) from error

    def sync_dir(self, path: str) -> None:
        """Bring the directory's names to the disk: new, renamed and removed files."""
        fd = self._descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise UnknownState(error.errno, error.strerror, path) from error
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing a file of the new name."""
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        """Remove a file; it is no error if it is gone."""
        Path(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what is in it; of one that is a symbolic link, the link."""
        if Path(path).is_symlink():
            Path(path).unlink()
        else:
            shutil.rmtree(path, ignore_errors=False)

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents; it is no error if it exists."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def entries(self, path: str) -> list[DirEntry]:
        """The names in a directory, unsorted."""
        found_entries = []
        with os.scandir(path) as found:
            for entry in found:
                if entry.is_dir():
                    found_entries.append(DirEntry(entry.name, True, 0))
                else:
                    found_entries.append(DirEntry(entry.name, False, entry.stat().st_size))
        return found_entries

    def subdirectories(self, path: str) -> list[str]:
        """The names of the directories in a directory, unsorted; cheaper than entries()."""
        with os.scandir(path) as found:
            return [entry.name for entry in found if entry.is_dir()]

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds since 1970."""
        return Path(path).stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Say when the file was last written."""
        stamp = modified_ms * 1_000_000
        os.utime(path, ns=(stamp, stamp))

    def exists(self, path: str) -> bool:
        """Whether there is something of this name."""
        return Path(path).exists()

    def read_file(self, path: str) -> bytes:
        """The whole file; FileNotFoundError when there is none."""
        fd = self._descriptor(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return FileSystem.read(self, fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)

    def write_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the file's content as a whole: whoever opens it, also after a crash, sees the old or the new.

        Without `sync` that holds for crashes of the process only, and the caller syncs file and directory later.
        """
        temporary = path + ".tmp"
        self.remove(temporary)
        fd = self.open(temporary, create=True)
        try:
            self.append_all(fd, data)
            if sync:
                self.sync(fd)
        finally:
            self.close(fd)
        self.rename(temporary, path)
        if sync:
            self.sync_dir(str(Path(path).parent))

    def append_all(self, fd: int, data: Buffer) -> None:
        """Append all of `data`, in as many writes as it takes."""
        view = memoryview(data).cast("B")
        while view:
            view = view[self.append(fd, view) :]

    def sync_file(self, path: str) -> None:
        """Bring a file that is not held open to the disk."""
        fd = self.open(path)
        try:
            self.sync(fd)
        finally:
            self.close(fd)

    def truncate_file(self, path: str, size: int) -> None:
        """Cut a file that is not held open."""
        fd = self.open(path)
        try:
            self.truncate(fd, size)
        finally:
            self.close(fd)

    def lock(self, path: str) -> int | None:
        """Lock a file, making it if need be; None when someone else has it.

        Two kinds of lock: flock also tells apart two owners in one process, and lockf is the kind that Java takes, so
        a Kafka on the same directory is kept out, too.
        """
        fd = self._descriptor(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            return None
        return fd


class FileHandle:
    """A file that is opened when needed, through its pool."""

    __slots__ = ("_closing", "_leases", "_pool", "fd", "path", "pinned", "revoked", "writing")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self._leases = 0
        self._closing = False
        self.path = path
        self.fd = -1
        """The descriptor, -1 when the file is not open; to be used while a lease or pin is held."""
        self.pinned = False
        """Whether the file stays open without a lease, until the pool needs the descriptor."""
        self.writing = False
        """Set by whoever uses the pinned descriptor, for that time: the pool does not take the pin away then."""
        self.revoked = False
        """The file was cut after this handle was given out: slices of it must not be sent any more."""

    def acquire(self) -> int:
        """Hold the file open and return its descriptor; every acquire() needs a release()."""
        return self._pool.acquire(self)

    def lease(self) -> bool:
        """As acquire(), for as long as a client takes to read: False, and nothing is held, if too many files are."""
        return self._pool.lease(self)

    def release(self) -> None:
        """Give a lease back. The process ends if there is none."""
        self._pool.release(self)

    def pin(self) -> int:
        """Keep the file open for appending, until the pool takes the pin away; returns the descriptor."""
        return self._pool.pin(self)

    def unpin(self) -> None:
        """Give the pin back, if there is one."""
        self._pool.unpin(self)

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; may wait for the disk."""
        fd = self.acquire()
        try:
            return self._pool.files.read(fd, size, position)
        finally:
            self.release()

    def read_cached(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; raises ColdRead instead of waiting for the disk."""
        fd = self.acquire()
        try:
            return self._pool.files.read_cached(fd, size, position)
        finally:
            self.release()

    def close(self) -> None:
        """Close the file as soon as the last lease is given back; a later acquire() opens it anew."""
        self._pool.close(self)


class FilePool:
    """Open descriptors, at most about `limit`; the one that was not used for longest goes first."""

    def __init__(self, files: FileSystem, limit: int) -> None:
        self.files = files
        self._limit = max(limit, 8)
        self._max_pins = int(self._limit * _PINS_SHARE)
        self._lock = threading.RLock()
        self._renaming = threading.Lock()
        self._idle: OrderedDict[FileHandle, None] = OrderedDict()
        self._open = 0
        self._pins: OrderedDict[FileHandle, None] = OrderedDict()
        self.new_number = itertools.count(1).__next__
        """A number that nobody else gets, for a name that is used once."""
        files.close_unused = self.close_unused

    @property
    def open_count(self) -> int:
        """How many descriptors are open."""
        return self._open

    def handle(self, path: str) -> FileHandle:
        """A handle for an existing file; it is not opened yet."""
        return FileHandle(self, path)

    def acquire(self, handle: FileHandle) -> int:
        """See FileHandle.acquire."""
        while True:
            with self._lock:
                if handle.fd >= 0:
                    if not handle._leases and not handle.pinned:
                        del self._idle[handle]
                    handle._leases += 1
                    return handle.fd
                self._make_room()
                path = handle.path
            fd = self._open_file(handle, path)
            with self._lock:
                if handle.fd < 0 and handle.path == path and fd >= 0:
                    handle.fd = fd
                    handle._closing = False
                    handle._leases += 1
                    self._open += 1
                    return fd
            if fd >= 0:  # somebody else was faster, or the file has another name by now
                self.files.close(fd)

    def lease(self, handle: FileHandle) -> bool:
        """See FileHandle.lease."""
        with self._lock:
            if handle.fd < 0 and self._open - len(self._idle) >= _MOST_HELD * self._limit:
                return False
        try:
            self.acquire(handle)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            return False
        return True

    def release(self, handle: FileHandle) -> None:
        """See FileHandle.release."""
        with self._lock:
            if handle._leases <= 0:
                halt(f"a lease on {handle.path} was given back that nobody holds")
            handle._leases -= 1
            self._rest(handle)

    def pin(self, handle: FileHandle) -> int:
        """See FileHandle.pin."""
        fd = self.acquire(handle)
        with self._lock:
            if not handle.pinned:
                if len(self._pins) >= self._max_pins:
                    self._take_pins(1)
                handle.pinned = True
                self._pins[handle] = None
            handle._leases -= 1
            return fd

    def unpin(self, handle: FileHandle) -> None:
        """See FileHandle.unpin."""
        with self._lock:
            if handle.pinned:
                handle.pinned = False
                del self._pins[handle]
                self._rest(handle)

    def rename(self, handle: FileHandle, path: str) -> None:
        """Rename the file; whoever opens the handle finds it, before and after."""
        with self._renaming:
            self.files.rename(handle.path, path)
            handle.path = path

    def close(self, handle: FileHandle) -> None:
        """See FileHandle.close."""
        with self._lock:
            self.unpin(handle)
            if handle.fd < 0:
                return
            if handle._leases:
                handle._closing = True
            else:
                del self._idle[handle]
                self._close(handle)

    def close_idle(self) -> None:
        """Close every file that nobody holds."""
        with self._lock:
            self._take_pins(len(self._pins))
            self._close_idle()

    def close_unused(self) -> bool:
        """Descriptors have run out: close what nobody uses, or else take pins away; False when that brought none."""
        with self._lock:
            if not self._idle:
                self._take_pins(max(len(self._pins) // 2, 1))
            found = bool(self._idle)
            self._close_idle()
            return found

    def _make_room(self) -> None:
        while self._open >= self._limit and self._idle:
            self._close(self._idle.popitem(last=False)[0])

    def _open_file(self, handle: FileHandle, path: str) -> int:
        """Open the file by its name of a moment ago; -1 if it was renamed since."""
        try:
            return self.files.open(path)
        except FileNotFoundError:
            with self._renaming:  # until it has its new name here, too
                if handle.path == path:
                    raise
            return -1

    def _rest(self, handle: FileHandle) -> None:
        """A lease or pin is gone: if it was the last, the descriptor may be closed."""
        if handle._leases or handle.pinned:
            return
        if handle._closing:
            self._close(handle)
        else:
            self._idle[handle] = None

    def _take_pins(self, count: int) -> None:
        """Take the oldest pins away, but from nobody who is writing."""
        for handle in list(self._pins):
            if count <= 0:
                return
            handle.pinned = False
            if handle.writing:  # it may have seen its pin just before
                handle.pinned = True
                continue
            del self._pins[handle]
            self._rest(handle)
            count -= 1

    def _close_idle(self) -> None:
        while self._idle:
            self._close(self._idle.popitem(last=False)[0])

    def _close(self, handle: FileHandle) -> None:
        if handle._leases or handle.pinned:
            halt(f"{handle.path} was to be closed, but is in use")
        fd, handle.fd = handle.fd, -1
        self._open -= 1
        self.files.close(fd)
