"""The tree is loaded some nodes at a time: a broker goes on with other things meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

from barnabas.metadata.images.loading import PART, load
from barnabas.metadata.stores.store import StoredNode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.metadata.stores.store import MetadataStore

TOPICS = 4 * PART
TOPIC = json.dumps({"version": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": {"0": [1]}}).encode()
STATE = json.dumps({"version": 1, "leader": 1, "leader_epoch": 0, "controller_epoch": 1, "isr": [1]}).encode()
CONFIG = json.dumps({"version": 1, "config": {"retention.ms": "1"}}).encode()


class Tree:
    """Many topics of one partition, each with a setting; nothing that is read has to be waited for."""

    async def find(self, path: str) -> StoredNode | None:
        return self._node(path, b"") if path == "/brokers/topics" else None

    async def children(self, _: str) -> list[str]:
        return [f"t{number}" for number in range(TOPICS)]

    async def find_many(self, paths: Sequence[str]) -> list[StoredNode | None]:
        return [self._node(path, STATE if path.endswith("/state") else TOPIC) for path in paths]

    async def subtree(self, path: str) -> list[StoredNode]:
        if path != "/config":
            return []
        return [self._node(f"/config/topics/t{number}", CONFIG) for number in range(TOPICS)]

    @staticmethod
    def _node(path: str, data: bytes) -> StoredNode:
        return StoredNode(path=path, data=data, version=0, czxid=1, mzxid=1, owner=0)


async def turns_during(work: Callable[[], Any]) -> tuple[Any, int]:
    """What comes of something, and how many turns of the event loop others had meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        return await work(), turns
    finally:
        counting.cancel()


async def test_others_have_their_turns_while_many_topics_are_loaded() -> None:
    loaded, turns = await turns_during(lambda: load(cast("MetadataStore", Tree())))
    assert len(loaded.image.topics) == len(loaded.image.configs) == TOPICS
    assert turns >= 3 * TOPICS // PART
