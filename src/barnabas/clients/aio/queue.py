"""The queue for asyncio: the threads of the other one, whose messages are taken in the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from barnabas.clients.aio.threads import in_thread, to_the_end
from barnabas.clients.errors import ClientClosed, added_to, noted_in, passing_error
from barnabas.clients.queue.membership import CLOSE_SECONDS
from barnabas.clients.queue.queue import QueueBase
from barnabas.clients.records import K, V

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from barnabas.clients.queue.leader import HeldRecord
    from barnabas.clients.queue.message import QueueMessage
    from barnabas.clients.records import Headers, RecordMetadata

__all__ = ["AsyncQueue"]

SLICE = 0.25
"""How long one look for a message may hold the thread, in seconds: a task that is cancelled waits for its end."""


class AsyncQueue(QueueBase[K, V]):
    """A queue of messages, within one event loop. Close it, or use it in an `async with`."""

    _thread: ThreadPoolExecutor | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted_in(error):
            await self.close()

    async def __aiter__(self) -> AsyncIterator[QueueMessage[K, V]]:
        """Messages, one by one, until the queue is closed."""
        while not self._engine.closing:
            try:
                message = await self.get()
            except ClientClosed:
                return
            if message is not None:
                yield message

    async def get(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  (the same as in `Queue`: None, not an error)
    ) -> QueueMessage[K, V] | None:
        """The next message; None if none came within `timeout` seconds. Without a timeout it waits."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="barnabas-queue-take")
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            left = SLICE if deadline is None else min(SLICE, deadline - loop.time())
            taking = loop.run_in_executor(self._thread, self._take, max(left, 0.0))
            held = await self._await_taken(taking)
            if held is not None:
                return self._message(held)
            if deadline is not None and loop.time() >= deadline:
                return None

    async def _await_taken(self, taking: asyncio.Future[HeldRecord | None]) -> HeldRecord | None:
        """What was taken; a message that comes for a task that was cancelled meanwhile waits for the next one."""
        try:
            return await to_the_end(taking)
        except asyncio.CancelledError:
            if not taking.cancelled() and taking.exception() is None and (held := taking.result()) is not None:
                self._engine.put_back(held)
            raise

    async def send(self, value: Any = None, key: Any = None, *, headers: Headers | None = None) -> RecordMetadata:
        """Send a message, and wait until the broker has it."""
        delivery = await in_thread(lambda: self._sender().send(self._settings.topics[0], value, key, headers=headers))
        return await in_thread(delivery.result)

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:  # noqa: ASYNC109  (as in `Queue`)
        """Send acknowledgements that are on their way, give back what is not acknowledged, and leave the group."""
        with added_to(passing_error()):
            await in_thread(self._close, timeout)
        if self._thread is not None:
            self._thread.shutdown(wait=False)
