"""Administrators: topics come and go, and partitions move between brokers.

A topic is there when its creation was acknowledged, and until its deletion is asked for; one whose deletion was
acknowledged is gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from tests.simulation.whole.client import Client, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.whole.history import Log

TRIES: Final = 60
THERE: Final = (ErrorCode.none, ErrorCode.topic_already_exists)
GONE: Final = (ErrorCode.none, ErrorCode.unknown_topic_or_partition)


class Admin:
    """Creates and deletes topics of its own, and moves partitions of the topic that all use."""

    replication_factor = 2
    """Of the topics that it creates."""

    def __init__(self, client: Client, log: Log, topic: str, partitions: int, running: Callable[[], bool]) -> None:
        self._client = client
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._running = running
        self._count = 0
        self._there: list[str] = []
        self._gone: list[str] = []

    async def run(self) -> None:
        """Decide something now and then; at the end look whether the cluster is as it was decided."""
        chance = self._client.chance
        while self._running():
            await asyncio.sleep(chance.expovariate(0.5))
            action = chance.random()
            if action < 0.4:
                await self._create()
            elif action < 0.6 and self._there:
                await self._delete(self._there.pop(chance.randrange(len(self._there))))
            else:
                await self._reassign()
        wrong: list[str] = []
        for _ in range(TRIES):  # brokers learn of a decision a little after whoever asked for it
            found = await self._look()
            if found == []:
                return
            wrong = found or wrong
            await asyncio.sleep(0.5)
        for line in wrong or ["nobody could say which topics there are"]:
            self._log.violate(line)

    async def _create(self) -> None:
        self._count += 1
        name = f"{self._client.name}-{self._count}"
        topic = {"name": name, "num_partitions": 1, "replication_factor": self.replication_factor}
        for _ in range(20):
            try:
                answer = await self._client.ask_any(ApiKey.CREATE_TOPICS, 7, timeout=5000, topics=[topic])
            except Unanswered:
                await self._client.pause()
                continue
            code = ErrorCode(answer.topics[0].error_code.value)
            self._log.say(f"{self._client.name} creates {name}: {code.name}")
            if code in THERE:
                self._there.append(name)
                return
            await self._client.pause()

    async def _delete(self, name: str) -> None:
        for _ in range(20):
            try:
                answer = await self._client.ask_any(ApiKey.DELETE_TOPICS, 4, timeout=5000, topic_names=[name])
            except Unanswered:
                await self._client.pause()
                continue
            code = ErrorCode(answer.responses[0].error_code.value)
            self._log.say(f"{self._client.name} deletes {name}: {code.name}")
            if code in GONE:
                self._gone.append(name)
                return
            await self._client.pause()

    async def _reassign(self) -> None:
        """Move a partition, as far as the cluster wants to."""
        chance = self._client.chance
        partition = chance.randrange(self._partitions)
        replicas = chance.sample((1, 2, 3), chance.choice((2, 3)))
        try:
            answer = await self._client.ask_any(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                0,
                timeout=5000,
                topics=[
                    {"name": self._topic, "partitions": [{"partition_index": partition, "replicas": replicas}]},
                ],
            )
        except Unanswered:
            return
        code = ErrorCode(answer.responses[0].partitions[0].error_code.value) if answer.responses else answer.error_code
        self._log.say(f"{self._client.name} moves partition {partition} to {replicas}: {code.name}")

    async def _look(self) -> list[str] | None:
        """What is not as it was decided; None if nobody answers."""
        names = [*self._there, *self._gone, self._topic]
        try:
            answer = await self._client.refresh(names)
        except Unanswered:
            return None
        found = {topic.name: ErrorCode(topic.error_code.value) for topic in answer.topics}
        unknown = ErrorCode.unknown_topic_or_partition
        missing = [name for name in (*self._there, self._topic) if found[name] is unknown]
        left = [name for name in self._gone if found[name] is not unknown]
        return [
            *(f"topic {name} is gone, and nobody deleted it" for name in missing),
            *(f"topic {name} was deleted, and is there: {found[name].name}" for name in left),
        ]
