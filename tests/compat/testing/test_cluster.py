"""A cluster of one's own: with the fixtures, and without pytest."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from barnabas import AsyncProducer, Consumer, Producer, TopicPartition
from barnabas.clients.errors import RequestRefused
from barnabas.testing import Broker, BrokerFailed, Cluster, InvalidFault
from tests.compat.testing.test_broker import alive
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing import KafkaCluster

pytest_plugins = ["pytester"]
STRICT = ("-p", "no:cacheprovider", "-W", "error")


def test_a_cluster_serves_within_its_block_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Cluster(brokers=3) as cluster:
        pids = [broker.pid for broker in cluster.brokers]
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send("greetings", b"hello")
        with Consumer(cluster.bootstrap_servers, "greetings", auto_offset_reset="earliest") as consumer:
            assert [record.value for record in consumer.until_end()] == [b"hello"]
        assert cluster.leadership("greetings").replicas in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    assert not any(map(alive, pids))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BrokerFailed, match="is closed"):
        _ = cluster.brokers


async def test_a_cluster_works_in_coroutines_and_in_other_sizes() -> None:
    async with Cluster({"num.partitions": 2}, brokers=2) as cluster:
        async with AsyncProducer(cluster.bootstrap_servers) as producer:
            await (await producer.send("greetings", b"hello"))
        found = await asyncio.to_thread(cluster.leadership, "greetings", 1)
        assert set(found.replicas) == {0, 1}


def test_data_can_be_kept(tmp_path: Path) -> None:
    with Cluster(data=tmp_path / "kept") as cluster, Producer(cluster.bootstrap_servers) as producer:
        producer.send("greetings", b"hello")
    for number in range(3):
        assert (tmp_path / "kept" / str(number) / "greetings-0").is_dir()
        assert (tmp_path / "kept" / str(number) / ".kafka_cleanshutdown").exists()
    with (
        Cluster(data=tmp_path / "kept") as cluster,
        Consumer(cluster.bootstrap_servers, "greetings", auto_offset_reset="earliest") as consumer,
    ):
        assert [record.value for record in consumer.until_end()] == [b"hello"]


def test_a_cluster_that_cannot_be_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        Cluster({"num.partitions": "many"}).start()
    assert list(tmp_path.iterdir()) == [], "nothing temporary is left"
    with pytest.raises(ValueError, match="one at least"):
        Cluster(brokers=0)
    with pytest.raises(BrokerFailed, match="not started yet"):
        _ = Cluster().bootstrap_servers


STARTS_A_CLUSTER = """
import sys
from barnabas.testing import Cluster
cluster = Cluster()
cluster.start()
print(*(broker.pid for broker in cluster.brokers), flush=True)
sys.stdin.read()
"""


def test_a_cluster_does_not_outlive_a_killed_test_run() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert len(pids) == 3
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids)), "the brokers' end", 30)


def test_topics_have_three_replicas_and_need_two(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic(partitions=3)
    found = [kafka_cluster.cluster.leadership(topic, number) for number in range(3)]
    assert [set(each.replicas) for each in found] == [{0, 1, 2}] * 3
    assert {each.leader for each in found} == {0, 1, 2}
    (settings,) = kafka_cluster.admin.topic_configs([topic]).values()
    assert {entry.name: entry.value for entry in settings}["min.insync.replicas"] == "2"
    alone = kafka_cluster.topic(replication_factor=1)
    assert len(kafka_cluster.cluster.leadership(alone).replicas) == 1


@pytest.mark.parametrize("end", [Broker.kill, Broker.stop])
def test_what_was_acknowledged_survives_the_end_of_its_leader(kafka_cluster: KafkaCluster, end: Any) -> None:
    topic = kafka_cluster.topic()
    kafka_cluster.send(topic, "before")
    producer = kafka_cluster.producer(delivery_timeout=60)
    old = kafka_cluster.leader(topic)
    end(old)
    producer.send(topic, b"after").result(60)
    new = kafka_cluster.leader(topic)
    assert new is not old
    assert kafka_cluster.values(topic, 2, timeout=30) == ["before", "after"]
    kafka_cluster.cluster.start()
    assert old.running
    kafka_cluster.cluster.wait_until_in_sync(topic)
    assert old in kafka_cluster.cluster.followers(topic)


def test_with_too_few_replicas_nothing_is_taken(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic()
    for follower in kafka_cluster.cluster.followers(topic):
        follower.kill()
    wait_until(lambda: len(kafka_cluster.cluster.leadership(topic).isr) == 1, "the ISR to shrink", 30)
    with pytest.raises(RequestRefused) as refused:
        kafka_cluster.producer(retries=0, enable_idempotence=False).send(topic, b"x").result(60)
    assert refused.value.code.name == "not_enough_replicas"


def test_brokers_are_back_for_the_next_test(kafka_cluster: KafkaCluster) -> None:
    assert all(broker.running for broker in kafka_cluster.brokers)
    assert kafka_cluster.admin.live_brokers() == {0, 1, 2}


def test_clients_follow_a_leader_that_moves(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic()
    producer, consumer = kafka_cluster.producer(), kafka_cluster.consumer(topic)
    producer.send(topic, b"0").result(30)
    seen = [kafka_cluster.brokers.index(kafka_cluster.leader(topic))]
    for number in (1, 2):
        wanted = next(each for each in (0, 1, 2) if each not in seen)
        assert kafka_cluster.faults.move_leader(topic, to=wanted) is kafka_cluster.leader(topic)
        seen.append(wanted)
        producer.send(topic, str(number).encode()).result(30)
    assert kafka_cluster.faults.move_leader(topic) is not kafka_cluster.brokers[seen[-1]]
    assert _read(consumer, 3) == [b"0", b"1", b"2"]


def _polled(consumer: Consumer[Any, Any]) -> list[Any]:
    return [record.value for record in consumer.poll(1)]


def _read(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    values: list[Any] = []

    def enough() -> bool:
        values.extend(_polled(consumer))
        return len(values) >= count

    wait_until(enough, f"{count} records", 30)
    return values


def test_a_leader_that_cannot_move_says_why(kafka_cluster: KafkaCluster) -> None:
    alone = kafka_cluster.topic(replication_factor=1)
    with pytest.raises(InvalidFault, match="has the only replica"):
        kafka_cluster.faults.move_leader(alone)
    with pytest.raises(InvalidFault, match="broker 7 cannot lead"):
        kafka_cluster.faults.move_leader(alone, to=7)
    with pytest.raises(RequestRefused, match="no partition 9"):
        kafka_cluster.faults.move_leader(alone, 9)
    with pytest.raises(RequestRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        kafka_cluster.leader("nothing")


def test_a_fault_meets_whichever_broker_leads(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic(partitions=3)
    with kafka_cluster.faults.fail("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=1) as fault:
        producer = kafka_cluster.producer()
        sent = [producer.send(topic, b"x", partition=number) for number in range(3)]
        fault.wait(3)
        for delivery in sent:
            delivery.result(30)
    assert fault.fired == 3, "once at each broker"
    with pytest.raises(TimeoutError, match="0 times and not 1"):
        kafka_cluster.faults.delay("PRODUCE", 0).wait(timeout=0.05)


def test_a_fault_of_one_broker_leaves_the_others_alone(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic(partitions=3)
    with kafka_cluster.leader(topic, 1).faults.fail("PRODUCE", "TOPIC_AUTHORIZATION_FAILED") as fault:
        producer = kafka_cluster.producer()
        producer.send(topic, b"x", partition=0).result(30)
        with pytest.raises(RequestRefused):
            producer.send(topic, b"x", partition=1).result(30)
    assert fault.fired == 1


def test_a_killed_broker_takes_its_faults_with_it(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic()
    fault = kafka_cluster.faults.delay("PRODUCE", 0)
    kafka_cluster.send(topic, "x")
    assert fault.fired == 1
    kafka_cluster.leader(topic).kill()
    assert fault.fired == 1
    kafka_cluster.send(topic, "y")
    fault.remove()
    assert fault.fired >= 2


def test_a_group_rebalances_wherever_it_is_coordinated(kafka_cluster: KafkaCluster) -> None:
    topic, group = kafka_cluster.topic(), kafka_cluster.name("group")
    kafka_cluster.send(topic, "first")
    consumer = kafka_cluster.consumer(topic, group_id=group, heartbeat_interval_ms=100)
    wait_until(lambda: _polled(consumer), "the first record", 30)
    with kafka_cluster.faults.delay("JOIN_GROUP", 0, group=group) as joins:
        kafka_cluster.faults.rebalance(group)
        wait_until(lambda: consumer.poll(0.1) or joins.fired, "another JoinGroup", 30)
    kafka_cluster.cluster.coordinator(group).kill()
    kafka_cluster.send(topic, "second")
    wait_until(lambda: b"second" in _polled(consumer), "the second record", 60)


def test_another_controller_takes_over(kafka_cluster: KafkaCluster) -> None:
    old = kafka_cluster.cluster.controller()
    old.kill()
    assert kafka_cluster.cluster.controller() is not old
    kafka_cluster.topic(replication_factor=2)


def test_time_passes_for_retention_on_every_replica(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic(configs={"retention.ms": 3_600_000})
    place = TopicPartition(topic, 0)
    kafka_cluster.send(topic, "old")
    kafka_cluster.faults.advance_retention_clock(minutes=61, topic=topic)
    assert kafka_cluster.admin.beginning_offsets([place]) == {place: 1}
    kafka_cluster.faults.move_leader(topic)
    kafka_cluster.send(topic, "new")
    assert kafka_cluster.values(topic) == ["new"]


async def test_clients_for_coroutines(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.topic()

    async def scene() -> Any:
        async with kafka_cluster.async_admin() as admin, kafka_cluster.async_producer() as producer:
            await (await producer.send(topic, b"hello"))
            assert topic in await admin.topic_names()
        async with kafka_cluster.async_consumer(topic) as consumer:
            return (await anext(aiter(consumer))).value

    assert await scene() == b"hello"


def test_each_worker_of_xdist_has_its_own_cluster_and_failures_show_its_logs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def kafka_config():
            return {"num.partitions": 2}
        """)
    pytester.makepyfile("""
        import os
        import pathlib

        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_sends(kafka_cluster, number):
            kafka_cluster.send(kafka_cluster.name("made-by-sending"), str(number))
            assert len(kafka_cluster.admin.partitions(kafka_cluster.name("made-by-sending"))) == 2
            assert kafka_cluster.values(kafka_cluster.name("made-by-sending")) == [str(number)]
            ports = sorted(broker.port for broker in kafka_cluster.brokers)
            pathlib.Path(f"{os.environ['PYTEST_XDIST_WORKER']}-{ports}").touch()

        @pytest.mark.parametrize("turn", range(2))
        def test_fails(kafka_cluster, turn):
            kafka_cluster.topic("seen")
            assert False
        """)
    result = pytester.runpytest_subprocess(*STRICT, "-n", "2")
    result.assert_outcomes(passed=4, failed=2)
    ran = sorted(path.name.split("-") for path in pytester.path.glob("gw*"))
    assert [worker for worker, _ in ran] == ["gw0", "gw1"]
    assert len({ports for _, ports in ran}) == 2
    result.stdout.fnmatch_lines(["*Kafka broker ? log*", "*Created topic test_fails-*.seen*"])
