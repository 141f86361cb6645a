"""Queues of a cluster whose brokers are killed while workers work: no message is lost, nor a dead letter.

Each test kills one broker: the one that leads the messages, the one that keeps their state, or the one that coordinates
the group. The dead letters are led by another broker than the messages.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.errors import BrokerUnreachable, NotAcknowledged, RequestRefused
from barnabas.clients.queue.dead_letter import DeadLetter
from barnabas.model.ids import TopicPartition
from barnabas.model.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from barnabas.testing import Cluster
from barnabas.testing.kafka import KafkaCluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.clients.queue.queue import Queue

SETTINGS: Final = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.delivery.count.limit": 10,  # locks are short, and on a busy machine some end before a worker's word
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.heartbeat.interval.ms": 500,
}
MESSAGES: Final = 120
REJECTED: Final = frozenset(range(0, MESSAGES, 10))
LEADER, STATE, COORDINATOR = 0, 1, 2
"""Who does what before one of them is killed."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as cluster:
        yield cluster


class Workers:
    """Two workers, which reject every tenth message."""

    def __init__(self, kafka: KafkaCluster, topic: str, group: str) -> None:
        self.seen = Counter[int]()
        """Messages by how often they were delivered."""
        self.told = Counter[int]()
        """Messages by how often a worker heard that its word counts."""
        self._over = threading.Event()
        queues = [kafka.queue(topic, group, prefetch=4) for _ in range(2)]
        self._threads = [threading.Thread(target=self._work, args=(queue,), daemon=True) for queue in queues]
        for thread in self._threads:
            thread.start()

    def _work(self, queue: Queue[Any, Any]) -> None:
        while not self._over.is_set():
            if (message := queue.get(0.2)) is not None:
                number = int(message.record.value or b"")
                self.seen[number] += 1
                with suppress(NotAcknowledged):
                    (message.reject if number in REJECTED else message.done)().result(60)
                    self.told[number] += 1

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)


@pytest.mark.parametrize("role", [LEADER, STATE, COORDINATOR], ids=["leader", "share coordinator", "group coordinator"])
def test_no_message_and_no_dead_letter_is_lost_when_a_broker_is_killed(cluster: Cluster, role: int) -> None:
    """A worker may hear that its word was not stored though it was, so what counts is what the group has left to do.

    Nobody hears that its word counts after another one has: locks outlive the death of a follower or a coordinator, and
    with the leader the connections end.
    """
    with KafkaCluster(cluster, f"queues-{role}") as kafka:
        topic, group = kafka.topic("jobs"), kafka.name("workers")
        dead = kafka.dead_letter_topic(group)
        kafka.configure_group(group, {"share.record.lock.duration.ms": 2000})
        send_jobs(kafka, topic)
        workers = Workers(kafka, topic, group)
        try:
            wait_until(lambda: workers.told.total() > 0, "the group to begin")
            places = {topic: LEADER, dead: STATE, SHARE_GROUP_STATE: STATE, CONSUMER_OFFSETS: COORDINATOR}
            for name, broker in places.items():
                cluster.move_leader(name, to=broker)
            send_jobs(kafka, topic)
            before = workers.told.total()
            wait_until(lambda: workers.told.total() > before, "the group to go on")
            cluster.brokers[role].kill()
            wait_until(lambda: lag(cluster, group, topic) == 0, "the group to be done")
        finally:
            workers.stop()
            if not cluster.brokers[role].running:
                cluster.brokers[role].start()
        assert workers.seen.keys() == set(range(MESSAGES))
        letters = kafka.records(dead)
        assert {int(record.value or b"") for record in letters} == REJECTED
        assert len({letter.offset for letter in map(DeadLetter.of, letters) if letter is not None}) == 2 * len(REJECTED)
        assert all(workers.told[number] <= 2 for number in range(MESSAGES)), "two were sent of each"
        for name in places:
            cluster.wait_until_in_sync(name)


def send_jobs(kafka: KafkaCluster, topic: str) -> None:
    """All of them, each once: the producer is idempotent, and a busy machine may have it try again."""
    with kafka.producer() as producer:
        for number in range(MESSAGES):
            producer.send(topic, str(number))


def lag(cluster: Cluster, group: str, topic: str) -> int | None:
    """How many messages of a group are not done with; None while nobody can tell."""
    try:
        with ClusterAdmin(cluster.bootstrap_servers, {}) as admin:
            found = admin.share_groups.offsets([group])[group].get(TopicPartition(topic, 0))
    except (BrokerUnreachable, RequestRefused):
        return None
    return None if found is None else found.lag
