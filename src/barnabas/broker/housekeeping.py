"""Work that a broker does now and then: retention, checkpoints, timed flushes, removing deleted files.

Each chore has a Kafka setting for how often. It runs in a thread, never twice at once; one that fails is logged and
tried again at its next turn.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.context import Broker

logger = logging.getLogger(__name__)

DELETE_EVERY_MS: Final = 1000
LONGEST_WAIT_MS: Final = 86_400_000


class Chore(NamedTuple):
    """Something to be done every `every_ms`."""

    name: str
    every_ms: Callable[[], int]
    run: Callable[[], object]


class Housekeeping:
    """Runs the chores of one broker until it is stopped."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Future[object]] = set()
        """What runs in threads at the moment."""

    def start(self) -> None:
        """Start all chores."""
        self._tasks = [asyncio.create_task(self._repeat(chore), name=chore.name) for chore in self._chores()]

    async def stop(self) -> None:
        """Stop them; what runs in a thread is waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._running:
            await asyncio.wait(self._running)

    def _chores(self) -> list[Chore]:
        logs, clock, number = self._broker.logs, self._broker.clock, self._broker.settings.number
        return [
            Chore(
                "retention",
                lambda: number("log.retention.check.interval.ms"),
                lambda: logs.retention_pass(clock.now_ms()),
            ),
            Chore("checkpoint", lambda: number("replica.high.watermark.checkpoint.interval.ms"), logs.checkpoint),
            Chore(
                "flush",
                lambda: number("log.flush.scheduler.interval.ms"),
                lambda: logs.flush_due(clock.now_ms()),
            ),
            Chore(
                "forget producers",
                lambda: number("producer.id.expiration.check.interval.ms"),
                lambda: logs.expire_producers(clock.now_ms()),
            ),
            Chore("delete files", lambda: DELETE_EVERY_MS, lambda: logs.delete_due(clock.now_ms())),
        ]

    async def _repeat(self, chore: Chore) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(chore.every_ms(), LONGEST_WAIT_MS) / 1000)
            running = loop.run_in_executor(self._broker.executor, chore.run)
            self._running.add(running)
            running.add_done_callback(self._running.discard)
            try:
                await asyncio.shield(running)
            except Exception:
                logger.exception("the chore %r failed; it is tried again later", chore.name)
