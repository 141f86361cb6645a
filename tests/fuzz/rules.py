"""What must hold whatever a client sends: a quiet log, bounded memory, an event loop that goes on, a living process."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

_Ts = TypeVarTuple("_Ts")

LONG_STEP: Final = 0.1
"""Seconds of processor time that one step of the event loop may take; the figures say when one took longer."""
TOO_LONG_STEP: Final = 0.5
"""The same, with room for a busy machine and for Python's collector: a run fails above it."""


class BrokenRule(AssertionError):
    """The broker did what it must not do."""


class LogWatch(logging.Handler):
    """Collects what a broker logs as an error, or with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self.errors: list[str] = []
        self.said: list[str] = []
        """Every warning and error, good or bad."""
        self.errors_are_allowed = False
        """Whether only tracebacks are collected: damaged files are an error, and the log says so."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, and whether it is bad."""
        self.said.append(self.format(record))
        if record.exc_info or (record.levelno >= logging.ERROR and not self.errors_are_allowed):
            self.errors.append(self.format(record))

    def __enter__(self) -> LogWatch:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)

    def check(self, after: str) -> None:
        """Raises BrokenRule if something was collected."""
        if self.errors:
            raise BrokenRule(f"{len(self.errors)} errors in the log after {after}; the first is:\n{self.errors[0]}")


def bad_lines(log: str) -> list[str]:
    """The lines of a broker's log that must not be there."""
    return [line for line in log.splitlines() if "Traceback" in line or " ERROR " in line or " CRITICAL " in line]


def own_memory() -> int:
    """The most bytes that this process has had in memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory_of(pid: int) -> int:
    """The most bytes that another process has had in memory so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise BrokenRule(f"process {pid} is gone")


def connections_of(pid: int) -> int:
    """How many sockets another process has open."""
    return sum(_is_socket(each) for each in Path(f"/proc/{pid}/fd").iterdir())


def _is_socket(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False


class TimedLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the processor time of its longest step, and what that step was."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0
        self.longest_name = ""
        self.driver: object = None
        """The task that makes and sends the frames: its steps are not the broker's."""

    def note(self, seconds: float, name: str) -> None:
        """A step took so long."""
        if seconds > self.longest:
            self.longest, self.longest_name = seconds, name

    def _timed(self, callback: Callable[..., object], *args: Any) -> None:
        started = time.thread_time()
        try:
            callback(*args)
        finally:
            seconds = time.thread_time() - started
            if seconds > self.longest:
                owner = getattr(callback, "__self__", callback)
                if owner is not self.driver:
                    self.note(seconds, repr(owner)[:300])

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next turn, and time it."""
        return super().call_soon(partial(self._timed, callback, *args), context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same, from another thread."""
        return super().call_soon_threadsafe(partial(self._timed, callback, *args), context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at a time, and time it."""
        return super().call_at(when, partial(self._timed, callback, *args), context=context)
