"""Threads that validate batches: they decompress, read the records, and compress them again.

Large messages are decoded and encoded here as well (`broker/serving/dispatch`). All of it takes processor time, and a
client decides how much. It must not delay work that waits for the disk, so it has a pool of its own. The bytes that
wait for the pool are bounded, as all memory for requests is: above the bound the connection of a request is closed, and
its client tries again.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

THREADS: Final = 2
"""More would not help: apart from codecs, only one of them runs at a time."""

T = TypeVar("T")


class ValidationPool:
    """The pool, and how many bytes wait for it."""

    def __init__(self, most_bytes: int, pool: Executor | None = None) -> None:
        self._pool = pool or ThreadPoolExecutor(THREADS, "records")
        self._most_bytes = most_bytes
        self._waiting_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of requests that wait for a thread."""
        return self._waiting_bytes

    def start(self, size: int, job: Callable[[], T]) -> asyncio.Future[T] | None:
        """Let `job`, which holds `size` bytes of a request, run in a thread; None if too much waits already."""
        if self._waiting_bytes and self._waiting_bytes + size > self._most_bytes:
            return None
        self._waiting_bytes += size
        running = asyncio.get_running_loop().run_in_executor(self._pool, job)
        running.add_done_callback(lambda _: self._give_back(size))
        return running

    def _give_back(self, size: int) -> None:
        self._waiting_bytes -= size

    def close(self) -> None:
        """Wait for what is running, and drop what waits."""
        self._pool.shutdown(cancel_futures=True)


def yield_interpreter() -> None:
    """Let the event loop have the interpreter, if it waits for it: it would wait for milliseconds otherwise."""
    time.sleep(0)
