"""Opening batches in threads of their own: decompressing, going over records, compressing anew.

That is work for the processor, and a client decides how much of it there is. It must not stand in the way of what
waits for the disk, so it has a pool to itself. What waits for that pool is bounded, as all memory for requests is: past
the bound a request is not taken, its connection is closed, and its client comes again.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS: Final = 2
"""More would not help: apart from codecs, only one of them runs at a time."""

T = TypeVar("T")


class Opening:
    """The pool, and how many bytes wait for it."""

    def __init__(self, most_bytes: int) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "records")
        self._most_bytes = most_bytes
        self._waiting_bytes = 0

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


def breathe() -> None:
    """Let the event loop have the interpreter, if it waits for it: it would wait for milliseconds otherwise."""
    time.sleep(0)
