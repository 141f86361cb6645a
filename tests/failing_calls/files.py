"""Files of which one call fails, and which can lose what was not synced.

A disk that failed to sync a file is never believed again: later syncs of that file succeed and do nothing, as with
kernels that drop the pages they could not write. What was not on disk by then is so only after a restart.
"""

from __future__ import annotations

import errno
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.storage.files import UnknownState
from tests.support.faulty_files import Directory, FaultyFiles, Inode

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from barnabas.storage.files import DirEntry


class Fault(Enum):
    """What goes wrong."""

    NO_ROOM = "the disk is full, after half a write"
    NO_DESCRIPTOR = "too many files are open"
    BAD_DISK = "a read, a write, a change of names or a sync fails"
    BAD_SYNC = "a sync finds no room"
    SHORT_WRITE = "half is written, and no error"


DOUBTFUL: Final = frozenset({Fault.BAD_DISK, Fault.BAD_SYNC})
"""Failures of the disk itself."""


class FailingFiles(FaultyFiles):
    """See the module's docstring."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fault: Fault | None = None
        self._armed: Fault | None = None
        self.what = ""
        """Which call has failed."""
        self._left = -1
        self._half = False
        self._unsyncable: set[Inode | Directory] = set()

    @property
    def hit(self) -> bool:
        """Whether the call has failed."""
        return bool(self.what)

    @property
    def may_need_restart(self) -> bool:
        """Whether nobody knows what is on the disk: it failed, or a change of several names broke off half-way."""
        return self._armed in DOUBTFUL or self.what.startswith("rename")

    def arm(self, fault: Fault, number: int) -> None:
        """Let the call of this number fail, of those from now on that the fault concerns."""
        self.fault = self._armed = fault
        self._left, self.what = number, ""

    def disarm(self) -> None:
        """Let nothing fail any more."""
        self.fault, self._half = None, False

    def lose_unsynced(self) -> None:
        """Turn the machine off and on again: nothing is there that was not synced."""
        self._close_all()
        self._restart(_durable(self._tree))

    def _close_all(self) -> None:
        super()._close_all()
        self.disarm()
        self._unsyncable.clear()

    def _fails(self, what: str, path: str, *faults: Fault) -> bool:
        if self.fault not in faults or self.hit:
            return False
        self._left -= 1
        if self._left == -1:
            self.what = f"{what} {path.removeprefix(str(self._root))}"
        return self.hit

    def _try(self, what: str, path: str, *, opens: bool = False, takes_room: bool = False) -> None:
        """Fail, if this is the call."""
        if self._fails(what, path, Fault.BAD_DISK):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if opens and self._fails(what, path, Fault.NO_DESCRIPTOR):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        if takes_room and self._fails(what, path, Fault.NO_ROOM):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    # Names

    def open(self, path: str, *, create: bool = False) -> int:
        """See FileSystem."""
        self._try("open", path, opens=True, takes_room=create and not self.exists(path))
        return super().open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        self._try("rename", new, takes_room=True)
        super().rename(old, new)

    def remove(self, path: str) -> None:
        """See FileSystem."""
        if self.exists(path):
            self._try("remove", path)
        super().remove(path)

    def make_dir(self, path: str) -> None:
        """See FileSystem."""
        if not self.exists(path):
            self._try("make_dir", path, takes_room=True)
        super().make_dir(path)

    def entries(self, path: str) -> list[DirEntry]:
        """See FileSystem."""
        self._try("entries", path, opens=True)
        return super().entries(path)

    def subdirectories(self, path: str) -> list[str]:
        """See FileSystem."""
        self._try("subdirectories", path, opens=True)
        return super().subdirectories(path)

    def lock(self, path: str) -> int | None:
        """See FileSystem."""
        self._try("lock", path, opens=True, takes_room=not self.exists(path))
        return super().lock(path)

    def modified_ms(self, path: str) -> int:
        """See FileSystem."""
        self._try("modified_ms", path)
        return super().modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """See FileSystem."""
        self._try("set_modified_ms", path)
        super().set_modified_ms(path, modified_ms)

    def start_worker(self) -> None:
        """A process is started, which takes descriptors."""
        if self._fails("start a worker", "", Fault.NO_DESCRIPTOR):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    # Contents

    def read(self, fd: int, size: int, position: int) -> bytes:
        """See FileSystem."""
        self._try("read", self._name(fd))
        return super().read(fd, size, position)

    def read_cached(self, fd: int, size: int, position: int) -> bytes:
        """See FileSystem."""
        self._try("read_cached", self._name(fd))
        return super().read_cached(fd, size, position)

    def read_file(self, path: str) -> bytes:
        """See FileSystem."""
        if self.exists(path):
            self._try("read_file", path, opens=True)
        return super().read_file(path)

    def append(self, fd: int, data: Buffer) -> int:
        """See FileSystem; a disk without room takes half, and nothing of the rest."""
        if self._half:
            self._half = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        name = self._name(fd)
        self._try("append", name)
        if self._fails("append", name, Fault.NO_ROOM, Fault.SHORT_WRITE):
            self._half = self.fault is Fault.NO_ROOM
            view = memoryview(data).cast("B")
            return super().append(fd, view[: -(-len(view) // 2)])
        return super().append(fd, data)

    def size(self, fd: int) -> int:
        """See FileSystem."""
        self._try("size", self._name(fd))
        return super().size(fd)

    def truncate(self, fd: int, size: int) -> None:
        """See FileSystem."""
        self._try("truncate", self._name(fd))
        super().truncate(fd, size)

    def truncate_file(self, path: str, size: int) -> None:
        """See FileSystem."""
        self._try("truncate_file", path)
        super().truncate_file(path, size)

    # Syncs

    def sync(self, fd: int) -> None:
        """See FileSystem."""
        inode = self._open[fd]
        self._try_sync("sync", self._name(fd), inode)
        if inode not in self._unsyncable:
            super().sync(fd)

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        if self._fails("sync_dir", path, Fault.NO_DESCRIPTOR):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        directory = self._directory(path)
        self._try_sync("sync_dir", path, directory)
        if directory not in self._unsyncable:
            super().sync_dir(path)

    def _try_sync(self, what: str, path: str, node: Inode | Directory) -> None:
        if self._fails(what, path, *DOUBTFUL):
            self._unsyncable.add(node)
            number = errno.EIO if self.fault is Fault.BAD_DISK else errno.ENOSPC
            raise UnknownState(number, os.strerror(number), path)

    def _name(self, fd: int) -> str:
        """The path of an open file, as Linux tells it."""
        if self.fault is None or self.hit or self._left:
            return ""
        try:
            return str(Path(f"/proc/self/fd/{fd}").readlink())
        except OSError:
            return f"descriptor {fd}"


def _durable(directory: Directory) -> dict[str, object]:
    return {
        name: _durable(node) if isinstance(node, Directory) else node.durable
        for name, node in directory.durable.items()
    }
