"""Items to other brokers that go together in one request."""

from __future__ import annotations

import asyncio

from barnabas.broker.coordinators import request_batching
from barnabas.broker.coordinators.request_batching import RequestBatcher


class Brokers:
    """Brokers that answer when they are let."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[int]]] = []
        self.answers: asyncio.Queue[None] = asyncio.Queue()
        self.batcher = RequestBatcher(self.ask)

    async def ask(self, broker_id: int, items: list[int]) -> None:
        self.asked.append((broker_id, items))
        await self.answers.get()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_items_that_come_while_a_broker_owes_an_answer_go_together() -> None:
    brokers = Brokers()
    brokers.batcher.add(2, 1)
    await brokers.settle()
    for item in (2, 3):
        brokers.batcher.add(2, item)
    brokers.batcher.add(3, 4)
    await brokers.settle()
    assert brokers.asked == [(2, [1]), (3, [4])], "nobody waits for another broker"
    brokers.answers.put_nowait(None)
    await brokers.settle()
    assert brokers.asked[2:] == [(2, [2, 3])]
    await brokers.batcher.stop()


async def test_a_broker_that_has_answered_is_asked_at_once() -> None:
    brokers = Brokers()
    for item in (1, 2):
        brokers.batcher.add(2, item)
        brokers.answers.put_nowait(None)
        await brokers.settle()
    assert brokers.asked == [(2, [1]), (2, [2])]


async def test_a_batch_has_a_limit() -> None:
    brokers = Brokers()
    for item in range(request_batching.MAX_ITEMS + 1):
        brokers.batcher.add(2, item)
    brokers.answers.put_nowait(None)
    await brokers.settle()
    assert brokers.asked == [(2, list(range(request_batching.MAX_ITEMS))), (2, [request_batching.MAX_ITEMS])]
    await brokers.batcher.stop()


async def test_after_a_batch_that_fails_the_next_is_sent() -> None:
    asked: list[list[int]] = []

    async def ask(broker_id: int, items: list[int]) -> None:
        asked.append(items)
        await asyncio.sleep(0)
        if items == [1]:
            raise ValueError("a mistake")

    several = RequestBatcher(ask)
    several.add(2, 1)
    await asyncio.sleep(0)
    several.add(2, 2)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked == [[1], [2]]
