"""kafka-python as a member of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import kafka
from kafka.coordinator.assignors import cooperative_sticky, roundrobin
from kafka.coordinator.assignors import range as by_range
from kafka.coordinator.assignors.sticky import sticky_assignor

from tests.support.members.member import Committed, Member, Place, Read
from tests.support.members.python_clients import Listener, settings

if TYPE_CHECKING:
    from collections.abc import Mapping

POLL_MS: Final = 500
"""It joins within a poll, and begins again in the next what took longer."""


class _Listener(Listener, kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    pass


class KafkaPythonMember(Member):
    """kafka-python."""

    ASSIGNORS: Final = {
        "range": by_range.RangePartitionAssignor,
        "roundrobin": roundrobin.RoundRobinPartitionAssignor,
        "sticky": sticky_assignor.StickyPartitionAssignor,
        "cooperative-sticky": cooperative_sticky.CooperativeStickyAssignor,
    }

    def open(self) -> None:
        joining = self.joining
        self.consumer: Any = kafka.KafkaConsumer(
            **settings(joining, self.ASSIGNORS), reconnect_backoff_ms=20, reconnect_backoff_max_ms=200
        )
        if joining.assigned:
            self.consumer.assign([kafka.TopicPartition(*place) for place in joining.assigned])
        else:
            self.consumer.subscribe(topics=joining.topics, pattern=joining.pattern or None, listener=_Listener(self))

    def poll(self) -> list[Read]:
        polled = self.consumer.poll(POLL_MS)
        coordinator = self.consumer._coordinator
        if coordinator.rejoining:
            # kafka-python 3.0.12 rejoins when topics change, but forgets that it does so if its poll ends before the
            # answer comes: it would neither take the assignment nor send heartbeats ever again.
            coordinator.request_rejoin()
        return [
            Read(Place(record.topic, record.partition), record.offset, record.value)
            for records in polled.values()
            for record in records
        ]

    def assignment(self) -> list[Place]:
        return [Place(*place) for place in self.consumer.assignment()]

    def commit_these(self, offsets: Mapping[Place, Committed]) -> None:
        self.consumer.commit(
            {
                kafka.TopicPartition(*place): kafka.OffsetAndMetadata(
                    committed.offset,
                    committed.metadata,
                    -1 if committed.leader_epoch is None else committed.leader_epoch,
                )
                for place, committed in offsets.items()
            }
        )

    def fetch_committed(self, place: Place) -> Committed | None:
        found = self.consumer.committed(kafka.TopicPartition(*place), metadata=True)
        return None if found is None else Committed(found.offset, found.metadata, found.leader_epoch)

    def go_to(self, place: Place, offset: int) -> None:
        self.consumer.seek(kafka.TopicPartition(*place), offset)

    def close(self) -> None:
        self.consumer.close(autocommit=self.joining.commit_every_ms > 0)
