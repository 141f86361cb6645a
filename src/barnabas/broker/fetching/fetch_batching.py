"""Fetch batching: followers' fetches are answered after a turn of the event loop in which nothing was appended.

The requests of a producer come shortly after each other. If followers were answered after each of them, they would
fetch once for every few batches, and a fetch costs both brokers more than storing a batch. So the event loop polls its
sockets once more before followers are answered, and again while that brings batches, up to a small limit. When no more
batches come, this takes microseconds.

The fetch offset of a follower counts when its fetch arrives: a Produce with acks=all does not wait for fetch batching.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.replication.wakeups import Watcher

MAX_TURNS: Final = 4
"""Turns of the event loop after which followers are answered although more was appended."""
MAX_SECONDS: Final = 0.002
"""The same as a time: a turn with many connections may take long."""


class FetchBatching:
    """Waits until appends pause, and then lets followers' fetches look at their logs."""

    def __init__(self) -> None:
        self._partitions: dict[LeaderPartition, None] = {}
        """Partitions that were appended to."""
        self._fetches: list[Watcher] = []
        """Fetches that have just arrived."""
        self._appended = False
        """Whether something was appended in this turn."""
        self._turns = 0
        """Turns since the first append or fetch; 0 while nothing waits."""
        self._since = 0.0

    def appended(self, partition: LeaderPartition) -> None:
        """A batch was appended: wake the followers' fetches that wait for this partition."""
        self._appended = True
        self._partitions[partition] = None
        if not self._turns:
            self._begin()

    def arrived(self, fetch: Watcher) -> None:
        """A follower's fetch arrived: let it look at its logs."""
        self._fetches.append(fetch)
        if not self._turns:
            self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._turns = 1
        self._since = loop.time()
        loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if self._appended and self._turns < MAX_TURNS:
            loop = asyncio.get_running_loop()
            if loop.time() - self._since < MAX_SECONDS:
                self._appended = False
                self._turns += 1
                loop.call_soon(self._end_turn)
                return
        self._appended = False
        self._turns = 0
        fetches, self._fetches = self._fetches, []
        partitions, self._partitions = self._partitions, {}
        for fetch in fetches:
            fetch.wake()
        for partition in partitions:
            partition.wake_followers()
