"""confluent-kafka as a member of a group, with either protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.members.member import POLL_SECONDS, TIMEOUT_SECONDS, Committed, Member, Place, Read

if TYPE_CHECKING:
    from collections.abc import Mapping

REFUSALS: Final = {
    KafkaError._FATAL,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError.UNSUPPORTED_ASSIGNOR,
}
"""What makes it pointless to go on, though librdkafka does."""


class ConfluentMember(Member):
    """confluent-kafka, with the classic protocol."""

    protocol: dict[str, Any] = {"group.protocol": "classic"}  # noqa: RUF012  (settings of the class, never changed)

    def settings(self) -> dict[str, Any]:
        """What only the classic protocol lets a client choose."""
        return {
            **self.protocol,
            "partition.assignment.strategy": ",".join(self.joining.assignors),
            "session.timeout.ms": self.joining.session_ms,
            "heartbeat.interval.ms": min(200, self.joining.session_ms // 3),
        }

    def open(self) -> None:
        joining = self.joining
        self.consumer = Consumer(
            {
                "bootstrap.servers": joining.bootstrap,
                "group.id": joining.group,
                "auto.offset.reset": joining.reset,
                "enable.auto.commit": joining.commit_every_ms > 0,
                "auto.commit.interval.ms": joining.commit_every_ms or 1_000,
                "topic.metadata.refresh.interval.ms": 500,
                "max.poll.interval.ms": max(joining.poll_interval_ms, joining.session_ms),
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **self.settings(),
                **({"group.instance.id": joining.instance} if joining.instance else {}),
            }
        )
        if joining.assigned:
            self.consumer.assign([TopicPartition(*place) for place in joining.assigned])
        else:
            self.consumer.subscribe(
                [joining.pattern] if joining.pattern else list(joining.topics),
                on_assign=lambda _, places: self.changed(True, places),
                on_revoke=lambda _, places: self.changed(False, places),
                on_lost=lambda _, places: self.changed(False, places),
            )

    def poll(self) -> list[Read]:
        got = []
        for message in self.consumer.consume(1_000, timeout=POLL_SECONDS):
            error = message.error()
            if error is None:
                place = Place(message.topic() or "", message.partition() or 0)
                got.append(Read(place, message.offset() or 0, message.value()))
            elif error.code() in REFUSALS:
                raise KafkaException(error)
        return got

    def assignment(self) -> list[Place]:
        return [Place(place.topic, place.partition) for place in self.consumer.assignment()]

    def commit_these(self, offsets: Mapping[Place, Committed]) -> None:
        wanted = [
            TopicPartition(topic, partition, offset, metadata, -1 if epoch is None else epoch)
            for (topic, partition), (offset, metadata, epoch) in offsets.items()
        ]
        for place in self.consumer.commit(offsets=wanted, asynchronous=False) or []:
            if place.error is not None:
                raise KafkaException(place.error)

    def fetch_committed(self, place: Place) -> Committed | None:
        [found] = self.consumer.committed([TopicPartition(*place)], timeout=TIMEOUT_SECONDS)
        if found.error is not None:
            raise KafkaException(found.error)
        return None if found.offset < 0 else Committed(found.offset, found.metadata or "", found.leader_epoch)

    def go_to(self, place: Place, offset: int) -> None:
        self.consumer.seek(TopicPartition(*place, offset))

    def close(self) -> None:
        self.consumer.close()


class ConfluentConsumerProtocolMember(ConfluentMember):
    """confluent-kafka, with the new protocol: the broker assigns."""

    def settings(self) -> dict[str, Any]:
        assignor = self.joining.assignors[0]
        return {
            "group.protocol": "consumer",
            **({"group.remote.assignor": assignor} if assignor in ("uniform", "range") else {}),
        }
