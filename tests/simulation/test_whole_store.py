"""The metadata tree of simulated worlds keeps the promises of every metadata store, on the simulation's event loop."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from tests.simulation.whole.loop import PROCESS, Process, VirtualLoop
from tests.simulation.whole.network import Network
from tests.simulation.whole.store import MemoryStore, MemoryTree
from tests.support.store_conformance import StoreConformance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.stores.store import MetadataStore


class VirtualTree(asyncio.DefaultEventLoopPolicy):
    """Makes the event loop of a test, with a network and a tree on it."""

    tree: MemoryTree

    def new_event_loop(self) -> VirtualLoop:
        chance = random.Random(1)
        loop = VirtualLoop(chance)
        self.tree = MemoryTree(Network(loop, chance, lambda *_: None), chance)
        return loop

    def store(self) -> MetadataStore:
        PROCESS.set(Process("b1"))
        return MemoryStore(self.tree)

    async def expire(self, store: MetadataStore) -> None:
        self.tree.expire(self.tree.sessions[store.session_id])


@pytest.fixture
def tree() -> Iterator[VirtualTree]:
    policy = VirtualTree()
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(policy)
    yield policy
    asyncio.set_event_loop_policy(before)


class TestMemoryTree(StoreConformance):
    pass
