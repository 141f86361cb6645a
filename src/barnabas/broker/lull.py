"""Followers' fetches are answered in a lull: after a turn of the event loop in which nothing was appended.

A producer's requests come one shortly after the other. If each were handed on for itself, followers would fetch once
for every few batches, and to fetch costs both brokers more than to store a batch. So before a follower is answered, the
sockets are looked at once more, and again while they bring batches, but not often and not for long. When there is
nothing to wait for, that takes microseconds.

How far a follower is, is noted when its fetch comes: whoever waits for that is not to wait for a lull.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.broker.partition import Partition
    from barnabas.broker.wakeups import Watcher

MOST_TURNS: Final = 4
"""Turns of the event loop after which there need be no lull."""
LONGEST: Final = 0.002
"""Seconds after which there need be none either: a turn with many connections may take long."""


class Lull:
    """Waits for the next lull, and then lets followers' fetches look."""

    def __init__(self) -> None:
        self._partitions: set[Partition] = set()
        self._fetches: list[Watcher] = []
        self._appended = False
        self._turns = 0
        """Turns since somebody waits; 0 if nobody does."""
        self._since = 0.0

    def appended(self, partition: Partition) -> None:
        """Let the fetches look that wait for more in this partition."""
        self._appended = True
        self._partitions.add(partition)
        if not self._turns:
            self._begin()

    def arrived(self, fetch: Watcher) -> None:
        """Let a fetch look that has just come."""
        self._fetches.append(fetch)
        if not self._turns:
            self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._turns = 1
        self._since = loop.time()
        loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if self._appended and self._turns < MOST_TURNS:
            loop = asyncio.get_running_loop()
            if loop.time() - self._since < LONGEST:
                self._appended = False
                self._turns += 1
                loop.call_soon(self._end_turn)
                return
        self._appended = False
        self._turns = 0
        fetches, self._fetches = self._fetches, []
        partitions, self._partitions = self._partitions, set()
        for fetch in fetches:
            fetch.wake()
        for partition in partitions:
            partition.wake_followers()
