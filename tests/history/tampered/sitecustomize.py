"""A disk, a clock and a coordinator that can go wrong: with this folder in their PYTHONPATH brokers look for files that
say how.

Python imports a module of this name by itself when it starts, so nothing in the broker has to know of it. The folder
to look in is named by BARNABAS_TAMPERED; `tests/history/tampering.py` writes the files.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.clock import SystemClock
from barnabas.broker.coordinators import record_log
from barnabas.storage.files import FileSystem

if TYPE_CHECKING:
    from typing_extensions import Buffer

FOLDER: Final = Path(os.environ["BARNABAS_TAMPERED"])

_append, _sync, _now_ms = FileSystem.append, FileSystem.sync, SystemClock.now_ms
_replay_log = record_log.replay_log


def _setting(name: str) -> float:
    try:
        return float((FOLDER / name).read_text())
    except FileNotFoundError:
        return 0.0


def append(self: FileSystem, fd: int, data: Buffer) -> int:
    """Write late, or not at all."""
    time.sleep(_setting("delay"))
    if _setting("full"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _append(self, fd, data)


def sync(self: FileSystem, fd: int) -> None:
    """Sync late."""
    time.sleep(_setting("delay"))
    _sync(self, fd)


def now_ms(self: SystemClock) -> int:
    """Another time than it is."""
    return _now_ms(self) + int(_setting("clock") * 1000)


def replay_log(*arguments: Any) -> int:
    """Load nothing as long as it is forbidden."""
    while _setting("unloaded"):
        time.sleep(0.01)
    return _replay_log(*arguments)


record_log.replay_log = replay_log  # type: ignore[assignment]  # that is the point
FileSystem.append = append  # type: ignore[method-assign]
FileSystem.sync = sync  # type: ignore[method-assign]
SystemClock.now_ms = now_ms  # type: ignore[method-assign]
