"""The consumer for asyncio: the engine of the other one, in a thread of its own.

Whatever waits for a broker runs in that thread, one call at a time. Records come from there in batches and are handed
out in the event loop. Rebalance callbacks run in the event loop too, as functions or coroutines; while the thread waits
for one, it does what the callback asks of the consumer.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.clients.aio.threads import to_the_end
from barnabas.clients.consumer.consumer import CLOSE_SECONDS, ConsumerBase, as_offsets, to_commit
from barnabas.clients.consumer.native import BEGINNING, END
from barnabas.clients.consumer.reading import SLICE
from barnabas.clients.errors import added_to, noted_in, passing_error
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V, as_milliseconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from datetime import datetime
    from types import TracebackType

    from barnabas.clients.consumer.consumer import Offsets
    from barnabas.clients.consumer.subscribing import RebalanceCallback, Start, Topics

__all__ = ["AsyncConsumer"]

R = TypeVar("R")


class AsyncConsumer(ConsumerBase[K, V]):
    """Reads records, within one event loop and one task at a time. Close it, or use it in an `async with`."""

    _topics: Topics | None = None
    _thread: ThreadPoolExecutor | None = None
    _rebalancing = False

    def _subscribe_at_start(self, topics: Topics | None) -> None:
        self._topics = topics
        self._nested = SimpleQueue[Callable[[], None] | None]()

    async def __aenter__(self) -> Self:
        await self._subscribe_first()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted_in(error):
            await self.close()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records, one by one, without an end; asking for the next says that the last one is done with."""
        reader = self._reader
        receiver = reader.receiver
        while True:
            if time.monotonic() >= receiver.due:
                await self._fetch(0)
            record = reader.take()
            if record is None:
                await self._fetch(SLICE)
            else:
                yield record

    async def steps(self) -> AsyncIterator[ConsumerRecord[K, V] | None]:
        """Records, one by one, and None whenever none came for a moment: for loops with something else to do."""
        reader = self._reader
        receiver = reader.receiver
        while True:
            if time.monotonic() >= receiver.due:
                await self._fetch(0)
            record = reader.take()
            if record is not None or not await self._fetch(SLICE):
                yield record

    async def until_end(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records up to where the partitions end now; what is written later is left for later.

        A consumer of a group waits for its partitions first. Those that go to another member meanwhile are that one's;
        those that come are read up to where they end then. Paused partitions are not waited for.
        """
        reader = self._reader
        receiver = reader.receiver
        await self._subscribe_first()
        reader.subscription.require_chosen()
        ends: dict[TopicPartition, int] = {}
        while not (ended := await self._run(reader.at_end, ends)) and not ends:
            await self._fetch(SLICE)
            reader.prepare()  # which raises errors
        while not ended:
            if time.monotonic() >= receiver.due:
                await self._fetch(0)
            record = reader.take()
            if record is not None:
                yield record
            elif await self._run(reader.at_end, ends):
                ended = True
            else:
                await self._fetch(SLICE)

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109  (the same as in `Consumer`: an empty list, not an error)
        max_records: int | None = None,
    ) -> list[ConsumerRecord[K, V]]:
        """Records as soon as there are some, at most `max_records`; an empty list after `timeout` seconds.

        Asking says that everything that was handed out before is done with.
        """
        limit = max_records or self._reader.max_records
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            if await self._fetch(min(left, SLICE), limit):
                return self._reader.take_many(limit)
            if not left:
                return []

    async def subscribe(
        self,
        topics: Topics,
        *,
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        start: Start | None = None,
    ) -> None:
        """Read topics: names, patterns, or both.

        The callbacks are given partitions: those that came, those that are about to go (their records can still be
        committed), those that are gone (they cannot). They may be coroutines, and run while records are waited for.
        `start(partition)` says at which offset to begin with a partition that comes; None: where the group left off.
        """
        self._topics = None
        await self._run(
            partial(
                self._reader.subscription.subscribe,
                topics,
                on_assign=self._run_in_loop(on_assign),
                on_revoke=self._run_in_loop(on_revoke),
                on_lost=self._run_in_loop(on_lost),
                start=self._run_in_loop(start),
            )
        )

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        await self._run(self._reader.subscription.unsubscribe)

    async def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions, at these offsets if a mapping says so; no group shares them."""
        self._topics = None
        await self._run(self._reader.subscription.assign, as_offsets(partitions))

    async def assignment(self) -> list[TopicPartition]:
        """The partitions that are being read now."""
        await self._subscribe_first()
        return await self._run(self._reader.native.assignment)

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises RequestRefused if there is no such topic."""
        return await self._run(self._reader.native.partitions, topic)

    async def commit(self, offsets: Offsets = None) -> None:
        """Commit, and wait until it is done: everything that was handed out, or up to a record, or offsets."""
        await self._run(partial(self._reader.commits.commit, to_commit(offsets), wait=True))

    async def commit_async(self, offsets: Offsets = None) -> None:
        """Commit without waiting; `on_commit` is told how it went, at a later poll and in a thread."""
        await self._run(partial(self._reader.commits.commit, to_commit(offsets), wait=False))

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none. Without arguments: of what is assigned."""
        return await self._run(self._reader.native.committed, partitions or await self.assignment())

    async def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that will be handed out; None if that is not known yet."""
        return await self._run(self._reader.positions.position, partition)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset."""
        await self._run(self._reader.positions.seek, partition, offset)

    async def seek_to_time(self, when: datetime | int, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Read on at the first record at or after a moment (a datetime, or milliseconds), or at the end.

        Without partitions: in all that are assigned. Returns the offsets.
        """
        wanted = partitions or await self.assignment()
        offsets = await self._run(self._reader.native.offsets_at, as_milliseconds(when), wanted)
        for partition, offset in offsets.items():
            await self.seek(partition, offset)
        return offsets

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on where the logs begin. Without partitions: in all that are assigned."""
        for partition in partitions or await self.assignment():
            await self.seek(partition, BEGINNING)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on with what is written from now on. Without partitions: in all that are assigned."""
        for partition in partitions or await self.assignment():
            await self.seek(partition, END)

    async def take_back(self) -> None:
        """Go back to before the records that were handed out and not committed: they are handed out again."""
        await self._run(self._reader.positions.take_back)

    async def ends(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last."""
        return await self._run(self._reader.native.ends, partition)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions for now; the consumer keeps them."""
        await self._run(self._reader.pause, partitions)

    async def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again. Without arguments: of all that are paused."""
        await self._run(self._reader.resume, partitions or self.paused())

    async def group_metadata(self) -> Any:
        """What a transaction of another client library needs to know of the group."""
        return await self._run(self._reader.native.group_metadata)

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:  # noqa: ASYNC109  (as in `Consumer`)
        """Leave the group and end; what was handed out and is done with is committed before, if commits are automatic.

        Brokers that do not answer within `timeout` seconds (30, as in Java) are left without their answer; None waits.

        Records in hand do not count, those that were handed out last: only asking for the next ones says that they are
        done with, or `done()`, or `commit()`. Closing twice does nothing.
        """
        if self._reader.closed:
            return
        with added_to(passing_error()):
            await self._run(self._reader.close, timeout)
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    async def _subscribe_first(self) -> None:
        if self._topics is not None:
            await self.subscribe(self._topics)

    async def _fetch(self, seconds: float, limit: int | None = None) -> bool:
        if self._topics is not None:
            await self._subscribe_first()
        return await self._run(self._reader.fetch, seconds, limit)

    async def _run(self, call: Callable[..., R], *arguments: Any) -> R:
        if self._rebalancing:
            answer = Future[R]()
            self._nested.put(partial(_run_nested, answer, call, arguments))
            return await to_the_end(asyncio.wrap_future(answer))
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="barnabas-consumer")
        running = asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *arguments))
        return await to_the_end(running)  # nobody else may use the engine while it is being used

    def _run_in_loop(self, callback: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
        """A callback for the thread: runs the given one in the event loop, and waits for it."""
        if callback is None:
            return None
        loop = asyncio.get_running_loop()

        async def call(argument: Any) -> Any:
            self._rebalancing = True
            try:
                answer = callback(argument)
                return await answer if inspect.isawaitable(answer) else answer
            finally:
                self._rebalancing = False

        def in_thread(argument: Any) -> Any:
            called = asyncio.run_coroutine_threadsafe(call(argument), loop)
            called.add_done_callback(lambda _: self._nested.put(None))
            while (nested_call := self._nested.get()) is not None:
                nested_call()
            return called.result()

        return in_thread


def _run_nested(answer: Future[R], call: Callable[..., R], arguments: tuple[Any, ...]) -> None:
    try:
        answer.set_result(call(*arguments))
    except Exception as error:
        answer.set_exception(error)
