"""The producer for asyncio.

librdkafka's answers arrive in the pump's thread, or in `send` when many records are sent; they are collected, and the
event loop is woken once per collection, not once per record.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from barnabas.clients.aio.threads import in_thread, to_the_end
from barnabas.clients.config import log
from barnabas.clients.delivery import delivery_error
from barnabas.clients.errors import noted_in
from barnabas.clients.pump import POLL_EVERY
from barnabas.clients.records import RecordMetadata
from barnabas.clients.sending import K, ProducerBase, V

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator
    from datetime import datetime
    from types import TracebackType

    from barnabas.clients.aio.consumer import AsyncConsumer
    from barnabas.clients.delivery import Failures
    from barnabas.clients.records import Headers
    from barnabas.clients.transactions import Transactions
    from barnabas.model.base_error import BarnabasError

__all__ = ["AsyncDelivery", "AsyncProducer"]

_ROOM_SECONDS = 0.01
"""How long a sender waits for room in the buffer before it looks again."""


class AsyncDelivery(asyncio.Future[RecordMetadata]):
    """A record on its way. Awaiting it gives its RecordMetadata, or raises what went wrong.

    A failure that nobody awaits is raised by `flush` and `close`. Inside, the result is a tuple: most are never asked
    for, and a RecordMetadata takes as long to make as the rest of a future. For the same reason there is no `__init__`:
    the producer sets what a record has of its own.
    """

    topic: str
    failures: Failures
    counted_in: int
    _told = False

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        self._told = True
        self._look()
        where: Any = yield from super().__await__()
        return RecordMetadata(self.topic, *where)

    __iter__ = __await__

    def result(self) -> RecordMetadata:
        """Where the record went; raises if it did not arrive, or if that is not known yet."""
        self._look()
        where: Any = super().result()
        return RecordMetadata(self.topic, *where)

    def exception(self) -> BaseException | None:
        """Why the record did not arrive; None if it did. Raises InvalidStateError if that is not known yet."""
        self._look()
        return super().exception()

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Any = None) -> None:
        """Call `callback(delivery)` in the event loop when it is known what became of the record."""
        self._told = True
        self._look()
        super().add_done_callback(callback, context=context)

    def settle(self, outcome: tuple[int, int, int] | BarnabasError, *, remember: bool = True) -> None:
        """Set the result, unless nobody wants it any more."""
        if self.done():
            return
        if isinstance(outcome, tuple):
            self.set_result(outcome)  # type: ignore[arg-type]  # what `result` makes of it
            return
        self.set_exception(outcome)
        super().exception()  # asyncio need not warn of what `flush` and `close` will raise
        if remember and not self._told:
            self.failures.add(self, outcome)

    def _look(self) -> None:
        """Somebody is told now; a failure need not be kept for `flush` and `close` any more."""
        if self.done() and not self.cancelled() and super().exception() is not None:
            self.failures.seen(self)


class AsyncProducer(ProducerBase[K, V]):
    """Sends records, within one event loop. Close it, or use it in an `async with`."""

    _loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted_in(error):
            await self.close()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
        on_delivery: Callable[[AsyncDelivery], object] | None = None,
    ) -> AsyncDelivery:
        """Put a record into the buffer, and return the future that says where it went.

        Awaiting `send` waits for room in the buffer (see `when_full`), awaiting what it returns waits for the broker.
        Records of one partition arrive in the order in which they were sent. `on_delivery(delivery)` is called in the
        event loop. Raises SerializationFailed, BufferFull, ClientClosed.
        """
        loop = self._loop
        if loop is None:
            loop = self._begin()
        delivery = AsyncDelivery(loop=loop)
        delivery.topic = topic
        delivery.failures = self._shared.failures
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)

        def settle(error: Any, message: Any) -> None:
            self._settled(delivery, error, message)

        if self._plain and partition is None and headers is None and timestamp is None:
            arguments: tuple[Any, ...] = (topic, value, key, -1, settle)
        else:
            if not self._counted(topic):
                await asyncio.to_thread(self._count, topic)
            arguments = self._arguments(topic, value, key, partition, headers, timestamp, settle)
        pump = self._pump
        pump.sends += 1
        if not pump.sends % POLL_EVERY:
            self._client.poll(0)
            self._hand_over()
        try:
            self._client.produce(*arguments)
        except BufferError:
            await self._when_buffer_is_full(delivery, arguments)
        except (TypeError, OverflowError, self._kafka.KafkaException) as error:
            raise self._refused(arguments, error) from error
        return delivery

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  (the same as in `Producer`)
        """Wait until it is known of every record that was sent whether it arrived.

        Raises NotDelivered for those that did not and that nobody has awaited, TimeoutError if the time is over.
        """
        self._check_open()
        await asyncio.to_thread(self._wait_for_all, timeout)
        await asyncio.sleep(0)  # what was just collected is settled first
        self._shared.failures.raise_any()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  (the same as in `Producer`)
        """Send what is left and end. What is not delivered after `timeout` seconds is given up.

        Without a timeout that is decided by `delivery_timeout`. Raises NotDelivered like `flush`, also for what was
        given up. Closing twice does nothing.
        """
        client = self._shut()
        if client is None:
            await asyncio.to_thread(self._ended.wait, timeout)  # another task may be at it
            return
        await in_thread(self._end, client, timeout)
        await asyncio.sleep(0)
        self._shared.failures.raise_any()

    @asynccontextmanager
    async def transaction(self, consumer: AsyncConsumer[Any, Any] | None = None) -> AsyncIterator[None]:
        """Everything sent in the block becomes visible together at its end, or never if it ends with an error.

        With a consumer, the offsets of the records that it handed out become part of it: read, process and write
        exactly once. It has to have `auto_commit=False`. After an error the consumer is back where it was; if the
        commit was asked for and its answer did not come, it goes on from what its group has committed.
        A rebalance or a seek that drops offsets of records that were handed out aborts it.
        Raises TransactionAborted, ProducerFenced.

        A task that is cancelled here ends when it is known what became of the transaction: while it is being committed,
        that is done first, and what is not committed is aborted.
        """
        transactions = self._transactional(consumer)
        self._check_open()

        begun = False

        def begin() -> None:
            nonlocal begun
            transactions.begin()
            begun = True  # here, not in the task, which may be cancelled meanwhile
            if consumer is not None:
                consumer.begin_transaction()

        def commit() -> None:
            transactions.commit()
            if consumer is not None:
                consumer.end_transaction()
                consumer.mark_committed()

        try:
            await in_thread(begin)
            yield
            if consumer is not None:
                consumer.require_complete()
                group = await consumer.group_metadata()
                await in_thread(transactions.send_offsets, consumer.handed_out(), group)
            await in_thread(commit)
        except BaseException as error:
            await to_the_end(asyncio.ensure_future(self._undo(transactions, error, consumer, begun=begun)))
            raise

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has now."""
        self._check_open()
        return await asyncio.to_thread(self._count, topic)

    async def _undo(
        self,
        transactions: Transactions,
        error: BaseException,
        consumer: AsyncConsumer[Any, Any] | None,
        *,
        begun: bool,
    ) -> None:
        """Abort, and take the consumer back, also if the abort fails: nothing of it was committed."""
        doubtful = begun and transactions.undecided
        try:
            await in_thread(self._give_up, transactions, error, begun=begun)
            await asyncio.sleep(0)  # what was just collected is settled first
        finally:
            if begun:
                self._shared.failures.forget()
            if consumer is not None:
                if begun:
                    consumer.end_transaction()
                if doubtful:
                    consumer.doubt()
                else:
                    await consumer.take_back()

    def _begin(self) -> asyncio.AbstractEventLoop:
        self._collected = deque[tuple[AsyncDelivery, "tuple[int, int, int] | BarnabasError"]]()
        self._woken = False
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _settled(self, delivery: AsyncDelivery, error: Any, message: Any) -> None:
        """Collect an answer; in whichever thread polls."""
        outcome: tuple[int, int, int] | BarnabasError
        if error is not None:
            outcome = delivery_error(error, delivery.topic)
        else:
            outcome = (message.partition(), message.offset(), message.timestamp()[1])
        self._collected.append((delivery, outcome))
        if not self._woken:
            self._woken = True
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._hand_over)
            except RuntimeError:
                log.warning("the event loop is closed, and its producer is not: answers to records are lost")

    def _hand_over(self) -> None:
        """Settle what was collected; in the event loop. Whatever is collected from here on wakes it again."""
        self._woken = False
        collected = self._collected
        while collected:
            delivery, outcome = collected.popleft()
            delivery.settle(outcome)

    async def _when_buffer_is_full(self, delivery: AsyncDelivery, arguments: tuple[Any, ...]) -> None:
        if self._when_full == "discard":
            delivery.settle(self._discarded(delivery.topic), remember=False)
            return
        deadline = time.monotonic() + (self._max_block if self._when_full == "block" else 0)
        while True:
            if time.monotonic() >= deadline:
                raise self._buffer_full(delivery.topic, self._max_block if self._when_full == "block" else 0)
            self._client.poll(0)
            await asyncio.sleep(_ROOM_SECONDS)
            try:
                self._client.produce(*arguments)
            except BufferError:
                continue
            return
