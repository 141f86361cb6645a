"""How often a record is processed when a program can fail at any moment.

    at_most_once        committed, then processed: a failure loses what was in hand
    at_least_once       processed, then committed: a failure repeats what was in hand
    stored_with_result  the program keeps the offset together with its result: exactly once, in its own store
    Producer.transaction(consumer)   results go back into topics: exactly once, for readers of committed data

Each gives an iterator of records. For asyncio there are the same three with `async for`.
"""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar, overload

from barnabas.clients.aio.consumer import AsyncConsumer
from barnabas.clients.consumer.reading import SLICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from barnabas.clients.consumer.consumer import Consumer
    from barnabas.clients.consumer.subscribing import Start, Topics
    from barnabas.clients.records import ConsumerRecord, TopicPartition

__all__ = ["at_least_once", "at_most_once", "stored_with_result"]

K = TypeVar("K")
V = TypeVar("V")


@overload
def at_most_once(consumer: Consumer[K, V], max_records: int = ...) -> Iterator[ConsumerRecord[K, V]]: ...
@overload
def at_most_once(consumer: AsyncConsumer[K, V], max_records: int = ...) -> AsyncIterator[ConsumerRecord[K, V]]: ...
def at_most_once(consumer: Any, max_records: int = 1) -> Any:
    """Records that are committed before they are handed out: no record is processed twice.

    A failure loses at most `max_records` records. More of them at a time is faster: each commit waits for the broker.
    """
    if isinstance(consumer, AsyncConsumer):
        return _at_most_once_async(consumer, max_records)
    return _at_most_once(consumer, max_records)


def _at_most_once(consumer: Consumer[K, V], max_records: int) -> Iterator[ConsumerRecord[K, V]]:
    while True:
        records = consumer.poll(SLICE, max_records)
        if records:
            consumer.commit()
            yield from records


async def _at_most_once_async(consumer: AsyncConsumer[K, V], max_records: int) -> AsyncIterator[ConsumerRecord[K, V]]:
    while True:
        records = await consumer.poll(SLICE, max_records)
        if records:
            await consumer.commit()
            for record in records:
                yield record


@overload
def at_least_once(consumer: Consumer[K, V], commit_every: float = ...) -> Iterator[ConsumerRecord[K, V]]: ...
@overload
def at_least_once(consumer: AsyncConsumer[K, V], commit_every: float = ...) -> AsyncIterator[ConsumerRecord[K, V]]: ...
def at_least_once(consumer: Any, commit_every: float = 1.0) -> Any:
    """Records that are committed after they were processed, every `commit_every` seconds: none is lost.

    Asking for the next record says that the last one is processed. A failure repeats what came after the last commit.
    While no records come, what is owed is committed too.
    """
    if isinstance(consumer, AsyncConsumer):
        return _at_least_once_async(consumer, commit_every)
    return _at_least_once(consumer, commit_every)


def _at_least_once(consumer: Consumer[K, V], commit_every: float) -> Iterator[ConsumerRecord[K, V]]:
    due = time.monotonic() + commit_every
    owed = False
    for record in consumer.steps():
        if record is not None:
            yield record
            owed = True
        if owed and time.monotonic() >= due:
            consumer.commit()
            due = time.monotonic() + commit_every
            owed = False


async def _at_least_once_async(
    consumer: AsyncConsumer[K, V], commit_every: float
) -> AsyncIterator[ConsumerRecord[K, V]]:
    due = time.monotonic() + commit_every
    owed = False
    async for record in consumer.steps():
        if record is not None:
            yield record
            owed = True
        if owed and time.monotonic() >= due:
            await consumer.commit()
            due = time.monotonic() + commit_every
            owed = False


@overload
def stored_with_result(consumer: Consumer[K, V], topics: Topics, load: Start) -> Iterator[ConsumerRecord[K, V]]: ...
@overload
def stored_with_result(
    consumer: AsyncConsumer[K, V], topics: Topics, load: Start
) -> AsyncIterator[ConsumerRecord[K, V]]: ...
def stored_with_result(consumer: Any, topics: Topics, load: Start) -> Any:
    """Records from where your own store says that it is: exactly once, if you store offset and result together.

    `load(partition)` gives the offset that was stored, or None if there is none yet: then `auto_offset_reset` says
    where to begin, whatever the group has committed. It is asked whenever a partition comes to this consumer.
    With each result store `record.offset + 1`, in the same transaction of your database:

        for record in stored_with_result(consumer, "orders", load):
            with database:
                database.execute("INSERT INTO results ...", ...)
                database.execute("UPDATE offsets SET next = ? WHERE topic = ? AND partition = ?",
                                 (record.offset + 1, record.topic, record.partition))
    """
    if isinstance(consumer, AsyncConsumer):
        return _stored_with_result_async(consumer, topics, load)
    return _stored_with_result(consumer, topics, load)


def _stored_with_result(consumer: Consumer[K, V], topics: Topics, load: Start) -> Iterator[ConsumerRecord[K, V]]:
    def start(partition: TopicPartition) -> int:
        offset = load(partition)
        return consumer.reset_offset(partition) if offset is None else offset

    consumer.subscribe(topics, start=start)
    yield from consumer


async def _stored_with_result_async(
    consumer: AsyncConsumer[K, V], topics: Topics, load: Start
) -> AsyncIterator[ConsumerRecord[K, V]]:
    async def start(partition: TopicPartition) -> Any:
        found: Any = load(partition)
        offset = await found if inspect.isawaitable(found) else found
        return consumer.reset_offset(partition) if offset is None else offset

    awaitable_start: Any = start  # in the event loop, where it is awaited
    await consumer.subscribe(topics, start=awaitable_start)
    async for record in consumer:
        yield record
