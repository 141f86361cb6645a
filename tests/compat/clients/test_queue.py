"""Queues: each message to one worker, acknowledged, retried, given up.

The same tests run against Barnabas and Apache Kafka.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.admin.admin import Admin
from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.admin.configs import EntityType
from barnabas.clients.admin.groups import GroupInfo
from barnabas.clients.aio import AsyncQueue
from barnabas.clients.errors import ClientClosed, NotAcknowledged, RequestRefused
from barnabas.clients.producer.producer import Producer
from barnabas.clients.queue.queue import Queue
from barnabas.clients.serializers import JSON
from tests.support.brokers import Barnabas, KafkaKRaft
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.clients.queue.message import QueueMessage

LOCK = "share.record.lock.duration.ms"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
}
PATIENCE = 60.0
"""Seconds: the first worker of a broker waits until it has made the topics that groups are kept in."""


@pytest.fixture(scope="module", params=[Barnabas, KafkaKRaft], ids=["barnabas", "kafka"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("kafka"), SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(kafka: str) -> str:
    name = uuid.uuid4().hex[:12]
    with Admin(kafka) as admin:
        admin.create_topic(name, partitions=3)
    return name


def queue(kafka: str, topic: str, **options: Any) -> Queue[Any, Any]:
    return Queue(kafka, topic, f"of-{topic}", value_serializer=JSON, value_deserializer=JSON, **options)


def let_locks_end_after(seconds: float, kafka: str, topic: str) -> None:
    """In the group of this test alone: elsewhere a lock that ends while a machine is busy would be a failure."""
    with ClusterAdmin(kafka) as cluster:
        cluster.configs.alter(EntityType.GROUPS, f"of-{topic}", add={LOCK: str(round(seconds * 1000))}, delete=())


def send(kafka: str, topic: str, count: int) -> None:
    with queue(kafka, topic) as sender:
        for value in range(count):
            sender.send(value)


def number(message: QueueMessage[Any, Any]) -> int:
    assert isinstance(message.value, int)
    return message.value


def test_workers_share_what_was_sent_before_they_came(kafka: str, topic: str) -> None:
    send(kafka, topic, 60)
    done = Counter[int]()
    lock = threading.Lock()

    def work(worker: Queue[Any, Any]) -> None:
        with worker:
            while done.total() < 60:
                if (message := worker.get(0.2)) is not None:
                    with message, lock:
                        done[number(message)] += 1

    workers = [queue(kafka, topic, prefetch=3) for _ in range(3)]
    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert done == Counter(range(60))


def test_a_message_is_tried_again_until_it_is_done_or_rejected(kafka: str, topic: str) -> None:
    send(kafka, topic, 3)
    tried: list[tuple[int, int]] = []
    with queue(kafka, topic) as worker:
        while len(tried) < 6:
            message = worker.get(PATIENCE)
            assert message is not None
            value = number(message)
            tried.append((value, message.deliveries))
            if value == 0:
                message.reject().result(PATIENCE)
            elif message.deliveries < value + 1:
                message.retry()
            else:
                message.done().result(PATIENCE)
        assert worker.get(0.3) is None
    assert sorted(tried) == [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]


def test_an_error_sends_a_message_back_until_its_deliveries_are_used_up(kafka: str, topic: str) -> None:
    send(kafka, topic, 1)
    deliveries: list[int] = []
    with queue(kafka, topic) as worker:
        while (message := worker.get(PATIENCE if len(deliveries) < 5 else 0.3)) is not None:
            deliveries.append(message.deliveries)
            with pytest.raises(ZeroDivisionError), message:
                raise ZeroDivisionError
    assert deliveries == [1, 2, 3, 4, 5]


def test_long_work_keeps_its_message(kafka: str, topic: str) -> None:
    seconds = 2.0
    let_locks_end_after(seconds, kafka, topic)
    send(kafka, topic, 1)
    with queue(kafka, topic) as worker, queue(kafka, topic) as other:
        message = worker.get(PATIENCE)
        assert message is not None
        until = time.monotonic() + seconds * 1.5
        assert other.get(seconds * 1.5) is None
        assert time.monotonic() >= until
        message.done().result(PATIENCE)
        assert other.get(0.3) is None


def test_work_that_takes_too_long_loses_its_message(kafka: str, topic: str) -> None:
    let_locks_end_after(1.0, kafka, topic)
    send(kafka, topic, 1)
    with queue(kafka, topic, longest_work=0) as worker:
        message = worker.get(PATIENCE)
        assert message is not None
        again = worker.get(PATIENCE)
        assert again is not None
        assert (again.value, again.deliveries) == (message.value, 2)
        with pytest.raises(NotAcknowledged, match=r"lock was lost|INVALID_RECORD_STATE"):
            message.done().result(PATIENCE)
        again.done().result(PATIENCE)


def test_a_worker_that_closes_gives_its_messages_back_at_once(kafka: str, topic: str) -> None:
    send(kafka, topic, 2)
    with queue(kafka, topic) as worker:
        taken = worker.get(PATIENCE)
        assert taken is not None
    with pytest.raises(NotAcknowledged):
        taken.done().result(0)
    with pytest.raises(ClientClosed):
        worker.get(0)
    found = set()
    with queue(kafka, topic, longest_work=0) as worker:
        for _ in range(2):
            message = worker.get(PATIENCE)
            assert message is not None
            with message:
                found.add(message.value)
    assert found == {0, 1}


def in_sessions(worker: Queue[Any, Any]) -> set[int]:
    """The partitions that brokers give a worker records of."""
    assert worker._membership is not None
    return {each.partition for leader in worker._membership._leaders.values() for each in leader._session._partitions}


def test_a_worker_takes_nothing_of_partitions_that_went_to_another(kafka: str, topic: str) -> None:
    """Though it still works on a message of such a partition: what it took along would be locked for nobody."""
    with queue(kafka, topic) as worker, Producer(kafka) as producer:
        for partition in range(3):
            producer.send(topic, "0", partition=partition).result(PATIENCE)
        held = [worker.get(PATIENCE) for _ in range(3)]
        with queue(kafka, topic) as other:
            assert other.get(0) is None  # it joins
            wait_until(lambda: len(in_sessions(worker)) < 3, "partitions to leave the first worker", 30)
            gone = next(iter({0, 1, 2} - in_sessions(worker)))
            for _ in range(10):
                producer.send(topic, "1", partition=gone).result(PATIENCE)
            for _ in range(10):
                message = other.get(PATIENCE)
                assert message is not None
                assert message.deliveries == 1, "nobody had it before"
                message.done()
            for first in held:
                assert first is not None
                first.done().result(PATIENCE)


async def test_asyncio_has_the_same_queue(kafka: str, topic: str) -> None:
    found = set()
    async with AsyncQueue[Any, Any](kafka, topic, "tasks", value_serializer=JSON, value_deserializer=JSON) as worker:
        for number in range(5):
            await worker.send(number)
        impatient = asyncio.create_task(worker.get())
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        async for message in worker:
            async with message:
                found.add(message.value)
            if len(found) == 5:
                break
        assert await worker.get(0.1) is None
    assert found == set(range(5))


def test_a_group_of_consumers_is_no_group_of_workers(kafka: str, topic: str) -> None:
    from barnabas.clients.consumer.consumer import Consumer

    with Consumer(kafka, topic, group_id=f"of-{topic}") as consumer, ClusterAdmin(kafka) as cluster:

        def has_joined() -> bool:
            consumer.poll(0.1)
            found = cluster.groups.describe([f"of-{topic}"])[f"of-{topic}"]
            return isinstance(found, GroupInfo) and bool(found.members)

        wait_until(has_joined, "the consumer in its group")
        with queue(kafka, topic) as worker, pytest.raises(RequestRefused):
            worker.get(PATIENCE)
