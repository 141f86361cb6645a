"""Waking the fetches that wait for a partition, a part of them in each turn of the event loop.

Five thousand consumers may wait for one partition. Each has to look at the log and be answered, so waking all at once
would hold up everything else. No fetch misses records: it has looked at the log in the callback in which it began to
wait, and if more is appended before the last fetches are woken, all are woken again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

PER_TURN: Final = 200
"""Watchers that are woken in one turn of the event loop: some milliseconds of work."""


class Watcher(Protocol):
    """A fetch that waits until a partition has more to read."""

    def wake(self) -> None:
        """Look at the log again."""
        ...


class Wakeups:
    """Wakes the watchers that are in a collection at that time, in its order."""

    __slots__ = ("_again", "_left", "_watchers")

    def __init__(self, watchers: Collection[Watcher]) -> None:
        self._watchers = watchers
        self._left: list[Watcher] = []
        """Watchers that are still to be woken."""
        self._again = False
        """Whether there is more to read since the first of them were woken."""

    def wake(self) -> None:
        """Wake all watchers, in this turn of the event loop and as many more as it takes."""
        if self._left:
            self._again = True
            return
        self._left = list(self._watchers)
        self._wake_some()

    def _wake_some(self) -> None:
        some, self._left = self._left[:PER_TURN], self._left[PER_TURN:]
        for watcher in some:
            watcher.wake()
        if self._left:
            asyncio.get_running_loop().call_soon(self._wake_some)
        elif self._again:
            self._again = False
            asyncio.get_running_loop().call_soon(self.wake)
