"""Who is alive, among processes of one host: a file per session, locked and with a lease inside.

A session's file is locked (`flock`) as long as its process lives: the kernel drops the lock at death, even by kill -9,
so death is seen at once. The file holds the time until which the lease is good, on the clock that counts from boot
and goes on while the machine sleeps; a thread of its own renews it, so neither a busy event loop nor a slow disk costs
the session, but a stopped process does. The file needs no fsync: after a power cut nobody holds its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
import threading
import time
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)

_DEADLINE = struct.Struct("<q")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: its monotonic clock counts sleep as well


def boot_time_ns() -> int:
    """Nanoseconds since boot, sleep included; the same for all processes of the host."""
    return time.clock_gettime_ns(_CLOCK)


class Health(Enum):
    """What can be said of another session from outside."""

    ALIVE = "alive"
    HUNG = "hung"
    """Its process holds the lock but has let the lease lapse."""
    DEAD = "dead"


class Lease:
    """A session's own file: locked while this object is open, renewed three times per timeout."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self._timeout_ns = int(timeout * 1e9)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._renew()
        except OSError:
            os.close(self._fd)
            raise
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._keep_renewing, args=(timeout / 3,), name="metadata-lease", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Remove the file and let the lock go."""
        self._closing.set()
        self._thread.join()
        self.path.unlink(missing_ok=True)
        os.close(self._fd)

    def _keep_renewing(self, interval: float) -> None:
        fails = False
        while not self._closing.wait(interval):
            try:
                self._renew()
            except OSError as error:  # a disk that is full, or fails for a moment
                if not fails:
                    logger.error("The session's file %s cannot be written: %s. It is tried again.", self.path, error)
                fails = True
            else:
                fails = False

    def _renew(self) -> None:
        os.pwrite(self._fd, _DEADLINE.pack(boot_time_ns() + self._timeout_ns), 0)


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep other processes of the host out until this block is done."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def health(path: Path) -> Health:
    """Look at another session's file."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return Health.DEAD
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        deadline = os.pread(fd, _DEADLINE.size, 0)
        if len(deadline) == _DEADLINE.size and _DEADLINE.unpack(deadline)[0] < boot_time_ns():
            return Health.HUNG
        return Health.ALIVE
    else:
        return Health.DEAD
    finally:
        os.close(fd)
