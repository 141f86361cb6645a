"""Three brokers over one SQLite file: what is acknowledged survives, and whoever was away comes back in sync."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from barnabas.clients.admin import Admin
from barnabas.protocol.records.batch import read_header
from tests.support.clusters import PATIENT, Cluster, Node
from tests.support.processes import free_port
from tests.support.senders import Sender, everything
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> Iterator[None]:
    """Every test begins with all brokers up."""
    yield
    for broker_id, node in list(cluster.nodes.items()):
        if not node.alive:
            cluster.start(broker_id)
    wait_until(lambda: len(cluster.metadata().brokers) == 3, "all brokers to be back")


def test_every_broker_knows_the_same_cluster(cluster: Cluster) -> None:
    cluster.create("known", 6, 3)

    def told_by(broker_id: int) -> tuple[int, frozenset[int], bool]:
        """The controller, who leads, and whether all replicas are in sync."""
        found = AdminClient({"bootstrap.servers": cluster.address(broker_id)}).list_topics(timeout=30)
        partitions = found.topics["known"].partitions.values()
        leaders = frozenset(each.leader for each in partitions)
        return found.controller_id, leaders, all(set(each.isrs) == {1, 2, 3} for each in partitions)

    def is_the_same() -> bool:
        told = {told_by(broker_id) for broker_id in cluster.nodes}
        return len(told) == 1 and all(each[1:] == (frozenset({1, 2, 3}), True) for each in told)

    wait_until(is_the_same, "all brokers to tell the same")


def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    cluster.create("survives", 1, 3, min_insync_replicas="2")
    sender = Sender(cluster, "survives")
    sender.send(2000)
    leader = cluster.leader("survives")
    wait_until(lambda: sender.poll() > 500, "some records to be acknowledged")
    cluster.nodes[leader].kill()
    sender.send(2000)
    assert cluster.leader("survives", other_than=leader) != leader
    sender.finish()
    assert not sender.errors
    assert len(sender.acknowledged) == 4000
    assert everything(cluster, "survives", 4000) == list(range(4000))
    cluster.start(leader)
    cluster.wait_for_isr("survives", {1, 2, 3})
    sender.send(10)
    sender.finish()
    assert everything(cluster, "survives", 4010) == list(range(4010))


def test_a_follower_that_hangs_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    cluster.create("hangs", 1, 3, min_insync_replicas="2")
    leader = cluster.leader("hangs")
    follower = next(each for each in cluster.nodes if each not in (leader, cluster.controller()))
    cluster.nodes[follower].freeze()
    try:
        sender = Sender(cluster, "hangs")
        sender.send(10)
        sender.finish()
        cluster.wait_for_isr("hangs", {1, 2, 3} - {follower})
        assert len(sender.acknowledged) == 10
    finally:
        cluster.nodes[follower].thaw()
    cluster.wait_for_isr("hangs", {1, 2, 3})


def test_deleted_records_are_gone_on_every_replica_when_that_is_answered(cluster: Cluster) -> None:
    cluster.create("shortened", 1, 3)
    sender = Sender(cluster, "shortened")
    sender.send(100)
    sender.finish()
    before = TopicPartition("shortened", 0, 40)
    assert cluster.admin.delete_records([before], **PATIENT)[before].result(60).low_watermark == 40
    leader = cluster.leader("shortened")
    cluster.nodes[leader].kill()
    cluster.leader("shortened", other_than=leader)
    with closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})) as consumer:

        def ends() -> tuple[int, int] | None:
            try:
                return consumer.get_watermark_offsets(TopicPartition("shortened", 0), timeout=10)
            except KafkaException as error:  # librdkafka drops a broker that is gone, with what waited for it, or waits
                assert error.args[0].code() in (KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT)
                return None

        assert wait_until(ends, "the ends of the partition") == (40, 100)


def test_a_follower_comes_back_to_a_log_that_begins_within_a_batch(cluster: Cluster) -> None:
    """DeleteRecords divides no batch: the follower is sent all of the one that it has to begin with."""
    cluster.create("divided", 1, 3)
    leader = cluster.leader("divided")
    follower = next(each for each in cluster.nodes if each not in (leader, cluster.controller()))
    cluster.nodes[follower].kill()
    cluster.wait_for_isr("divided", {1, 2, 3} - {follower})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 500})
    for number in range(10):
        producer.produce("divided", str(number))
    assert producer.flush(60) == 0
    [log] = cluster.nodes[leader].data.glob("divided-0/*.log")
    assert read_header(log.read_bytes()).record_count == 10, "they are one batch"
    before = TopicPartition("divided", 0, 4)
    assert cluster.admin.delete_records([before], **PATIENT)[before].result(60).low_watermark == 4
    cluster.start(follower)
    cluster.wait_for_isr("divided", {1, 2, 3})
    cluster.nodes[leader].kill()
    cluster.leader("divided", other_than=leader)
    assert everything(cluster, "divided", 6) == list(range(4, 10))


def test_a_deletion_that_a_replica_does_not_hear_of_is_not_answered_as_done(cluster: Cluster) -> None:
    cluster.create("kept", 1, 3)
    sender = Sender(cluster, "kept")
    sender.send(10)
    sender.finish()
    leader = cluster.leader("kept")
    follower = next(each for each in cluster.nodes if each not in (leader, cluster.controller()))
    before = TopicPartition("kept", 0, 5)
    cluster.nodes[follower].freeze()
    try:
        with pytest.raises(KafkaException, match="REQUEST_TIMED_OUT"):
            cluster.admin.delete_records([before], operation_timeout=0.5, request_timeout=40)[before].result(60)
    finally:
        cluster.nodes[follower].thaw()
    assert cluster.admin.delete_records([before], **PATIENT)[before].result(60).low_watermark == 5


def test_too_few_in_sync_refuse_acks_all(cluster: Cluster) -> None:
    cluster.create("needs-all", 1, 3, min_insync_replicas="3")
    leader = cluster.leader("needs-all")
    follower = next(each for each in cluster.nodes if each not in (leader, cluster.controller()))
    cluster.nodes[follower].kill()
    cluster.wait_for_isr("needs-all", {1, 2, 3} - {follower})
    sender = Sender(cluster, "needs-all", **{"message.timeout.ms": 1500})
    sender.send(1)
    sender.finish()
    assert sender.errors
    assert not sender.acknowledged


def test_settings_reach_every_broker(cluster: Cluster) -> None:
    cluster.create("set", 1, 3)
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "set", incremental_configs=[entry])
    patient = AdminClient({"bootstrap.servers": cluster.bootstrap})
    patient.incremental_alter_configs([resource])[resource].result(60)

    def told_by(broker_id: int) -> str:
        admin = AdminClient({"bootstrap.servers": cluster.address(broker_id)})
        asked = ConfigResource("topic", "set")
        return str(admin.describe_configs([asked])[asked].result(30)["retention.ms"].value)

    wait_until(lambda: {told_by(broker_id) for broker_id in cluster.nodes} == {"12345"}, "every broker to know")


def test_another_controller_comes_when_one_is_killed(cluster: Cluster) -> None:
    controller = cluster.controller()
    cluster.nodes[controller].kill()
    wait_until(lambda: cluster.controller() not in (controller, -1), "another controller")
    wait_until(lambda: len(cluster.metadata().brokers) == 2, "the dead broker to be gone")
    cluster.create("after", 3, 2)
    assert len(cluster.metadata("after").topics["after"].partitions) == 3


def test_questions_are_answered_while_the_controller_dies(cluster: Cluster) -> None:
    """librdkafka asks the controller that it knows, and goes on calling it when it is gone, without looking around."""
    cluster.create("asked", 2, 3)
    with Admin(cluster.bootstrap) as admin:
        (before,) = admin.describe_topics("asked")
        controller = cluster.controller()
        cluster.nodes[controller].kill()
        (after,) = admin.describe_topics("asked")
        assert after.topic_id == before.topic_id
        assert [each.name for each in admin.topic_configs(["asked"])["asked"] if each.name == "cleanup.policy"]
        wait_until(lambda: cluster.controller() not in (controller, -1), "another controller")
        assert admin.end_offsets(admin.partitions("asked")) == dict.fromkeys(admin.partitions("asked"), 0)


def test_a_second_broker_with_one_id_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    settings = {"metadata.store": str(cluster.folder / "metadata")}
    second = Node(tmp_path, 1, f"127.0.0.1:{free_port()}", settings)
    assert second.wait() != 0
    assert "a broker with id 1 is already up" in second.output()
    assert all(node.alive for node in cluster.nodes.values())
    wait_until(lambda: len(cluster.metadata().brokers) == 3, "all brokers to be known")


def test_what_was_deleted_while_a_broker_was_away_is_removed_there(cluster: Cluster) -> None:
    cluster.create("deleted", 1, 3)
    cluster.create("again", 1, 3)
    away = next(each for each in cluster.nodes if each != cluster.controller())
    for topic in ("deleted", "again"):
        sender = Sender(cluster, topic)
        sender.send(10)
        sender.finish()
    cluster.nodes[away].kill()
    wait_until(lambda: len(cluster.metadata().brokers) == 2, "the broker to be gone")
    for done in cluster.admin.delete_topics(["deleted", "again"], **PATIENT).values():
        done.result(60)
    cluster.create("again", 1, 2)
    data = cluster.start(away).data

    def condemned() -> list[str]:
        return sorted(found.name.partition(".")[0] for found in data.iterdir() if found.name.endswith("-delete"))

    wait_until(lambda: condemned() == ["again-0", "deleted-0"], "what the tree records as deleted to be removed")
    assert not (data / "deleted-0").exists()
    assert not list(data.glob("*-stray"))
    sender = Sender(cluster, "again")
    sender.send(5)
    sender.finish()
    assert everything(cluster, "again", 5) == list(range(5))


def test_groups_go_on_when_their_coordinator_is_killed(cluster: Cluster) -> None:
    cluster.create("grouped", 1, 3)
    sender = Sender(cluster, "grouped")
    sender.send(100)
    sender.finish()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "goes-on",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["grouped"])
    found: list[int] = []

    def read(count: int) -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b""))
        return len(found) >= count

    wait_until(lambda: read(100), "the first records", every=0)
    consumer.commit(asynchronous=False)
    coordinator = cluster.leader("__consumer_offsets", _partition("goes-on"))
    cluster.nodes[coordinator].kill()
    sender.send(100)
    sender.finish()
    wait_until(lambda: read(200), "the other records", every=0)

    def committed() -> bool:
        with suppress(KafkaException):
            return consumer.commit(asynchronous=False) is not None
        return False

    wait_until(committed, "a commit at the new coordinator")
    consumer.close()
    assert found == list(range(200))


def _partition(group: str) -> int:
    """Which of the 50 partitions of `__consumer_offsets` a group is in: Java's hash of its id."""
    value = 0
    for letter in group:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % 50
