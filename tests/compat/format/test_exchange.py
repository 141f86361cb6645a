"""One data directory, two brokers in turn: Barnabas, and Apache Kafka 3.9.1 over ZooKeeper.

`barnabas metadata export` and `import` carry the tree of topics between the stores; the log directory stays where it
is. Each broker must find every record of the other: offsets, timestamps, keys, values, headers, log start, offsets by
time, topic ids and configs. A single idempotent producer goes on through all changes, so producer state must be carried
as well: a lost sequence number would fail it, a forgotten one would let a record in twice.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.compat.conftest import has_leaders
from tests.compat.format.contents import Contents, produce, read
from tests.compat.messages import CODECS, messages
from tests.support.brokers import Barnabas, KafkaZooKeeper
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

TOPICS: dict[str, dict[str, str]] = {
    **{codec: {} for codec in CODECS},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "shortened": {"retention.ms": "-1"},
    "rolled": {"segment.bytes": "1048576", "index.interval.bytes": "1024"},
}


def metadata(direction: str, tree: Path, *where: str) -> None:
    command = [sys.executable, "-m", "barnabas.cli.main", "metadata", direction, str(tree), *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_until(lambda: admin.list_topics(timeout=30).controller_id >= 0, "a controller")
    new = [NewTopic(name, 2, 1, config=config) for name, config in TOPICS.items()]
    for made in admin.create_topics(new).values():
        made.result(60)
    for name in TOPICS:
        wait_until(lambda name=name: has_leaders(admin, name, 2), f"leaders of {name}")  # type: ignore[misc]


def fill(bootstrap: str, lasting: Producer) -> None:
    """More of everything: records of every codec, some by the lasting producer, and a later log start."""
    for topic in TOPICS:  # a broker that has just started may have told the producer that there is no such topic
        wait_until(lambda topic=topic: has_leaders(lasting, topic, 2), f"leaders of {topic}")  # type: ignore[misc]
    for codec in CODECS:
        own = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "log_level": 0})
        for partition in (0, 1):
            produce(own, codec, partition, messages(60))
        produce(lasting, codec, 0, messages(60))
    for topic in ("stamped", "shortened"):
        produce(lasting, topic, 0, messages(80))
    for _ in range(3):
        produce(lasting, "rolled", 1, messages(1_500))
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    place = TopicPartition("shortened", 0, read(bootstrap, "shortened", 0).end - 7)
    admin.delete_records([place])[place].result(30)


def set_aside(partition: Path) -> Path:
    """A copy of a partition's directory, as one that was set aside: neither broker is to stumble over it."""
    stray = partition.with_name(f"aside-0.{'a' * 32}-stray")
    shutil.copytree(partition, stray)
    (stray / "stray-offsets.json").write_text("{}")
    return stray


class Census:
    """All that clients can see of the topics."""

    def __init__(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for name in TOPICS:
            wait_until(lambda name=name: has_leaders(admin, name, 2), f"leaders of {name}")  # type: ignore[misc]
        self.partitions: dict[tuple[str, int], Contents] = {
            (topic, partition): read(bootstrap, topic, partition) for topic in TOPICS for partition in (0, 1)
        }
        described = admin.describe_topics(TopicCollection(list(TOPICS)))
        self.ids = {name: str(future.result(30).topic_id) for name, future in described.items()}
        self.configs = {name: self._configs(admin, name) for name in TOPICS}

    @staticmethod
    def _configs(admin: AdminClient, topic: str) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = admin.describe_configs([resource])[resource].result(30)
        return {key: entry.value for key, entry in found.items() if not entry.is_default}

    def assert_same(self, other: Census) -> None:
        assert self.ids == other.ids
        assert self.configs == other.configs
        for place, contents in self.partitions.items():
            assert contents == other.partitions[place], place


def wait_for_start(data: Path, census: Census) -> None:
    """Wait until the log start is noted: both brokers do that now and then, and a kill before that undoes it."""
    checkpoint = data / "log-start-offset-checkpoint"
    line = f"shortened 0 {census.partitions['shortened', 0].start}\n"
    wait_until(lambda: checkpoint.exists() and line in checkpoint.read_text(), line)


def lasting_producer(port: int) -> Producer:
    return Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )


def test_kafka_serves_what_barnabas_wrote_and_gives_it_back(tmp_path: Path, chroot: str) -> None:
    port = free_port()
    producer = lasting_producer(port)
    tree = tmp_path / "tree.json"
    with Barnabas(tmp_path, port=port) as ours:
        make_topics(ours.bootstrap)
        fill(ours.bootstrap, producer)
        written = Census(ours.bootstrap)
        assert ours.stop() == 0
    stray = set_aside(ours.data / "stamped-0")
    metadata("export", tree, "--data", str(ours.data))
    metadata("import", tree, "--zookeeper", chroot)
    with KafkaZooKeeper(tmp_path, chroot, ours.data, {"broker.id": "1"}, port) as kafka:
        Census(kafka.bootstrap).assert_same(written)
        fill(kafka.bootstrap, producer)
        grown = Census(kafka.bootstrap)
        kafka.stop()
    metadata("export", tree, "--zookeeper", chroot)
    store = tmp_path / "came-back"
    metadata("import", tree, "--store", str(store))
    with Barnabas(tmp_path, {"metadata.store": str(store)}, port) as ours:
        Census(ours.bootstrap).assert_same(grown)
        fill(ours.bootstrap, producer)
        assert ours.stop() == 0
        assert f"1 logs in {ours.data} are set aside (the first is {stray})" in ours.output()
    assert (stray / "00000000000000000000.log").stat().st_size > 0


def test_each_recovers_what_the_other_left_behind_when_it_was_killed(tmp_path: Path, chroot: str) -> None:
    port = free_port()
    producer = lasting_producer(port)
    tree = tmp_path / "tree.json"
    data = tmp_path / "data"
    often = {"log.flush.start.offset.checkpoint.interval.ms": "100"}
    with KafkaZooKeeper(tmp_path, chroot, data, {"broker.id": "1", **often}, port) as kafka:
        make_topics(kafka.bootstrap)
        fill(kafka.bootstrap, producer)
        written = Census(kafka.bootstrap)
        wait_for_start(data, written)
        kafka.kill()
    metadata("export", tree, "--zookeeper", chroot)
    metadata("import", tree, "--data", str(data))
    with Barnabas(tmp_path, often, port) as ours:
        assert ours.data == data
        Census(ours.bootstrap).assert_same(written)
        fill(ours.bootstrap, producer)
        grown = Census(ours.bootstrap)
        wait_for_start(data, grown)
        ours.kill()
    metadata("export", tree, "--data", str(data))
    metadata("import", tree, "--zookeeper", f"{chroot}-again")
    with KafkaZooKeeper(tmp_path, f"{chroot}-again", data, {"broker.id": "1"}, port) as kafka:
        Census(kafka.bootstrap).assert_same(grown)
        fill(kafka.bootstrap, producer)
