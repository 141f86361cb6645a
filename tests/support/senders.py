"""Producers that note what was acknowledged, and reading it all back: what tests of failures compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.clusters import Cluster


class Sender:
    """An idempotent producer that notes what was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, partition: int = 0, **config: Any) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._partition = partition
        self._next = 0
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
                "socket.timeout.ms": 2000,
                "request.timeout.ms": 2000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **config,
            }
        )

    def send(self, count: int) -> None:
        """Send the next numbers, without waiting."""
        for number in range(self._next, self._next + count):
            self._producer.produce(self._topic, str(number), partition=self._partition, on_delivery=self._noted(number))
        self._next += count
        self._producer.poll(0)

    def poll(self) -> int:
        """How many were acknowledged."""
        self._producer.poll(0)
        return len(self.acknowledged)

    def finish(self, seconds: float = 60) -> None:
        """Wait for all answers."""
        assert self._producer.flush(seconds) == 0

    def _noted(self, number: int) -> Any:
        def delivered(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.errors.append(error)

        return delivered


def everything(cluster: Cluster, topic: str, count: int, partition: int = 0, **config: Any) -> list[int]:
    """Read one of a topic's partitions from its start, until `count` records were seen."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": f"read-{topic}", "enable.auto.commit": False, **config}
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[int] = []

    def read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b""))
        return len(found) >= count

    try:
        wait_until(read, f"{count} records of {topic}", 60, every=0)
    finally:
        consumer.close()
    return found
