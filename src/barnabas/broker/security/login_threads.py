"""Threads for work that strangers can ask for, before anybody knows who they are.

Signatures and the arithmetic of passwords take milliseconds, so they are no work for the event loop. They have threads
of their own: in those that the broker uses for itself, strangers would hold up its logins to other brokers, its updates
of metadata and its certificates. A few messages are worked on at a time. Others wait outside of the threads, a limited
number of them and of their bytes: whoever comes then is refused and has to try again. A client that leaves while it
waits gives its place back, and nothing is done for it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.machines.security.login_step import LoginRefused

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS: Final = 2
MOST_MESSAGES: Final = 1000
"""That wait for a thread or are in one: some seconds of work."""
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of these messages: a thousand of ordinary ones, a hundred of the longest."""
OVERHEAD: Final = 2 * 1024
"""Bytes that a message takes besides its own, as one that is empty does."""

T = TypeVar("T")


class LoginThreads:
    """The threads of one mechanism of one listener; they are started when they are needed."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix=f"login by {mechanism}")
        self._free = asyncio.Semaphore(THREADS)
        self._messages = 0
        self._bytes = 0

    async def run(self, function: Callable[[], T], size: int) -> T:
        """What a function gives that is called in a thread, about a message of so many bytes.

        Raises LoginRefused while too many others wait.
        """
        cost = size + OVERHEAD
        if self._messages >= MOST_MESSAGES or self._bytes + cost > MOST_BYTES:
            raise LoginRefused(f"too many others log in by {self._mechanism} at this moment")
        self._messages += 1
        self._bytes += cost
        try:
            await self._free.acquire()
        except asyncio.CancelledError:
            self._forget(cost)
            raise
        called = asyncio.get_running_loop().run_in_executor(self._executor, function)
        called.add_done_callback(lambda _: self._end(called, cost))
        return await asyncio.shield(called)  # a thread goes on for a client that has left: nobody takes its place

    def _end(self, called: asyncio.Future[T], cost: int) -> None:
        self._free.release()
        self._forget(cost)
        if not called.cancelled():
            called.exception()  # else asyncio would log that nobody asked for it, where the client has left

    def _forget(self, cost: int) -> None:
        self._messages -= 1
        self._bytes -= cost
