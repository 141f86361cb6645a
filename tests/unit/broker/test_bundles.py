"""Questions to other brokers that go together."""

from __future__ import annotations

import asyncio

from barnabas.broker import bundles
from barnabas.broker.bundles import Bundles


class Brokers:
    """Brokers that answer when they are let."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[int]]] = []
        self.answers: asyncio.Queue[None] = asyncio.Queue()
        self.bundles = Bundles(self.ask)

    async def ask(self, broker_id: int, questions: list[int]) -> None:
        self.asked.append((broker_id, questions))
        await self.answers.get()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def test_what_comes_up_while_a_broker_is_asked_goes_together() -> None:
    async def story() -> None:
        brokers = Brokers()
        brokers.bundles.add(2, 1)
        await brokers.settle()
        for question in (2, 3):
            brokers.bundles.add(2, question)
        brokers.bundles.add(3, 4)
        await brokers.settle()
        assert brokers.asked == [(2, [1]), (3, [4])], "nobody waits for another broker"
        brokers.answers.put_nowait(None)
        await brokers.settle()
        assert brokers.asked[2:] == [(2, [2, 3])]
        await brokers.bundles.stop()

    asyncio.run(story())


def test_a_broker_that_has_answered_is_asked_at_once() -> None:
    async def story() -> None:
        brokers = Brokers()
        for question in (1, 2):
            brokers.bundles.add(2, question)
            brokers.answers.put_nowait(None)
            await brokers.settle()
        assert brokers.asked == [(2, [1]), (2, [2])]

    asyncio.run(story())


def test_a_bundle_has_a_bound() -> None:
    async def story() -> None:
        brokers = Brokers()
        for question in range(bundles.MOST + 1):
            brokers.bundles.add(2, question)
        brokers.answers.put_nowait(None)
        await brokers.settle()
        assert brokers.asked == [(2, list(range(bundles.MOST))), (2, [bundles.MOST])]
        await brokers.bundles.stop()

    asyncio.run(story())


def test_a_mistake_in_one_bundle_leaves_the_next_to_be_asked() -> None:
    async def story() -> None:
        asked: list[list[int]] = []

        async def ask(broker_id: int, questions: list[int]) -> None:
            asked.append(questions)
            await asyncio.sleep(0)
            if questions == [1]:
                raise ValueError("a mistake")

        several = Bundles(ask)
        several.add(2, 1)
        await asyncio.sleep(0)
        several.add(2, 2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert asked == [[1], [2]]

    asyncio.run(story())
