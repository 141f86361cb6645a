"""Waking those who watch a partition, not so many at once that nobody else gets a turn of the event loop.

Five thousand consumers may wait for one partition, and each has to look at the log and be answered. They are woken some
at a time. Nothing is missed thereby: whoever begins to watch has looked at the log in the same callback, and if there
is more while the last ones are still to be woken, all are woken once again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

PER_TURN: Final = 200
"""How many are woken at once: some milliseconds of work."""


class Watcher(Protocol):
    """Somebody who wants to know that a partition has more to read."""

    def wake(self) -> None:
        """Look again."""
        ...


class Wakeups:
    """Wakes the watchers that are in a set when it is asked to."""

    __slots__ = ("_again", "_left", "_watchers")

    def __init__(self, watchers: AbstractSet[Watcher]) -> None:
        self._watchers = watchers
        self._left: list[Watcher] = []
        """Those who are still to be woken."""
        self._again = False
        """Whether there was more to read since the first of them were."""

    def wake(self) -> None:
        """Let everyone look again, in this turn of the event loop and as many more as that takes."""
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
