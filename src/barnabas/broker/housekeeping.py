"""Scheduled tasks of a broker: retention, checkpoints, timed flushes, removing deleted files.

A Kafka setting says how often each task runs. It runs in a thread, never twice at once; one that fails is logged and
runs again at its next time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.tasks import TaskSet
from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.security.delegation_tokens import DelegationTokens

logger = logging.getLogger(__name__)

DELETE_EVERY_MS: Final = 1000
LONGEST_WAIT_MS: Final = 86_400_000


class ScheduledTask(NamedTuple):
    """Work that is done every `every_ms`."""

    name: str
    every_ms: Callable[[], int]
    run: Callable[[], object]


class Housekeeping:
    """Runs the scheduled tasks of one broker until it is stopped."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._tasks = TaskSet()
        self._running: set[asyncio.Future[object]] = set()
        """Tasks that are running in threads now."""

    def start(self) -> None:
        """Start all tasks."""
        for task in self._scheduled():
            self._tasks.spawn(self._repeat(task), task.name)
        if self._broker.tokens is not None:
            self._tasks.spawn(self._remove_expired_tokens(self._broker.tokens), "delegation tokens")

    async def stop(self) -> None:
        """Stop them, and wait for those that are running in threads."""
        await self._tasks.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _scheduled(self) -> list[ScheduledTask]:
        logs, clock, number = self._broker.logs, self._broker.clock, self._broker.settings.number
        return [
            ScheduledTask(
                "retention",
                lambda: number("log.retention.check.interval.ms"),
                lambda: logs.retention_pass(clock.now_ms()),
            ),
            ScheduledTask(
                "checkpoint", lambda: number("replica.high.watermark.checkpoint.interval.ms"), logs.checkpoint
            ),
            ScheduledTask(
                "flush",
                lambda: number("log.flush.scheduler.interval.ms"),
                lambda: logs.flush_due(clock.now_ms()),
            ),
            ScheduledTask(
                "expire producers",
                lambda: number("producer.id.expiration.check.interval.ms"),
                lambda: logs.expire_producers(clock.now_ms()),
            ),
            ScheduledTask("delete files", lambda: DELETE_EVERY_MS, lambda: logs.delete_due(clock.now_ms())),
        ]

    async def _remove_expired_tokens(self, tokens: DelegationTokens) -> None:
        """While this broker is the controller, remove delegation tokens that expired. It waits for no disk."""
        broker = self._broker
        while True:
            every_ms = broker.settings.number("delegation.token.expiry.check.interval.ms")
            await asyncio.sleep(min(every_ms, LONGEST_WAIT_MS) / 1000)
            if broker.controller.is_active:
                try:
                    await tokens.remove_expired()
                except BarnabasError as error:
                    logger.warning("Expired delegation tokens stay until the next time: %s", error)
                except Exception:
                    logger.exception("Expired delegation tokens stay until the next time.")

    async def _repeat(self, task: ScheduledTask) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(task.every_ms(), LONGEST_WAIT_MS) / 1000)
            running = loop.run_in_executor(self._broker.executor, task.run)
            self._running.add(running)
            running.add_done_callback(self._running.discard)
            try:
                await asyncio.shield(running)
            except Exception:
                logger.exception(
                    "The scheduled task %r failed and runs again in %g s.", task.name, task.every_ms() / 1000
                )
