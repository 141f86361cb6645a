"""Administrators: topics come and go, partitions move between brokers, and their preferred replicas are elected.

A topic is there when its creation was acknowledged, and until its deletion is asked for; one whose deletion was
acknowledged is gone, unless its creation was asked for more than once: a request that nobody answered may arrive after
the deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.protocol.apis import ApiKey
from tests.simulation.whole.client import Client, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.whole.history import Log

TRIES: Final = 60
THERE: Final = (ErrorCode.none, ErrorCode.topic_already_exists)
PREFERRED: Final = 0
COORDINATED: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)
MOVED_COORDINATORS: Final = 0.4
"""How often a partition that moves is one of a coordinator, who then moves, too."""
COORDINATED_PARTITIONS: Final = 2
GONE: Final = (ErrorCode.none, ErrorCode.unknown_topic_or_partition)


class Admin:
    """Creates and deletes topics of its own, and moves partitions of the topic that all use, and of coordinators."""

    replication_factor = 2
    """Of the topics that it creates."""
    coordinated: Sequence[str] = COORDINATED
    """The topics of coordinators."""

    def __init__(self, client: Client, log: Log, topic: str, partitions: int, running: Callable[[], bool]) -> None:
        self._client = client
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._running = running
        self._count = 0
        self._there: list[str] = []
        self._gone: list[str] = []
        self._asked_again: set[str] = set()
        """Topics of which a creation was not answered."""

    async def run(self) -> None:
        """Decide something now and then; at the end look whether the cluster is as it was decided."""
        chance = self._client.chance
        while self._running():
            await asyncio.sleep(chance.expovariate(1.0))
            action = chance.random()
            if action < 0.4:
                await self._create()
            elif action < 0.6 and self._there:
                await self._delete(self._there.pop(chance.randrange(len(self._there))))
            elif action > 0.9:
                await self._elect()
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
                self._asked_again.add(name)
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
                if name not in self._asked_again:
                    self._gone.append(name)
                return
            await self._client.pause()

    async def _reassign(self) -> None:
        """Move a partition, as far as the cluster wants to; half of the time away from its leader."""
        chance = self._client.chance
        topic, partition = self._topic, chance.randrange(self._partitions)
        if chance.random() < MOVED_COORDINATORS:
            topic, partition = chance.choice(self.coordinated), chance.randrange(COORDINATED_PARTITIONS)
        replicas = chance.sample((1, 2, 3), chance.choice((2, 3)))
        try:
            if chance.random() < 0.5:
                await self._client.refresh([topic])
                leader = self._client.leader_of(topic, partition)
                replicas = [each for each in chance.sample((1, 2, 3), 3) if each != leader]
            answer = await self._client.ask_any(
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                0,
                timeout=5000,
                topics=[
                    {"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]},
                ],
            )
        except Unanswered:
            return
        code = ErrorCode(answer.responses[0].partitions[0].error_code.value) if answer.responses else answer.error_code
        self._log.say(f"{self._client.name} moves {topic}-{partition} to {replicas}: {code.name}")

    async def _elect(self) -> None:
        """Have all partitions led by their preferred replicas, as far as those are in sync."""
        with contextlib.suppress(Unanswered):
            answer = await self._client.ask_any(
                ApiKey.ELECT_LEADERS, 2, election_type=PREFERRED, topic_partitions=None, timeout=5000
            )
            results = [part for topic in answer.replica_election_results for part in topic.partition_result]
            elected = sum(part.error_code is ErrorCode.none for part in results)
            self._log.say(f"{self._client.name} elects {elected} preferred leaders")

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
