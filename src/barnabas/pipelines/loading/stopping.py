"""Lets a load be interrupted: between two commits, and without breaking a call to Spark.

Signals reach the main thread, and an exception there would come in the middle of whatever it does: a commit, or a
conversation with Java that nobody could go on with. So a load runs in a thread beside it, and the main thread waits.
When it is interrupted it says so to the load, which looks before each step, and has Spark drop the tasks that run.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STOP_SECONDS: Final = 10.0
"""How long a load that is not committing may take to end after it was interrupted."""

LOOK_SECONDS: Final = 0.5
"""How long the main thread waits at a time: Python handles a signal that comes just before a wait only after it."""

T = TypeVar("T")


class Stopped(Exception):
    """A load was interrupted, and ends here."""


class Abandoned(KeyboardInterrupt):
    """A load was interrupted, and did not end in time: its thread may still run."""


class Stopping:
    """Whether a load is to end, and when it must not be left."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._commit = threading.Lock()
        self.timeout = STOP_SECONDS
        """How long to wait for a load that is to end."""

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """A block that is run whole, or not at all once a stop was requested. Raises Stopped."""
        with self._commit:
            self.check()
            yield

    @contextmanager
    def abandonable(self) -> Iterator[None]:
        """A block that nobody has to wait for, since it can neither be hurried nor leave anything half done."""
        self.timeout = 0.0
        try:
            yield
        finally:
            self.timeout = STOP_SECONDS

    def check(self) -> None:
        """Raise Stopped if a stop was requested."""
        if self._requested.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep so long; a stop ends it. Raises Stopped."""
        self._requested.wait(seconds)
        self.check()

    def request_stop(self) -> None:
        """Request a stop; comes back when no commit is under way, and none will be."""
        self._requested.set()
        # In slices: a Ctrl-C that comes just before a wait without end begins would be noticed only after it.
        while not self._commit.acquire(timeout=LOOK_SECONDS):
            pass
        self._commit.release()


def run_beside(call: Callable[[], T], stopping: Stopping, cancel_tasks: Callable[[], None]) -> T:
    """Run a load in a thread beside the main one and wait for it; elsewhere it is simply called.

    Ctrl-C ends it between two commits and is raised then; a second one, or a load that waits for something else for too
    long, is Abandoned.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    from pyspark import InheritableThread

    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # raised again by whoever waits
            outcome.set_exception(error)

    def cancel() -> None:
        with suppress(Exception):  # Java may end before it has answered, and nobody is left to be told
            cancel_tasks()

    try:
        InheritableThread(target=run, name="barnabas-load", daemon=True).start()
        while not outcome.done():
            wait([outcome], LOOK_SECONDS)
        return outcome.result()
    except KeyboardInterrupt:
        try:
            stopping.request_stop()
            threading.Thread(target=cancel, daemon=True).start()
            wait([outcome], stopping.timeout)
        except KeyboardInterrupt:
            raise Abandoned from None
        if not outcome.done():
            raise Abandoned from None
        raise
