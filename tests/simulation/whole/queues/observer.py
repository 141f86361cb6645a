"""One who looks at what is stored of the queue, without getting in anybody's way.

Whoever reads a state fences leaders of lower epochs. So it first asks for the epoch that has read the state last, which
fences nobody, and reads in the same epoch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators.runtime import partition_of
from barnabas.model.internal_topics import SHARE_GROUP_STATE
from barnabas.protocol.apis import ApiKey
from tests.history.queues.events import Observation, StateRun
from tests.simulation.whole.client import SHARE, Client, Unanswered
from tests.simulation.whole.queues.notes import state_key
from tests.simulation.whole.queues.worker import NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.simulation.whole.queues.notes import QueueNotes

STATE_PARTITIONS: Final = 2
"""Of the internal topic that keeps the states."""


class Observer:
    """Looks at one partition after the other."""

    def __init__(self, client: Client, notes: QueueNotes, topic_id: UUID, partitions: int) -> None:
        self._client = client
        self._notes = notes
        self._topic_id = topic_id
        self._partitions = partitions

    async def run(self, running: Callable[[], bool]) -> None:
        """Look now and then."""
        while running():
            for partition in range(self._partitions):
                await self.look(partition)
            await asyncio.sleep(0.1 + self._client.chance.random())

    async def look(self, partition: int) -> Observation | None:
        """What is stored of a partition; None if nobody says so."""
        notes, key = self._notes, state_key(NAME, self._topic_id, partition)
        number = partition_of(key, STATE_PARTITIONS)
        asked_at, before = notes.now(), notes.leadership(SHARE_GROUP_STATE, number)
        try:
            address = await self._client.coordinator_address(SHARE, key)
            known = await self._ask(address, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, partition, -1)
            found = await self._ask(address, ApiKey.READ_SHARE_GROUP_STATE, partition, known.leader_epoch)
        except Unanswered:
            self._client.forget_coordinator(SHARE, key)
            return None
        runs = tuple(
            StateRun(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        )
        is_current = before == notes.leadership(SHARE_GROUP_STATE, number) and before.leader == notes.broker_at(address)
        seen = Observation(partition, found.start_offset, runs, asked_at, notes.now(), is_current)
        notes.observations.append(seen)
        return seen

    async def _ask(self, address: tuple[str, int], key: ApiKey, partition: int, leader_epoch: int) -> Any:
        """What a coordinator says of a partition; raises Unanswered where it says nothing."""
        part = {"partition": partition, "leader_epoch": leader_epoch}
        topic = {"topic_id": self._topic_id, "partitions": [part]}
        answer = await self._client.ask(address, key, 0, group_id=NAME, topics=[topic])
        [[found]] = [topic.partitions for topic in answer.results]
        if found.error_code.value:
            raise Unanswered(found.error_code.name)
        return found
