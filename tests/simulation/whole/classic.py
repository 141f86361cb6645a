"""Members of a classic consumer group: they join, the leader assigns, and each reads from where the group committed.

In one generation a partition has one owner. A member of an earlier generation commits nothing, so what is committed
never goes back, and what the members read together has no gap.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from tests.simulation.whole.client import Client, Unanswered
from tests.simulation.whole.members import GROUP, Fenced, GroupReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.whole.history import Log

NAME: Final = "classic"
PROTOCOL: Final = "range"
SESSION_MS: Final = 10_000
REBALANCES: Final = (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation, ErrorCode.member_id_required)


class Rejoin(Exception):
    """The group rebalances: join again."""


class ClassicMember(GroupReader):
    """One member of the group."""

    group = NAME
    commit_version = 8

    def __init__(self, client: Client, log: Log, topic: str, partitions: int, committed: dict[int, int]) -> None:
        super().__init__(client, log, topic, partitions, committed)
        self._id = ""

    async def run(self, running: Callable[[], bool]) -> None:
        """Take part until it is told to stop, then leave."""
        while running():
            try:
                if self._epoch < 0:
                    await self._join()
                await self._ask(ApiKey.HEARTBEAT, 4, generation_id=self._epoch, member_id=self._id)
                for partition in self._owned:
                    await self._read(partition)
            except Rejoin:
                self._epoch, self._owned = -1, ()
                continue
            except Fenced:
                self._log.say(f"{self.client.name} was fenced")
                self._id, self._epoch, self._owned = "", -1, ()
            except Unanswered:
                await self.client.pause()
            await asyncio.sleep(0.3 + self.client.chance.random())
            if self._epoch >= 0 and self.client.chance.random() < 0.05:
                await self._leave()

    async def _join(self) -> None:
        answer = await self._ask(
            ApiKey.JOIN_GROUP,
            9,
            session_timeout=SESSION_MS,
            rebalance_timeout=6000,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[{"name": PROTOCOL, "metadata": _subscription(self._topic)}],
        )
        generation, leader = answer.generation_id, answer.leader == answer.member_id
        assignments = []
        if leader:
            members = sorted(member.member_id for member in answer.members)
            assignments = [
                {"member_id": member, "assignment": bytes(range(place, self._partitions, len(members)))}
                for place, member in enumerate(members)
            ]
        answer = await self._ask(
            ApiKey.SYNC_GROUP,
            5,
            generation_id=generation,
            member_id=self._id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        self._epoch = generation
        assigned = list(answer.assignment)
        for partition in assigned:
            owner = self._log.owners.setdefault((NAME, generation, partition), self._id)
            if owner != self._id:
                self._log.violate(
                    f"partition {partition} has two owners in generation {generation}: {owner}, {self._id}"
                )
        if assigned:
            await self._take(assigned)
        self._log.say(f"{self.client.name} has partitions {self._owned} in generation {generation}")

    async def _leave(self) -> None:
        self._log.say(f"{self.client.name} leaves")
        try:
            await self._ask(ApiKey.LEAVE_GROUP, 5, members=[{"member_id": self._id, "reason": "a walk"}])
        except (Unanswered, Rejoin, Fenced):
            await self.client.pause()
        self._id, self._epoch, self._owned = "", -1, ()

    async def _ask(self, key: ApiKey, version: int, **values: Any) -> Any:
        """The coordinator's answer, if it is a good one."""
        answer = await self.client.ask_coordinator(GROUP, NAME, key, version, group_id=NAME, **values)
        if key is ApiKey.JOIN_GROUP and answer.member_id:
            self._id = answer.member_id
        self._check(ErrorCode(answer.error_code.value))
        return answer

    def _check(self, code: ErrorCode) -> None:
        if code in REBALANCES:
            raise Rejoin
        super()._check(code)

    async def _read(self, partition: int) -> None:
        before = self._positions[partition]
        try:
            await super()._read(partition)
        except Rejoin:
            self._positions[partition] = before
            raise


def _subscription(topic: str) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    name = topic.encode()
    return b"\x00\x00" + b"\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
