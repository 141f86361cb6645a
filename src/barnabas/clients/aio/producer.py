"""The producer for asyncio.

Outcomes of records come from librdkafka in the poller's thread, or in `send` when many records are sent. They are
collected, and the event loop is woken once per collection, not once per record.

A signal handler that raises can break off any Python code of the main thread, which usually runs the event loop: also
where an outcome is noted or handed over. So deliveries that somebody waits for are watched, and fail when librdkafka
owes no outcome any more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from barnabas.clients.aio.threads import in_thread, to_the_end
from barnabas.clients.config import log
from barnabas.clients.errors import added_to, noted_in, passing_error
from barnabas.clients.producer.delivery import LOOK_SECONDS, delivery_error, outcome_lost
from barnabas.clients.producer.encoding import refusal
from barnabas.clients.producer.poller import POLL_EVERY
from barnabas.clients.producer.sending import K, ProducerBase, V
from barnabas.clients.producer.transaction_block import TransactionBlock
from barnabas.clients.records import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator
    from datetime import datetime
    from types import TracebackType

    from barnabas.clients.aio.consumer import AsyncConsumer
    from barnabas.clients.producer.delivery import Settlements
    from barnabas.clients.records import Headers
    from barnabas.model.base_error import BarnabasError

__all__ = ["AsyncDelivery", "AsyncProducer"]

_ROOM_SECONDS = 0.01
"""How long a sender waits for room in the buffer before it looks again."""


class OutcomeCollector:
    """Outcomes of records, on their way from the thread that polls to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settlements: Settlements) -> None:
        self.failures = settlements.failures
        self._loop = loop
        self._on_their_way = settlements.on_their_way
        self._settled = deque[AsyncDelivery]()
        self._woken = False
        self._awaited: set[AsyncDelivery] = set()
        """Deliveries without an outcome that somebody waits for."""
        self._suspects: set[AsyncDelivery] = set()
        """Those of them that were there at the last look, when librdkafka owed no outcome."""
        self._looking = False

    def add(self, delivery: AsyncDelivery) -> None:
        """Keep a record whose outcome is known for the event loop; in whichever thread polls."""
        self._settled.append(delivery)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self.hand_over)
            except RuntimeError:
                log.warning("The event loop was closed before its producer, and outcomes of records are lost.")

    def hand_over(self) -> None:
        """Settle what was collected; in the event loop. Whatever is collected from here on wakes it again.

        A delivery is removed after it was settled: a signal handler that raises in between loses none.
        """
        self._woken = False
        settled = self._settled
        while settled:
            settled[0].settle()
            settled.popleft()

    def watch(self, delivery: AsyncDelivery) -> None:
        """Somebody waits for a delivery: check from time to time that its outcome can still come; in the event loop."""
        self._awaited.add(delivery)
        if not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_SECONDS, self._look)

    def unwatch(self, delivery: AsyncDelivery) -> None:
        """A delivery has its outcome."""
        self._awaited.discard(delivery)

    def _look(self) -> None:
        """Fail deliveries whose outcome was lost: librdkafka owed none at the last look, and owes none now.

        One look is not enough: another thread may have an outcome that it has not added yet. The next look is arranged
        first, since a signal handler may raise here, too.
        """
        self._looking = bool(self._awaited)
        if not self._looking:
            return
        self._loop.call_later(LOOK_SECONDS, self._look)
        self.hand_over()
        quiet = not self._on_their_way()
        if quiet and self._suspects and self.failures.release():
            quiet = False  # those that were held have their outcomes, and are handed over
        if quiet:
            for delivery in self._suspects & self._awaited:
                delivery.outcome = outcome_lost(delivery.topic)
                delivery.settle()
        self._suspects = set(self._awaited) if quiet else set()


class AsyncDelivery(asyncio.Future[RecordMetadata]):
    """A record on its way. Awaiting it gives its RecordMetadata, or raises what went wrong.

    A failure that nobody awaits is raised by `flush` and `close`. Inside, the result is a tuple: most are never asked
    for, and a RecordMetadata takes as long to make as the rest of a future. For the same reason there is no `__init__`:
    the producer sets what a record has of its own. It has slots and is its own callback, because the garbage
    collector's work grows with the number of objects for each record on its way.
    """

    __slots__ = ("outcome", "outcomes", "topic")

    topic: str
    collector: OutcomeCollector
    outcome: tuple[int, int, int] | BarnabasError
    """Partition, offset and timestamp, or why the record did not arrive; from when librdkafka has said so."""
    counted_in: int
    _observed = False

    def __call__(self, error: Any, message: Any) -> None:
        """Note what librdkafka says: its KafkaError or its Message. Runs in whichever thread polls."""
        if error is not None:
            if self.collector.failures.hold(self, error):
                return
            self.outcome = delivery_error(error, self.topic, self.collector.failures.fatal)
        else:
            self.outcome = (message.partition(), message.offset(), message.timestamp()[1])
        self.collector.add(self)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        self._observed = True
        self._mark_seen()
        where: Any = yield from super().__await__()
        return RecordMetadata(self.topic, *where)

    __iter__ = __await__

    def result(self) -> RecordMetadata:
        """Where the record went; raises if it did not arrive, or if that is not known yet."""
        self._mark_seen()
        where: Any = super().result()
        return RecordMetadata(self.topic, *where)

    def exception(self) -> BaseException | None:
        """Why the record did not arrive; None if it did. Raises InvalidStateError if that is not known yet."""
        self._mark_seen()
        return super().exception()

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Any = None) -> None:
        """Call `callback(delivery)` in the event loop when it is known what became of the record."""
        self._observed = True
        if self.done():
            self._mark_seen()
        else:
            self.collector.watch(self)
        super().add_done_callback(callback, context=context)

    def settle(self) -> None:
        """Set the result, unless nobody wants it any more; in the event loop."""
        if self._observed:
            self.collector.unwatch(self)
        if self.done():
            return
        outcome = self.outcome
        if isinstance(outcome, tuple):
            self.set_result(outcome)  # type: ignore[arg-type]  # what `result` makes of it
            return
        if not self._observed:
            self.collector.failures.add(self, outcome)
        self.discard(outcome)

    def discard(self, error: BarnabasError) -> None:
        """Settle it with an error that `close` says nothing of."""
        self.set_exception(error)
        super().exception()  # asyncio need not warn of what `flush` and `close` will raise

    def _mark_seen(self) -> None:
        """Somebody has asked for the outcome: a failure is not kept for `flush` and `close` any more."""
        if self.done() and not self.cancelled() and super().exception() is not None:
            self.collector.failures.mark_seen(self)


class AsyncProducer(ProducerBase[K, V]):
    """Sends records, within one event loop. Close it, or use it in an `async with`."""

    _loop: asyncio.AbstractEventLoop | None = None
    _collector: OutcomeCollector

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
            loop = self._bind_loop()
        delivery = AsyncDelivery(loop=loop)
        delivery.topic = topic
        delivery.collector = self._collector
        native, encoder = self._native, self._encoder
        if encoder.plain and partition is None and headers is None and timestamp is None:
            arguments: tuple[Any, ...] = (topic, value, key, -1, delivery)
        else:
            if encoder.needs_count(topic):
                await asyncio.to_thread(self._counts.count, topic)
            arguments = encoder.encode(topic, value, key, partition, headers, timestamp, delivery)
        poller = native.poller
        poller.sends += 1
        if not poller.sends % POLL_EVERY:
            native.poll(0)
            self._collector.hand_over()
        try:
            native.client.produce(*arguments)
        except BufferError:
            await self._when_buffer_is_full(delivery, arguments)
        except (TypeError, OverflowError, native.kafka.KafkaException) as error:
            raise refusal(arguments, error, self._settlements.failures.fatal) from error
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  (the same as in `Producer`)
        """Wait until it is known of every record that was sent whether it arrived.

        Raises NotDelivered for those that did not and that nobody has awaited, TimeoutError if the time is over.
        """
        self._native.require_open()
        await asyncio.to_thread(self._native.wait_for_all, timeout)
        self._settle_collected()
        self._settlements.failures.raise_any()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  (the same as in `Producer`)
        """Send what is left and end. What is not delivered after `timeout` seconds is given up.

        Without a timeout that is decided by `delivery_timeout`. Raises NotDelivered like `flush`, also for what was
        given up. Where an error passes by, as in a `finally`, that one is raised, with the other as a note. Closing
        twice does nothing.
        """
        client = self._native.shut()
        if client is None:
            await asyncio.to_thread(self._native.ended.wait, timeout)  # another task may be at it
            return
        with added_to(passing_error()):
            await in_thread(self._end, client, timeout)
            self._settle_collected()
            self._settlements.failures.raise_any()

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
        block = TransactionBlock(self._native, self._transactions, consumer)
        self._native.require_open()
        try:
            if await in_thread(block.begin):
                self._settle_collected()
                self._settlements.failures.forget()
            yield
            if consumer is not None:
                consumer.require_complete()
                group = await consumer.group_metadata()
                await in_thread(block.send_offsets, consumer.handed_out(), group)
            await in_thread(block.commit)
        except BaseException as error:
            await to_the_end(asyncio.ensure_future(self._undo(block, error, consumer)))
            raise

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has now."""
        self._native.require_open()
        return await asyncio.to_thread(self._counts.count, topic)

    async def _undo(
        self, block: TransactionBlock, error: BaseException, consumer: AsyncConsumer[Any, Any] | None
    ) -> None:
        """Abort, and take the consumer back, also if the abort fails: nothing of it was committed."""
        doubtful = block.is_doubtful(error)
        try:
            await in_thread(block.give_up, error)
            self._settle_collected()
        finally:
            block.leave_consumer()
            if consumer is not None:
                if doubtful:
                    consumer.doubt()
                else:
                    await consumer.take_back()

    def _bind_loop(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        self._collector = OutcomeCollector(self._loop, self._settlements)
        return self._loop

    def _settle_collected(self) -> None:
        """Settle what was collected a moment ago, whether or not the event loop was woken for it."""
        if self._loop is not None:
            self._collector.hand_over()

    async def _when_buffer_is_full(self, delivery: AsyncDelivery, arguments: tuple[Any, ...]) -> None:
        full = self._full_buffer
        if full.discards:
            delivery.discard(full.discard(delivery.topic))
            return
        deadline = time.monotonic() + full.timeout
        while True:
            if time.monotonic() >= deadline:
                raise full.error(delivery.topic, full.timeout)
            self._native.poll(0)
            await asyncio.sleep(_ROOM_SECONDS)
            try:
                self._native.client.produce(*arguments)
            except BufferError:
                continue
            except self._native.kafka.KafkaException as error:
                raise refusal(arguments, error, self._settlements.failures.fatal) from error
            return
