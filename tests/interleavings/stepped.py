"""The storage in steps: its locks, its calls to the file system, and what readers look at without a lock."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from barnabas.storage.files import FileSystem
from barnabas.storage.log.log import Log
from barnabas.storage.segments.segments import Segments
from tests.interleavings.turns import SteppedLock, Turns
from tests.support.logs import UnsyncedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

READ_WITHOUT_LOCK: Final = (
    (Segments, "all"),
    (Segments, "active"),
    (Segments, "changes"),
    (Log, "loaded"),
    (Log, "log_start_offset"),
    (Log, "truncations"),
    (Log, "is_closed"),
)


class Steps:
    """Whose turn it is, for whatever is in steps."""

    def __init__(self) -> None:
        self.turns: Turns | None = None

    def now(self) -> Turns | None:
        """The run that is under way."""
        return self.turns

    def point(self, what: str) -> None:
        """See Turns.point."""
        if self.turns is not None:
            self.turns.point(what)


class SteppedSlot:
    """An attribute whose every reading and replacement is a point."""

    def __init__(self, steps: Steps, slot: Any, name: str) -> None:
        self._steps = steps
        self._slot = slot
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        self._steps.point(f"reads {self._name}")
        return self._slot.__get__(instance, owner)

    def __set__(self, instance: object, value: object) -> None:
        self._steps.point(f"replaces {self._name}")
        self._slot.__set__(instance, value)


class NotedSyncs(UnsyncedFiles):
    """Files that know how much of each was synced."""

    def __init__(self) -> None:
        self.synced: dict[int, int] = {}
        """Bytes by inode; nothing of files that were not synced."""

    def sync(self, fd: int) -> None:
        """Note it."""
        file = os.fstat(fd)
        self.synced[file.st_ino] = file.st_size


class SteppedFiles(NotedSyncs):
    """Files of which every call is a point, before it is made."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps


def _in_steps(name: str) -> Any:
    def call(self: SteppedFiles, *args: Any, **kwargs: Any) -> Any:
        self.steps.point(f"{name} {' '.join(part.rsplit('/', 1)[-1] for part in args if isinstance(part, str))}")
        return getattr(super(SteppedFiles, self), name)(*args, **kwargs)

    return call


for _name, _ in inspect.getmembers(FileSystem, inspect.isfunction):
    if not _name.startswith("_") and _name != "close_unused":
        setattr(SteppedFiles, _name, _in_steps(_name))


@contextmanager
def in_steps(patch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Have all that is made meanwhile, below `barnabas.storage`, take steps."""
    steps = Steps()
    locks = SimpleNamespace(**vars(threading))
    locks.Lock = lambda: SteppedLock(steps.now)
    locks.RLock = lambda: SteppedLock(steps.now, again=True)
    with patch.context() as within:
        for name, module in list(sys.modules.items()):
            if name.startswith("barnabas.storage") and getattr(module, "threading", None) is threading:
                within.setattr(module, "threading", locks)
        for owner, name in READ_WITHOUT_LOCK:
            within.setattr(owner, name, SteppedSlot(steps, vars(owner)[name], name))
        yield steps
