"""Questions to other brokers in bundles: what comes up while an answer is on its way goes together in the next request.

A broker answers one request of a connection at a time, and a coordinator's or a marker's answer waits until something
is replicated. One by one, questions to the same broker would wait for each other's replication.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Question = TypeVar("Question")

logger = logging.getLogger(__name__)

MOST: Final = 100
"""Questions in one request: each may name many partitions, and requests have a bound."""


class Bundles(Generic[Question]):
    """What is to be asked of each broker; `ask` sends a bundle, waits, and tells whoever asked."""

    def __init__(self, ask: Callable[[int, list[Question]], Coroutine[Any, Any, None]]) -> None:
        self._ask = ask
        self._waiting: dict[int, list[Question]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """One for each broker that is being asked."""

    def add(self, broker_id: int, question: Question) -> None:
        """Ask a broker, as soon as it has answered what it was asked before."""
        self._waiting.setdefault(broker_id, []).append(question)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = asyncio.get_running_loop().create_task(self._run(broker_id))

    async def _run(self, broker_id: int) -> None:
        waiting = self._waiting[broker_id]
        try:
            while waiting:
                bundle = waiting[:MOST]
                del waiting[:MOST]
                try:
                    await self._ask(broker_id, bundle)
                except Exception:  # a mistake of ours; the next bundle is asked all the same
                    logger.exception("not everybody was told what broker %d answered", broker_id)
        finally:
            del self._tasks[broker_id]

    async def stop(self) -> None:
        """Ask nobody any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
