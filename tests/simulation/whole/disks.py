"""The disk of a broker: `FaultyFiles` that belongs to a process.

`crash_in` ends the process in the middle of what it does with its files: nothing that it does with them after that
counts. `descriptors` is how many files the process may have open (EMFILE). `fails_in` lets one call that opens,
writes or syncs a directory, so many calls from now, fail with `fails_with`, once. `on_loop_sync` is told of each sync
that the event loop waits for, and where in the broker that is.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from tests.simulation.whole.executor import in_thread
from tests.support.faulty_files import FaultyFiles, PowerLoss

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from typing_extensions import Buffer

    from barnabas.storage.files import DirEntry


class Disk(FaultyFiles):
    """See the module's docstring."""

    descriptors: int | None = None
    dead = False
    fails_in: int | None = None
    fails_with = errno.EMFILE
    may_crash: Callable[[], bool] = staticmethod(lambda: True)
    on_crash: Callable[[], object] = staticmethod(lambda: None)
    on_loop_sync: Callable[[str], object] = staticmethod(lambda where: None)

    def _operation(self) -> bool:
        self._alive()
        if not super()._operation():
            return False
        self.crash_in = None
        if not self.may_crash():
            return False
        self.on_crash()
        return True

    def _step(self) -> None:
        try:
            super()._step()
        except PowerLoss:
            self.dead = True
            raise

    def _alive(self) -> None:
        if self.dead:
            raise PowerLoss

    def revive(self) -> None:
        """A new process uses the files."""
        self.dead = False
        self.descriptors = self.fails_in = None

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return len(self._open)

    @property
    def may_be_full(self) -> bool:
        """Whether there is no room, or one of the next calls finds none."""
        return self.room is not None or (self.fails_in is not None and self.fails_with == errno.ENOSPC)

    def _fail_once(self) -> None:
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in < 0:
                self.fails_in = None
                raise OSError(self.fails_with, os.strerror(self.fails_with))

    def open(self, path: str, *, create: bool = False) -> int:
        """See FileSystem."""
        self._alive()
        self._need_descriptor()
        return super().open(path, create=create)

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        self._alive()
        self._need_descriptor()
        self._must_not_be_on_loop()
        super().sync_dir(path)

    def sync(self, fd: int) -> None:
        """See FileSystem."""
        self._must_not_be_on_loop()
        super().sync(fd)

    def _must_not_be_on_loop(self) -> None:
        if not in_thread():
            self.on_loop_sync(_caller())

    def _need_descriptor(self) -> None:
        if self.descriptors is not None and self.open_count >= self.descriptors:
            self.close_unused()  # as FileSystem does
            if self.open_count >= self.descriptors:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._fail_once()

    def entries(self, path: str) -> list[DirEntry]:
        """See FileSystem; always in the same order."""
        return sorted(super().entries(path))

    def subdirectories(self, path: str) -> list[str]:
        """See FileSystem; always in the same order."""
        return sorted(super().subdirectories(path))

    def append(self, fd: int, data: Buffer) -> int:
        """See FileSystem."""
        self._alive()
        if self.fails_with == errno.ENOSPC:
            self._fail_once()
        try:
            return super().append(fd, data)
        except PowerLoss:
            self.dead = True
            raise

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """See FileSystem."""
        self._alive()
        super().set_modified_ms(path, modified_ms)


def _caller() -> str:
    """The functions of the broker that run now, innermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < 6:
        if frame.f_globals.get("__name__", "").startswith("barnabas."):
            found.append(f"{frame.f_globals['__name__'].removeprefix('barnabas.')}.{frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(found)
