"""The only door to the file system for everything below log.dirs.

`FileSystem` is a thin layer over the system calls: tests put one in its place that loses unsynced writes, tears the
last one, fails a sync or fills the disk. `FilePool` opens files when they are needed and keeps only so many
descriptors: ten thousand partitions fit into a limit of a few thousand.

Who may use a descriptor:

- A *lease* (acquire, release) holds the file open; any thread may take one. A slice that waits to be sent has a lease.
- A *pin* is a standing lease for the file that a log appends to, so that an append need not ask the pool. Pins are
  taken only by the thread that appends (the event loop), and so is room made for them.

Invariant: a descriptor is closed only when nobody has a lease on it, so no one ever writes to a number that now
belongs to another file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", None)
_OPEN_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_PINS_SHARE: Final = 0.75


OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class ColdRead(BarnabasError):
    """The bytes are not in memory: read them in a thread."""


class DirEntry(NamedTuple):
    """A name in a directory; `size` is 0 for a directory."""

    name: str
    is_dir: bool
    size: int


class FileSystem:
    """The system calls that storage makes."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and appending; on a file system that became read-only, for reading."""
        try:
            return os.open(path, _OPEN_APPEND | (os.O_CREAT if create else 0), 0o644)
        except OSError as error:
            if create or error.errno not in (errno.EROFS, errno.EACCES):
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

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

    def sync(self, fd: int) -> None:
        """Bring the file's bytes and length to the disk. After a failure the file's state on disk is unknown."""
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        elif sys.platform == "linux":
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def sync_dir(self, path: str) -> None:
        """Bring the directory's names to the disk: new, renamed and removed files."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing a file of the new name."""
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        """Remove a file; it is no error if it is gone."""
        Path(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what is in it."""
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
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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

    __slots__ = ("_closing", "_fd", "_leases", "_pool", "path", "pinned_fd", "revoked")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self._fd = -1
        self._leases = 0
        self._closing = False
        self.path = path
        self.pinned_fd = -1
        self.revoked = False
        """The file was cut after this handle was given out: slices of it must not be sent any more."""

    @property
    def fd(self) -> int:
        """The descriptor; meaningful while a lease is held."""
        return self._fd

    def acquire(self) -> int:
        """Hold the file open and return its descriptor; every acquire() needs a release()."""
        return self._pool.acquire(self)

    def release(self) -> None:
        """Give a lease back."""
        self._pool.release(self)

    def pin(self) -> int:
        """A standing lease for appending; `pinned_fd` is the descriptor until the pool takes the pin away."""
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
        self.unpin()
        self._pool.close(self)


class FilePool:
    """Open descriptors, at most about `limit`; the one that was not used for longest goes first."""

    def __init__(self, files: FileSystem, limit: int) -> None:
        self.files = files
        self._limit = max(limit, 8)
        self._max_pins = int(self._limit * _PINS_SHARE)
        self._lock = threading.Lock()
        self._idle: OrderedDict[FileHandle, None] = OrderedDict()
        self._open = 0
        self._pins: OrderedDict[FileHandle, None] = OrderedDict()

    @property
    def open_count(self) -> int:
        """How many descriptors are open."""
        return self._open

    def handle(self, path: str) -> FileHandle:
        """A handle for an existing file; it is not opened yet."""
        return FileHandle(self, path)

    def acquire(self, handle: FileHandle) -> int:
        """See FileHandle.acquire."""
        with self._lock:
            return self._acquire(handle)

    def release(self, handle: FileHandle) -> None:
        """See FileHandle.release."""
        with self._lock:
            self._release(handle)

    def pin(self, handle: FileHandle) -> int:
        """See FileHandle.pin."""
        with self._lock:
            if handle.pinned_fd < 0:
                if len(self._pins) >= self._max_pins:
                    self._unpin(next(iter(self._pins)))
                handle.pinned_fd = self._acquire(handle)
                self._pins[handle] = None
            return handle.pinned_fd

    def unpin(self, handle: FileHandle) -> None:
        """See FileHandle.unpin."""
        with self._lock:
            self._unpin(handle)

    def rename(self, handle: FileHandle, path: str) -> None:
        """Rename the file; whoever opens the handle finds it, before and after."""
        with self._lock:
            self.files.rename(handle.path, path)
            handle.path = path

    def close(self, handle: FileHandle) -> None:
        """See FileHandle.close."""
        with self._lock:
            if handle._fd < 0:
                return
            if handle._leases == 0:
                del self._idle[handle]
                self._close(handle)
            else:
                handle._closing = True

    def close_idle(self) -> None:
        """Close every file that nobody holds."""
        with self._lock:
            for handle in list(self._pins):
                self._unpin(handle)
            self._close_unused()

    def _close_unused(self) -> None:
        while self._idle:
            self._close(self._idle.popitem(last=False)[0])

    def _acquire(self, handle: FileHandle) -> int:
        if handle._fd < 0:
            self._make_room()
            try:
                handle._fd = self.files.open(handle.path)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._idle:
                    raise
                self._close_unused()
                handle._fd = self.files.open(handle.path)
            handle._closing = False
            self._open += 1
        elif handle._leases == 0:
            del self._idle[handle]
        handle._leases += 1
        return handle._fd

    def _release(self, handle: FileHandle) -> None:
        handle._leases -= 1
        if handle._leases == 0:
            if handle._closing:
                self._close(handle)
            else:
                self._idle[handle] = None

    def _unpin(self, handle: FileHandle) -> None:
        if handle.pinned_fd >= 0:
            del self._pins[handle]
            handle.pinned_fd = -1
            self._release(handle)

    def _make_room(self) -> None:
        while self._open >= self._limit and self._idle:
            self._close(self._idle.popitem(last=False)[0])

    def _close(self, handle: FileHandle) -> None:
        fd, handle._fd = handle._fd, -1
        self._open -= 1
        self.files.close(fd)
