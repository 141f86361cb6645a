"""The only door to the file system for everything below log.dirs.

`FileSystem` is a thin layer over the system calls: tests put one in its place that loses unsynced writes, tears the
last one, fails a sync or fills the disk. file_pool.py says who may use a descriptor, and for how long.

Descriptors that run out are closed first where nobody uses them (`close_unused`), whatever is to be opened; only then
is it an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    from typing_extensions import Buffer

    Scanned: TypeAlias = AbstractContextManager[Iterator[os.DirEntry[str]]]

_FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", None)
_OPEN_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
SHORTAGES: Final = OUT_OF_DESCRIPTORS | {errno.ENOMEM}
"""The machine had too little of something for a moment, which says nothing of the disk."""
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


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
            import shutil  # here: it brings all formats of archives, and few brokers remove a directory

            shutil.rmtree(path, ignore_errors=False)

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents; it is no error if it exists."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def make_durable_dir(self, path: str) -> None:
        """Make a directory and its parents, and bring the names of those that are new to the disk."""
        new, parent = [], Path(path).absolute()
        while not parent.exists():
            new.append(parent)
            parent = parent.parent
        self.make_dir(path)
        for made in reversed(new):
            self.sync_dir(str(made.parent))

    def entries(self, path: str) -> list[DirEntry]:
        """The names in a directory, unsorted; without files that are removed meanwhile, as old segments are."""
        found_entries = []
        with self._scan(path) as found:
            for entry in found:
                if entry.is_dir():
                    found_entries.append(DirEntry(entry.name, True, 0))
                    continue
                try:
                    found_entries.append(DirEntry(entry.name, False, entry.stat().st_size))
                except FileNotFoundError:
                    if entry.is_symlink():  # to a file that is lost
                        raise
        return found_entries

    def subdirectories(self, path: str) -> list[str]:
        """The names of the directories in a directory, unsorted; cheaper than entries()."""
        with self._scan(path) as found:
            return [entry.name for entry in found if entry.is_dir()]

    def _scan(self, path: str) -> Scanned:
        try:
            return os.scandir(path)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS or not self.close_unused():
                raise
        return os.scandir(path)

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
        """Cut a file by its name: that needs no descriptor."""
        os.truncate(path, size)

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
