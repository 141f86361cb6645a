"""Committed offsets: what a group was told to be committed is there for ever, or has moved on.

A committer is the only one that commits for its group, without being a member of it, and commits ever higher offsets;
some send the next commit before the last one was answered, as asynchronous commits do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from tests.simulation.whole.client import Client, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.whole.client import Address
    from tests.simulation.whole.history import Log

GROUP: Final = 0
"""The kind of coordinator."""


class Committer:
    """Commits offsets and looks them up until it is told to stop."""

    def __init__(self, client: Client, log: Log, topic: str, running: Callable[[], bool], *, at_once: int = 1) -> None:
        self._client = client
        self._log = log
        self._topic = topic
        self._running = running
        self._at_once = at_once
        self._group = f"g-{client.name}"
        self._committed = -1
        self._tried = -1

    async def run(self) -> None:
        """Commit, and look now and then what is committed; at the end, too."""
        chance = self._client.chance
        while self._running():
            if chance.random() < 0.7:
                await self._commit_some(chance.randint(1, self._at_once))
            else:
                await self._look()
            await asyncio.sleep(chance.expovariate(2.0))
        while not await self._look():
            await self._client.pause()

    async def _commit_some(self, count: int) -> None:
        """So many commits over one connection, in order, each beside those before it."""
        try:
            address = await self._client.coordinator_address(GROUP, self._group)
        except Unanswered:
            await self._client.pause()
            return
        commits = []
        for _ in range(count):
            self._tried += self._client.chance.randint(1, 5)
            commits.append(asyncio.ensure_future(self._commit(address, self._tried)))
            if self._client.chance.random() < 0.5:
                await asyncio.sleep(self._client.chance.random() ** 4 * 0.1)
        await asyncio.gather(*commits)

    async def _commit(self, address: Address, offset: int) -> None:
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        try:
            answer = await self._client.ask(
                address,
                ApiKey.OFFSET_COMMIT,
                8,
                group_id=self._group,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[{"name": self._topic, "partitions": [partition]}],
            )
        except Unanswered:
            self._client.forget_coordinator(GROUP, self._group)
            await self._client.pause()
            return
        code = ErrorCode(answer.topics[0].partitions[0].error_code.value)
        self._log.trace(self._group, offset, code.name)
        if code is ErrorCode.none:
            self._committed = max(self._committed, offset)
            self._log.say(f"{self._group} has committed {offset}")
        else:
            self._client.forget_coordinator(GROUP, self._group)
            await self._client.pause()

    async def _look(self) -> bool:
        """Whether the committed offset was told; it is between what was committed and what was tried."""
        try:
            answer = await self._client.ask_coordinator(
                GROUP,
                self._group,
                ApiKey.OFFSET_FETCH,
                8,
                groups=[
                    {"group_id": self._group, "topics": [{"name": self._topic, "partition_indexes": [0]}]},
                ],
                require_stable=True,
            )
        except Unanswered:
            await self._client.pause()
            return False
        (group,) = answer.groups
        if group.error_code.value:
            self._client.forget_coordinator(GROUP, self._group)
            return False
        found = group.topics[0].partitions[0]
        if found.error_code.value:
            return False
        offset: int = found.committed_offset
        self._log.trace(self._group, "finds", offset)
        if not self._committed <= offset <= self._tried:
            self._log.violate(f"{self._group} had committed {self._committed}, and finds {offset}")
        self._committed = max(self._committed, offset)
        return True
