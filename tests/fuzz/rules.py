"""What must hold whatever a client sends: a quiet log, bounded memory, an event loop that goes on, a living process."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple

from barnabas.broker import collector

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

_Ts = TypeVarTuple("_Ts")

LONG_STEP: Final = 0.1
"""Seconds of processor time that one step of the event loop may take; a run fails above it. Not counted are full
collections of Python's garbage collector, which have a limit of their own: they come in the middle of any step."""
LONG_COLLECTION: Final = 0.5
"""Seconds of processor time that a full collection may take: the fuzzer's objects are in the same heap."""


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


class FullCollections:
    """The processor time of full garbage collections in one thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Of all of them."""
        self.longest = 0.0
        self._thread = threading.get_ident()
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector when a collection begins and when it ends."""
        if info["generation"] != collector.OLDEST or threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._began = time.thread_time()
        else:
            seconds = time.thread_time() - self._began
            self.seconds += seconds
            self.longest = max(self.longest, seconds)


class TimedLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the processor time of its longest step, and what that step was."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0
        self.longest_name = ""
        self.driver: object = None
        """The task that makes and sends the frames: its steps are not the broker's."""
        self.collections = FullCollections()
        gc.callbacks.append(self.collections)

    def close(self) -> None:
        """Measure no more."""
        gc.callbacks.remove(self.collections)
        super().close()

    def begin(self, driver: object) -> None:
        """What came before does not count."""
        self.longest = self.collections.longest = 0.0
        self.driver = driver

    def used(self) -> float:
        """The processor time of this thread, without full collections."""
        return time.thread_time() - self.collections.seconds

    def note(self, seconds: float, name: str) -> None:
        """A step took so long."""
        if seconds > self.longest:
            self.longest, self.longest_name = seconds, name

    def check(self) -> None:
        """Raises BrokenRule if a step took too long, or a collection."""
        if self.longest > LONG_STEP:
            raise BrokenRule(f"a step of the event loop took {self.longest:.2f} s: {self.longest_name}")
        if self.collections.longest > LONG_COLLECTION:
            raise BrokenRule(f"a full garbage collection took {self.collections.longest:.2f} s")

    def _timed(self, callback: Callable[..., object], *args: Any) -> None:
        started = self.used()
        try:
            callback(*args)
        finally:
            seconds = self.used() - started
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
