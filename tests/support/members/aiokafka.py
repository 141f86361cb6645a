"""aiokafka as a member of a group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiokafka
from aiokafka.coordinator.assignors import range as by_range
from aiokafka.coordinator.assignors import roundrobin
from aiokafka.coordinator.assignors.sticky import sticky_assignor

from tests.support.members.member import POLL_SECONDS, Committed, Member, Place, Read
from tests.support.members.python_clients import Listener, settings

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    Answer = TypeVar("Answer")


class _Listener(Listener, aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    pass


class AioKafkaMember(Member):
    """aiokafka, with an event loop of its own that runs while the member polls."""

    ASSIGNORS: Final = {
        "range": by_range.RangePartitionAssignor,
        "roundrobin": roundrobin.RoundRobinPartitionAssignor,
        "sticky": sticky_assignor.StickyPartitionAssignor,
    }

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.consumer: Any = None
        self.wait(self._start())

    async def _start(self) -> None:
        joining = self.joining
        self.consumer = aiokafka.AIOKafkaConsumer(**settings(joining, self.ASSIGNORS))
        if joining.assigned:
            self.consumer.assign([aiokafka.TopicPartition(*place) for place in joining.assigned])
        else:
            listener = _Listener(self)
            if joining.pattern:
                self.consumer.subscribe(pattern=joining.pattern, listener=listener)
            else:
                self.consumer.subscribe(topics=list(joining.topics), listener=listener)
        await self.consumer.start()

    def wait(self, task: Coroutine[Any, Any, Answer]) -> Answer:
        """Let the loop run until this is done."""
        return self.loop.run_until_complete(task)

    def poll(self) -> list[Read]:
        return [
            Read(Place(record.topic, record.partition), record.offset, record.value)
            for records in self.wait(self.consumer.getmany(timeout_ms=round(POLL_SECONDS * 1000))).values()
            for record in records
        ]

    def assignment(self) -> list[Place]:
        return [Place(*place) for place in self.consumer.assignment()]

    def commit_these(self, offsets: Mapping[Place, Committed]) -> None:
        wanted = {
            aiokafka.TopicPartition(*place): (committed.offset, committed.metadata)
            for place, committed in offsets.items()
        }
        self.wait(self.consumer.commit(wanted))

    def fetch_committed(self, place: Place) -> Committed | None:
        found = self.wait(self.consumer.committed(aiokafka.TopicPartition(*place)))
        return None if found is None else Committed(found)

    def go_to(self, place: Place, offset: int) -> None:
        self.consumer.seek(aiokafka.TopicPartition(*place), offset)

    def close(self) -> None:
        if self.consumer is not None:
            self.wait(self.consumer.stop())
        self.loop.close()
