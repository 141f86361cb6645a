"""A disk, a clock and a coordinator that can go wrong: with this folder in their PYTHONPATH brokers look for files that
say how. They also write down the longest step of their event loop since they were ready, in processor time.

Python imports a module of this name by itself when it starts, so nothing in the broker has to know of it. The folder
to look in is named by BARNABAS_TAMPERED; `tests/history/tampering.py` writes the files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from barnabas.broker import collector
from barnabas.broker.clock import SystemClock
from barnabas.broker.coordinators import record_log
from barnabas.storage.files import FileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

FOLDER: Final = Path(os.environ["BARNABAS_TAMPERED"])

_append, _sync, _now_ms = FileSystem.append, FileSystem.sync, SystemClock.now_ms
_replay_log, _tune_process = record_log.replay_log, collector.tune_process


def _setting(name: str) -> float:
    try:
        return float((FOLDER / name).read_text())
    except FileNotFoundError:
        return 0.0
    except OSError as error:
        if error.errno != errno.EMFILE:  # a broker that has no descriptor left is not told anything
            raise
        return 0.0


def append(self: FileSystem, fd: int, data: Buffer) -> int:
    """Write late, or not at all."""
    time.sleep(_setting("delay"))
    for name, number in (("full", errno.ENOSPC), ("bad", errno.EIO)):
        if _setting(name):
            raise OSError(number, os.strerror(number))
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


class _Steps:
    """The longest step of the event loop since the broker was ready."""

    counts = False
    longest = 0.0


def _timed(callback: Callable[..., object], *arguments: Any) -> None:
    began = time.thread_time()
    try:
        callback(*arguments)
    finally:
        seconds = time.thread_time() - began
        if _Steps.counts and seconds > _Steps.longest:
            with contextlib.suppress(OSError):  # no descriptor: the next one is noted
                (FOLDER / f"step-{os.getpid()}").write_text(
                    f"{seconds:.4f} {getattr(callback, '__self__', callback)!r:.300}"
                )
                _Steps.longest = seconds


def _timing(name: str, before: int) -> Callable[..., Any]:
    """A method of an event loop that takes a callback after so many arguments, and has it timed."""
    method = getattr(uvloop.Loop, name)

    def schedule(self: uvloop.Loop, *arguments: Any, **named: Any) -> Any:
        return method(self, *arguments[:before], _timed, *arguments[before:], **named)

    return schedule


_SCHEDULING: Final = {
    "call_soon": 0,
    "call_soon_threadsafe": 0,
    "call_later": 1,
    "call_at": 1,
    "add_reader": 1,
    "add_writer": 1,
}
TimedLoop: Final = type(
    "TimedLoop", (uvloop.Loop,), {name: _timing(name, before) for name, before in _SCHEDULING.items()}
)


def tune_process() -> None:
    """The broker is ready: from now on steps count."""
    _tune_process()
    _Steps.counts = True


uvloop.run = partial(uvloop.run, loop_factory=TimedLoop)
collector.tune_process = tune_process
record_log.replay_log = replay_log  # type: ignore[assignment]  # that is the point
FileSystem.append = append  # type: ignore[method-assign]
FileSystem.sync = sync  # type: ignore[method-assign]
SystemClock.now_ms = now_ms  # type: ignore[method-assign]
