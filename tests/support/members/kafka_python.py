"""kafka-python as a member of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import kafka
from kafka.coordinator.assignors import cooperative_sticky, roundrobin
from kafka.coordinator.assignors import range as by_range
from kafka.coordinator.assignors.sticky import sticky_assignor

from tests.support.members.member import Committed, Listener, Member, Place, Read

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
            bootstrap_servers=joining.bootstrap,
            group_id=joining.group,
            auto_offset_reset=joining.reset,
            enable_auto_commit=joining.commit_every_ms > 0,
            auto_commit_interval_ms=joining.commit_every_ms or 1_000,
            partition_assignment_strategy=[self.ASSIGNORS[name] for name in joining.assignors],
            group_instance_id=joining.instance,
            session_timeout_ms=joining.session_ms,
            heartbeat_interval_ms=min(200, joining.session_ms // 3),
            max_poll_interval_ms=max(joining.poll_interval_ms, joining.session_ms),
            metadata_max_age_ms=500,
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
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
