"""Looks up the addresses of hosts that quotas name.

A name server may take long to answer, so look-ups have a few threads of their own, which nobody else waits for: neither
what is read and written, nor other changes of settings, nor the end of the broker.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from barnabas.broker.daemon_threads import in_daemon_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Found = Callable[[tuple[str, ...]], None]

THREADS: Final = 4
MOST_WAITING: Final = 1000
"""Hosts that wait for a thread; further ones count as unknown."""


def literal(host: str) -> tuple[str, ...]:
    """The address, as connections have it, if that is what is written; else nothing."""
    try:
        return (str(ip_address(host)),)
    except ValueError:
        return ()


def addresses(host: str) -> tuple[str, ...]:
    """All addresses of a host, looked up; none if it is not known."""
    try:
        return tuple({str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return ()


class HostLookups:
    """Looks hosts up, some at a time."""

    def __init__(self, look_up: Callable[[str], tuple[str, ...]] = addresses) -> None:
        self._look_up = look_up
        self._waiting: deque[tuple[str, Found]] = deque()
        self._threads = 0

    def start(self, host: str, on_found: Found) -> None:
        """Call `on_found` with the addresses of a host, on this event loop, when they are known; with none if not."""
        if len(self._waiting) >= MOST_WAITING:
            asyncio.get_running_loop().call_soon(on_found, ())
            return
        self._waiting.append((host, on_found))
        self._go_on()

    async def find(self, hosts: Collection[str], seconds: float) -> dict[str, tuple[str, ...]]:
        """The addresses of hosts, as far as they can be found in this time."""
        loop, found = asyncio.get_running_loop(), dict[str, tuple[str, ...]]()
        done = loop.create_future()

        def note(host: str, its: tuple[str, ...]) -> None:
            found[host] = its
            if len(found) == len(hosts) and not done.done():
                done.set_result(None)

        for host in hosts:
            self.start(host, partial(note, host))
        if hosts:
            await asyncio.wait((done,), timeout=seconds)
        return dict(found)

    def _go_on(self) -> None:
        while self._waiting and self._threads < THREADS:
            self._threads += 1
            host, on_found = self._waiting.popleft()
            in_daemon_thread("dns", self._look_up, host).add_done_callback(partial(self._end, on_found))

    def _end(self, on_found: Found, done: asyncio.Future[tuple[str, ...]]) -> None:
        self._threads -= 1
        self._go_on()
        on_found(done.result())
