"""Request batching: what is to be asked of a broker while it owes an answer goes together in the next request.

A broker answers the requests of one connection one after the other, and the answer of a coordinator, or for a marker,
waits for replication. Sent one by one, requests to the same broker would wait for each other's replication.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from barnabas.broker.tasks import TaskSet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Item = TypeVar("Item")

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 30.0
"""How long a coordinator, or a leader that writes markers, on another broker has to answer."""
MAX_ITEMS: Final = 100
"""Items in one request: each may name many partitions, and requests have a size limit."""


class RequestBatcher(Generic[Item]):
    """Items that wait to be sent, by broker; `send` sends a batch, waits for the response and hands out the results."""

    def __init__(self, send: Callable[[int, list[Item]], Coroutine[None, None, None]]) -> None:
        self._send = send
        self._waiting: dict[int, list[Item]] = {}
        self._busy: set[int] = set()
        """The brokers that owe an answer, each with one task."""
        self._tasks = TaskSet()

    def add(self, broker_id: int, item: Item) -> None:
        """Send an item to a broker, as soon as it has answered the request before."""
        self._waiting.setdefault(broker_id, []).append(item)
        if broker_id not in self._busy:
            self._busy.add(broker_id)
            self._tasks.spawn(self._run(broker_id))

    async def _run(self, broker_id: int) -> None:
        waiting = self._waiting[broker_id]
        try:
            while waiting:
                batch = waiting[:MAX_ITEMS]
                del waiting[:MAX_ITEMS]
                try:
                    await self._send(broker_id, batch)
                except Exception:  # a bug of this broker; the next batch is sent all the same
                    logger.exception("Could not hand out all results of a batched request to broker %d.", broker_id)
        finally:
            self._busy.discard(broker_id)

    async def stop(self) -> None:
        """Send nothing more."""
        await self._tasks.cancel()
