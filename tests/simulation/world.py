"""Time, chance and the network. Everything that happens is an event in one queue, so a seed always tells one story.

Messages take their time, so they overtake each other; some are lost, some links are cut. A process that crashed hears
nothing more. One that hangs hears everything later, and does not know that it hung.
"""

from __future__ import annotations

import heapq
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class World:
    """The clock (in milliseconds), the queue of events, and the links between hosts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.loss = 0.0
        """How often a message is lost."""
        self.slow = 0.0
        """How often a message takes much longer than others."""
        self.cut: set[tuple[int, int]] = set()
        """Links that carry nothing: from, to."""
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        """Do something later."""
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay, self._count, action, args))

    def run_until(self, end: float) -> None:
        """Let everything happen up to a time."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, action, args = heapq.heappop(queue)
            action(*args)
        self.now = end

    def carry(self, source: int, target: int, action: Callable[..., None], *args: Any) -> None:
        """Take a message from host to host, perhaps."""
        random = self.random
        if (source, target) in self.cut or (self.loss and random.random() < self.loss):
            return
        delay = 0.3 + 1.5 * random.random()
        if self.slow and random.random() < self.slow:
            delay = 60 * random.random()
        self.after(delay, action, *args)


class Process:
    """Something that runs on a host, can hang, and can end."""

    def __init__(self, world: World, host: int) -> None:
        self.world = world
        self.host = host
        self.alive = True
        self.hangs_until = 0.0

    def after(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        """Do something later, if still alive, and not before waking up."""
        self.world.after(delay, self.perform, action, *args)

    def perform(self, action: Callable[..., None], *args: Any) -> None:
        """Do something now, or on waking up."""
        if not self.alive:
            return
        if self.world.now < self.hangs_until:
            self.world.after(
                self.hangs_until - self.world.now + self.world.random.random(), self.perform, action, *args
            )
            return
        action(*args)
