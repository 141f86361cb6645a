"""A file system that remembers what was synced, and can lose the rest.

`FaultyFiles` works on real files below a root directory, and keeps beside them what a disk would hold for certain: the
bytes of each file at its last sync, and the names of each directory at its last sync. `power_loss` then rewrites the
root to one of the states that a disk may be in: of each directory, some of the newer names; of each file, some of the
newer bytes, in sectors, torn anywhere. `kill` leaves everything, as when only the process ends; a loss of power after
that may still take what was not synced.

Faults that do not end the run: a sync, a write or a read that fails (`failing_syncs`, `failing_writes`,
`failing_reads`; of files below `failing_below` only, where that is set), a disk with so many bytes left (`room`).
Faults that do: `crash_in` lets the n-th operation from now on raise `PowerLoss`, a write after part of its bytes.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.storage.files import FileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

SECTOR = 512


class PowerLoss(BaseException):
    """The machine is off; no error handling of the program under test may see this."""


class Inode:
    """A file: its bytes for certain on disk, and, once it has no name any more, its last bytes."""

    def __init__(self) -> None:
        self.durable = b""
        self.last: bytes | None = None


class Directory:
    """A directory: its names now, its names for certain on disk, and the changes between them."""

    def __init__(self) -> None:
        self.names: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.changes: list[Callable[[dict[str, Inode | Directory]], object]] = []

    def change(self, apply: Callable[[dict[str, Inode | Directory]], object]) -> None:
        apply(self.names)
        self.changes.append(apply)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()


class FaultyFiles(FileSystem):
    """See the module's docstring."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._prefix = f"{root}/"
        self._tree = Directory()
        self._open: dict[int, Inode] = {}
        self._opened_as: dict[int, str] = {}
        """Paths, as they were when files were opened."""
        self.crash_in: int | None = None
        self.failing_syncs = False
        self.failing_writes = False
        self.failing_reads = False
        self.failing_below = ""
        """Which files are on the disk that fails; the directory keeps its name."""
        self.room: int | None = None
        self.operations = 0
        self.read_bytes = 0
        self._random = random.Random(0)

    # Faults

    def _operation(self) -> bool:
        """Count an operation; True when the power goes off in it."""
        self.operations += 1
        if self.crash_in is None:
            return False
        self.crash_in -= 1
        return self.crash_in < 0

    def _step(self) -> None:
        if self._operation():
            raise PowerLoss

    def power_loss(self, seed: int) -> None:
        """Turn the machine off and on again: what was not synced is there in part, or not."""
        chance = random.Random(seed)
        self._close_all()
        kept = self._survivors(self._tree, self._root, chance)
        self._restart(kept)

    def kill(self) -> None:
        """End the process: everything that was written stays, and is as synced as it was."""
        self._close_all()

    def _close_all(self) -> None:
        self.crash_in = None
        self.failing_syncs = self.failing_writes = self.failing_reads = False
        self.room = None
        for fd in list(self._open):
            os.close(fd)
        self._open.clear()

    def _survivors(self, directory: Directory, path: Path, chance: random.Random) -> dict[str, object]:
        names = dict(directory.durable)
        for apply in directory.changes[: chance.randint(0, len(directory.changes))]:
            apply(names)
        current = {id(node): name for name, node in directory.names.items()}
        kept: dict[str, object] = {}
        for name, node in names.items():
            where = path / current.get(id(node), name)
            if isinstance(node, Directory):
                kept[name] = self._survivors(node, where, chance)
            else:
                now = node.last if node.last is not None else where.read_bytes()
                kept[name] = torn(node.durable, now, chance)
        return kept

    def _restart(self, kept: dict[str, object]) -> None:
        shutil.rmtree(self._root)
        self._tree = _write(self._root, kept)

    # The tree

    def _parent(self, path: str) -> tuple[Directory, str]:
        assert path.startswith(self._prefix), path
        *parents, name = path.removeprefix(self._prefix).split("/")
        directory = self._tree
        for part in parents:
            node = directory.names[part]
            assert isinstance(node, Directory)
            directory = node
        return directory, name

    def _directory(self, path: str) -> Directory:
        if f"{path}/" == self._prefix:
            return self._tree
        parent, name = self._parent(path)
        node = parent.names[name]
        assert isinstance(node, Directory)
        return node

    # What storage calls

    def open(self, path: str, *, create: bool = False) -> int:
        """See FileSystem; making a file is an operation."""
        parent, name = self._parent(path)
        is_new = create and name not in parent.names
        if is_new:
            self._step()
            self._use_room(0)
        fd = super().open(path, create=create)
        if is_new:
            inode = Inode()
            parent.change(lambda names: names.__setitem__(name, inode))
        found = parent.names[name]
        assert isinstance(found, Inode)
        self._open[fd] = found
        self._opened_as[fd] = path
        return fd

    def _is_bad(self, path: str) -> bool:
        """Whether a file is on the disk that fails."""
        return f"{path}/".startswith(self.failing_below)

    def close(self, fd: int) -> None:
        """See FileSystem."""
        self._open.pop(fd, None)
        super().close(fd)

    def append(self, fd: int, data: Buffer) -> int:
        """See FileSystem; may write a part only, when the disk is full or the power goes off."""
        if self.failing_writes and self._is_bad(self._opened_as[fd]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = memoryview(data)
        if self._operation():
            super().append(fd, view[: self._random.randint(0, len(view))])
            raise PowerLoss
        return super().append(fd, view[: self._use_room(len(view))])

    def _use_room(self, size: int) -> int:
        if self.room is None:
            return size
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = min(size, self.room)
        self.room -= size
        return size

    def read(self, fd: int, size: int, position: int) -> bytes:
        """See FileSystem."""
        if self.failing_reads:
            self._read_from(self._opened_as[fd])
        data = super().read(fd, size, position)
        self.read_bytes += len(data)
        return data

    def read_cached(self, fd: int, size: int, position: int) -> bytes:
        """See FileSystem; what is in memory can be read from a disk that fails, and nothing says what is."""
        if self.failing_reads:
            return self.read(fd, size, position)
        return super().read_cached(fd, size, position)

    def read_file(self, path: str) -> bytes:
        """See FileSystem."""
        self._read_from(path)
        return super().read_file(path)

    def _read_from(self, path: str) -> None:
        if self.failing_reads and self._is_bad(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def truncate(self, fd: int, size: int) -> None:
        """See FileSystem."""
        self._step()
        super().truncate(fd, size)

    def truncate_file(self, path: str, size: int) -> None:
        """See FileSystem."""
        self._step()
        super().truncate_file(path, size)

    def sync(self, fd: int) -> None:
        """See FileSystem."""
        self._step()
        if self.failing_syncs and self._is_bad(self._opened_as[fd]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._open[fd].durable = os.pread(fd, os.fstat(fd).st_size, 0)

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        self._step()
        if self.failing_syncs and self._is_bad(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._directory(path).sync()

    def rename(self, old: str, new: str) -> None:
        """See FileSystem; both names are in one directory."""
        self._step()
        parent, old_name = self._parent(old)
        new_parent, new_name = self._parent(new)
        assert parent is new_parent
        self._keep_last(parent, new_name, new)
        super().rename(old, new)
        node = parent.names[old_name]

        def apply(names: dict[str, Inode | Directory]) -> None:
            names.pop(old_name, None)
            names[new_name] = node

        parent.change(apply)

    def remove(self, path: str) -> None:
        """See FileSystem."""
        parent, name = self._parent(path)
        if name in parent.names:
            self._step()
            self._keep_last(parent, name, path)
            super().remove(path)
            parent.change(lambda names: names.pop(name, None))

    def remove_tree(self, path: str) -> None:
        """See FileSystem."""
        directory = self._directory(path)
        for name, node in list(directory.names.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self._step()
        parent, own_name = self._parent(path)
        Path(path).rmdir()
        parent.change(lambda names: names.pop(own_name, None))

    def make_dir(self, path: str) -> None:
        """See FileSystem; the parent exists."""
        if Path(path) == self._root:
            return
        parent, name = self._parent(path)
        if name not in parent.names:
            self._step()
            super().make_dir(path)
            directory = Directory()
            parent.change(lambda names: names.__setitem__(name, directory))

    def lock(self, path: str) -> int | None:
        """See FileSystem; locks are not what is tested here."""
        return self.open(path, create=True)

    def _keep_last(self, parent: Directory, name: str, path: str) -> None:
        node = parent.names.get(name)
        if isinstance(node, Inode):
            node.last = Path(path).read_bytes()


class BadDisk(FileSystem):
    """Files of which those below one directory can fail: the disk is full, or it does not sync."""

    def __init__(self, directory: Path) -> None:
        self._prefix = f"{directory}/"
        self._on_disk: set[int] = set()
        self.full = False
        self.failing_syncs = False
        self._torn: set[int] = set()

    def open(self, path: str, *, create: bool = False) -> int:
        """See FileSystem."""
        fd = super().open(path, create=create)
        (self._on_disk.add if path.startswith(self._prefix) else self._on_disk.discard)(fd)
        return fd

    def append(self, fd: int, data: Buffer) -> int:
        """See FileSystem; a full disk takes a part of what is written, and then no more."""
        if self.full and fd in self._on_disk:
            if fd in self._torn:
                self._torn.discard(fd)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._torn.add(fd)
            return super().append(fd, memoryview(data)[: -(-len(memoryview(data)) // 2)])
        return super().append(fd, data)

    def sync(self, fd: int) -> None:
        """See FileSystem."""
        if self.failing_syncs and fd in self._on_disk:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


def torn(durable: bytes, now: bytes, chance: random.Random) -> bytes:
    """What may be on disk of a file that was `durable` at its last sync and is `now`."""
    kind = chance.random()
    if kind < 0.25 or durable == now:
        return durable
    if kind < 0.4:
        return now
    if kind < 0.6 and now.startswith(durable):
        return now[: chance.randint(len(durable), len(now))]
    length = chance.choice((len(durable), len(now), chance.randint(min(len(durable), len(now)), len(now))))
    out = bytearray()
    for start in range(0, length, SECTOR):
        old, new = durable[start : start + SECTOR], now[start : start + SECTOR]
        out += (new if chance.random() < 0.7 else old).ljust(SECTOR, b"\x00")
    return bytes(out[:length])


def _write(path: Path, content: dict[str, object]) -> Directory:
    """Write a tree of files; all of it counts as synced."""
    path.mkdir(exist_ok=True)
    directory = Directory()
    for name, part in content.items():
        if isinstance(part, dict):
            directory.names[name] = _write(path / name, part)
        else:
            assert isinstance(part, bytes)
            (path / name).write_bytes(part)
            inode = Inode()
            inode.durable = part
            directory.names[name] = inode
    directory.durable = dict(directory.names)
    return directory
