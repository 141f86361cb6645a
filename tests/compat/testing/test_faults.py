"""Faults as clients meet them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas import TopicPartition
from barnabas.clients.admin.groups import GroupInfo, Groups
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import WireClient
from barnabas.model.errors import ErrorCode
from barnabas.testing import InvalidFault
from tests.support.markers import wait_for_markers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from barnabas import Consumer
    from barnabas.testing import Kafka


def wait_for(consumer: Consumer[Any, Any], value: bytes) -> bool:
    """Poll until the consumer has read this."""
    return wait_until(lambda: value in [record.value for record in consumer.poll(1)], f"{value!r}")


def test_a_producer_retries_what_fails_and_stores_it_once(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.fail("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        kafka.producer().send(kafka_topic, b"order").result(30)
    assert fault.fired == 2
    assert kafka.values(kafka_topic) == ["order"]


def test_a_fault_without_a_number_lasts_until_it_is_removed(kafka: Kafka, kafka_topic: str) -> None:
    producer = kafka.producer(enable_idempotence=False)
    fault = kafka.faults.fail("PRODUCE", "POLICY_VIOLATION")
    for _ in range(2):
        with pytest.raises(RequestRefused) as failed:
            producer.send(kafka_topic, b"x").result(30)
        assert failed.value.code is ErrorCode.policy_violation
    fault.remove()
    fault.remove()
    assert fault.fired == 2
    producer.send(kafka_topic, b"x").result(30)


def test_faults_happen_in_the_order_in_which_they_were_set(kafka: Kafka) -> None:
    codes = ["TOPIC_AUTHORIZATION_FAILED", "POLICY_VIOLATION"]
    for code in codes:
        kafka.faults.fail("CREATE_TOPICS", code, times=1)
    for code in codes:
        with pytest.raises(RequestRefused) as refused:
            kafka.topic("orders")
        assert refused.value.code.name.upper() == code
    kafka.topic("orders")


def test_a_dropped_connection_is_survived(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.drop("PRODUCE", when="after", times=1) as fault:
        kafka.producer().send(kafka_topic, b"once").result(30)
    assert fault.fired == 1
    assert kafka.values(kafka_topic) == ["once"], "an idempotent producer's repetition is stored once"


def test_without_idempotence_a_lost_answer_stores_a_record_twice(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.drop("PRODUCE", when="after", times=1):
        kafka.producer(enable_idempotence=False).send(kafka_topic, b"twice").result(30)
    assert kafka.values(kafka_topic) == ["twice", "twice"]


def test_requests_are_held_until_the_fault_is_removed(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.delay("PRODUCE", 3600) as held:
        delivery = kafka.producer().send(kafka_topic, b"late")
        held.wait()
        assert not delivery.done()
        assert kafka.values(kafka_topic) == []
    delivery.result(30)
    assert kafka.values(kafka_topic) == ["late"]


def test_answers_are_held_although_the_request_took_effect(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.delay("PRODUCE", 3600, when="after") as held:
        delivery = kafka.producer().send(kafka_topic, b"early")
        held.wait()
        assert kafka.values(kafka_topic, 1) == ["early"]
        assert not delivery.done()
    delivery.result(30)


def test_a_delay_ends_by_itself(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.delay("METADATA", 0.05) as slow:
        kafka.admin.topic_names()
    assert slow.fired >= 1


def test_a_broker_stops_at_once_whatever_it_holds(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.delay("PRODUCE", 3600, when="after") as held:
        delivery = kafka.producer().send(kafka_topic, b"late")
        held.wait()
        before = len(kafka.broker.log())
        kafka.broker.stop()
    assert "in the middle of a request" not in kafka.broker.log()[before:], "it has waited in vain"
    kafka.broker.start()
    delivery.result(30)


def test_a_fault_can_be_for_one_topic(kafka: Kafka) -> None:
    good, bad = kafka.topic("good"), kafka.topic("bad")
    with kafka.faults.fail("PRODUCE", "TOPIC_AUTHORIZATION_FAILED", topic=bad) as fault:
        producer = kafka.producer()
        producer.send(good, b"x").result(30)
        with pytest.raises(RequestRefused):
            producer.send(bad, b"x").result(30)
    assert fault.fired == 1


def test_a_fault_can_be_for_one_client(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.fail("PRODUCE", "TOPIC_AUTHORIZATION_FAILED", client_id="unlucky"):
        kafka.producer(client_id="lucky").send(kafka_topic, b"x").result(30)
        with pytest.raises(RequestRefused):
            kafka.producer(client_id="unlucky").send(kafka_topic, b"x").result(30)


def test_a_fault_can_be_for_one_group(kafka: Kafka, kafka_topic: str) -> None:
    kafka.send(kafka_topic, "x")
    mine, other = kafka.name("mine"), kafka.name("other")
    with kafka.faults.fail("OFFSET_COMMIT", "GROUP_AUTHORIZATION_FAILED", group=mine) as fault:
        consumer = kafka.consumer(kafka_topic, group_id=other, auto_commit=False)
        assert consumer.poll(30)
        consumer.commit()
        consumer = kafka.consumer(kafka_topic, group_id=mine, auto_commit=False)
        assert consumer.poll(30)
        with pytest.raises(RequestRefused) as refused:
            consumer.commit()
    assert (refused.value.code, fault.fired) == (ErrorCode.group_authorization_failed, 1)


def test_a_consumer_goes_on_after_failed_fetches(kafka: Kafka, kafka_topic: str) -> None:
    consumer = kafka.consumer(kafka_topic)
    kafka.send(kafka_topic, "first")
    assert [record.value for record in consumer.poll(30)] == [b"first"]
    with kafka.faults.fail("FETCH", "NOT_LEADER_OR_FOLLOWER", times=3, topic=kafka_topic) as fault:
        kafka.send(kafka_topic, "second")
        fault.wait(3)
    assert wait_for(consumer, b"second")


def test_waiting_for_a_fault_that_does_not_happen_says_so(kafka: Kafka) -> None:
    with kafka.faults.fail("PRODUCE", "REQUEST_TIMED_OUT") as fault, pytest.raises(TimeoutError, match="0 times"):
        fault.wait(timeout=0.01)


async def test_a_fault_can_be_waited_for_in_a_coroutine(kafka: Kafka, kafka_topic: str) -> None:
    async def scene() -> int:
        async with (
            kafka.async_producer() as producer,
            kafka.faults.fail("PRODUCE", "NOT_ENOUGH_REPLICAS", times=1) as f,
        ):
            sent = await producer.send(kafka_topic, b"x")
            await asyncio.to_thread(f.wait)
            await sent
            return f.fired

    assert await scene() == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"api": "PRODUCES"}, "there is no API PRODUCES: did you mean PRODUCE?"),
        ({"error": "NOT_LEADER"}, "there is no error NOT_LEADER: did you mean NOT_LEADER_OR_FOLLOWER?"),
        ({"error": 4711}, "there is no error 4711 in Kafka"),
        ({"error": "NONE"}, "there is no error NONE"),
        ({"times": 0}, "times is 0: it should be at least 1"),
        ({"api": "HEARTBEAT", "topic": "t"}, "requests of HEARTBEAT name no topics"),
        ({"group": "g"}, "requests of PRODUCE name no groups"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_and_says_why(kafka: Kafka, wrong: dict[str, object], message: str) -> None:
    words: dict[str, object] = {"api": "PRODUCE", "error": "REQUEST_TIMED_OUT", **wrong}
    with pytest.raises(InvalidFault) as refused:
        kafka.faults.fail(**words)  # type: ignore[arg-type]  # wrong on purpose
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["PRODUCE", "produce", "Produce"])
def test_an_api_is_known_by_any_spelling_of_its_name(kafka: Kafka, name: str) -> None:
    kafka.faults.fail(name, 6).remove()
    kafka.faults.delay("InitProducerId", 1).remove()
    kafka.faults.drop("*").remove()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_of_a_classic_group_join_again(kafka: Kafka, kafka_topic: str, assignor: str) -> None:
    group = kafka.name("group")
    kafka.send(kafka_topic, "first")
    consumer = kafka.consumer(kafka_topic, group_id=group, assignor=assignor, heartbeat_interval_ms=100)
    assert consumer.poll(30)
    with kafka.faults.delay("JOIN_GROUP", 0, group=group) as joins:
        kafka.faults.rebalance(group)
        wait_until(lambda: consumer.poll(0.1) or joins.fired, "another JoinGroup")
    kafka.send(kafka_topic, "second")
    assert wait_for(consumer, b"second")


def test_a_consumer_group_gets_a_new_epoch(kafka: Kafka, kafka_topic: str) -> None:
    group = kafka.name("group")
    kafka.send(kafka_topic, "first")
    consumer = kafka.consumer(kafka_topic, group_id=group, assignor="uniform")
    assert consumer.poll(30)
    with Groups(WireClient(kafka.bootstrap_servers)) as groups:

        def epochs() -> tuple[int | None, ...]:
            found = groups.describe([group])[group]
            assert isinstance(found, GroupInfo)
            return found.epoch, found.assignment_epoch, *(member.epoch for member in found.members)

        epoch, *_ = epochs()
        assert epoch is not None
        kafka.faults.rebalance(group)
        wait_until(lambda: consumer.poll(0.1) or epochs() == (epoch + 1,) * 3, "the member's new epoch")
    kafka.send(kafka_topic, "second")
    assert wait_for(consumer, b"second")


def test_a_group_that_is_not_there_cannot_rebalance(kafka: Kafka, kafka_topic: str) -> None:
    with pytest.raises(InvalidFault, match="there is no group nobody"):
        kafka.faults.rebalance("nobody")
    group = kafka.name("left")
    kafka.send(kafka_topic, "x")
    consumer = kafka.consumer(kafka_topic, group_id=group)
    assert consumer.poll(30)
    consumer.close()
    with pytest.raises(InvalidFault, match="has no members"):
        kafka.faults.rebalance(group)


def test_clients_follow_a_leader_that_moves(kafka: Kafka, kafka_topic: str) -> None:
    producer, consumer = kafka.producer(), kafka.consumer(kafka_topic)
    producer.send(kafka_topic, b"before").result(30)
    assert [record.value for record in consumer.poll(30)] == [b"before"]
    assert kafka.faults.move_leader(kafka_topic) == 1
    assert kafka.faults.move_leader(kafka_topic) == 2
    producer.send(kafka_topic, b"after").result(30)
    (record,) = consumer.poll(30)
    assert (record.value, record.leader_epoch) == (b"after", 2)


def test_the_leader_of_nothing_cannot_move(kafka: Kafka, kafka_topic: str) -> None:
    with pytest.raises(InvalidFault, match="cannot be moved"):
        kafka.faults.move_leader(kafka_topic, 7)


def test_time_passes_for_retention_alone(kafka: Kafka) -> None:
    old = kafka.topic("old", configs={"retention.ms": 3_600_000})
    young = kafka.topic("young", configs={"retention.ms": 7_200_000})
    for topic in (old, young):
        kafka.send(topic, "a", "b")
    assert kafka.faults.advance_retention_clock(minutes=59) == 0
    assert kafka.faults.advance_retention_clock(minutes=61) == 1
    assert kafka.values(old) == []
    assert kafka.values(young) == ["a", "b"]
    assert kafka.admin.beginning_offsets([TopicPartition(old, 0)]) == {TopicPartition(old, 0): 2}
    kafka.send(old, "c")
    assert kafka.faults.advance_retention_clock(topic=old) == 0
    assert kafka.values(old) == ["c"]
    assert kafka.faults.advance_retention_clock(days=1, topic=young) == 1
    assert kafka.values(old) == ["c"]
    with pytest.raises(InvalidFault, match="there is no topic nothing"):
        kafka.faults.advance_retention_clock(topic="nothing")


async def test_a_task_that_is_cancelled_while_it_commits_has_committed(kafka: Kafka, kafka_topic: str) -> None:
    producer = kafka.async_producer(transactional_id=kafka_topic)

    async def transact() -> None:
        async with producer.transaction():
            await producer.send(kafka_topic, b"whole")

    with kafka.faults.delay("END_TXN", 3600) as held:
        task = asyncio.create_task(transact())
        await asyncio.to_thread(held.wait)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with producer.transaction():
        await producer.send(kafka_topic, b"next")
    await producer.close()
    await asyncio.to_thread(wait_for_markers, kafka.bootstrap_servers, kafka_topic)
    with kafka.consumer(kafka_topic, isolation_level="read_committed") as reader:
        assert [record.value for record in reader.until_end()] == [b"whole", b"next"]
