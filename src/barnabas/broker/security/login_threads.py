"""Threads for work that strangers can ask for, before anybody knows who they are.

Signatures and the arithmetic of passwords take milliseconds, so they are no work for the event loop. They have threads
of their own: in those that the broker uses for itself, strangers would hold up its logins to other brokers, its updates
of metadata and its certificates. A few messages are worked on at a time, and others wait as long as there is memory for
them; whoever comes then is refused and has to try again.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.machines.security.login_step import LoginRefused

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS: Final = 2
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of messages that wait for a thread or are in one: thousands of ordinary ones, a hundred of the longest."""

T = TypeVar("T")


class LoginThreads:
    """The threads of one mechanism of one listener; they are started when they are needed."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix=f"login by {mechanism}")
        self._bytes = 0

    async def run(self, function: Callable[[], T], size: int) -> T:
        """What a function gives that is called in a thread, about a message of so many bytes.

        Raises LoginRefused while too many others wait.
        """
        if self._bytes + size > MOST_BYTES:
            raise LoginRefused(f"too many others log in by {self._mechanism} at this moment")
        self._bytes += size
        called = asyncio.get_running_loop().run_in_executor(self._executor, function)
        called.add_done_callback(lambda _: self._forget(size))
        return await asyncio.shield(called)  # the message of a client that leaves is in memory until its turn has come

    def _forget(self, size: int) -> None:
        self._bytes -= size
