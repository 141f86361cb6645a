"""A directory that Barnabas compacted is one that Apache Kafka 3.9.1 reads, serves, and compacts further.

One topic per codec, written by one idempotent producer that goes on through both brokers. Whoever serves, reading a
topic from its start must give the dictionary of what was written to it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.conftest import has_leaders
from tests.compat.format.contents import produce, read, text_messages
from tests.compat.format.test_exchange import metadata
from tests.compat.messages import CODECS
from tests.support import java
from tests.support.brokers import Barnabas, KafkaZooKeeper
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compat.messages import Message

COUNT = 3_000
"""Of half a kilobyte each: with any codec more than a segment of a megabyte."""
KEYS = 150
OFTEN = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01", "log.segment.bytes": "1048576"}
COMPLAINTS = re.compile(r"mismatch|corrupt|out of order|not found|failed|invalid|exception|error", re.IGNORECASE)


class Topics:
    """What was written to each topic, and what must be read from it."""

    def __init__(self) -> None:
        self.written: dict[str, dict[bytes | None, bytes | None]] = {codec: {} for codec in CODECS}

    def fill(self, producer: Producer, seed: int) -> None:
        """Write every key some twenty times, and delete a tenth of them."""
        for number, codec in enumerate(CODECS):
            sent = [
                message._replace(key=b"key %d" % (index % KEYS), value=self._value(index, message))
                for index, message in enumerate(text_messages(COUNT, 500, seed + number))
            ]
            produce(producer, codec, 0, sent)
            self.written[codec].update({message.key: message.value for message in sent})

    @staticmethod
    def _value(index: int, message: Message) -> bytes | None:
        return None if index > COUNT - KEYS and index % 10 == 0 else message.value

    def check(self, bootstrap: str) -> dict[str, int]:
        """Read all topics, and compare; returns how many records each has."""
        counts = {}
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for codec, written in self.written.items():
            wait_until(lambda codec=codec: has_leaders(admin, codec, 1), f"a leader of {codec}")  # type: ignore[misc]
            contents = read(bootstrap, codec, 0)
            found = {record.key: record.value for record in contents.records}
            assert {key: value for key, value in found.items() if value is not None} == {
                key: value for key, value in written.items() if value is not None
            }
            offsets = [record.offset for record in contents.records]
            assert offsets == sorted(set(offsets))
            counts[codec] = len(offsets)
        return counts


def wait_for_cleaning(data: Path, beyond: int) -> None:
    """Wait until each topic is clean up to its last segment, which begins beyond an offset.

    Where a segment ends depends on the batches that the producer happened to make.
    """
    path = data / "cleaner-offset-checkpoint"

    def clean() -> bool:
        rows = dict(re.findall(r"^(\w+) 0 (\d+)$", path.read_text(), re.MULTILINE)) if path.exists() else {}
        return all(beyond < last_segment(data / f"{codec}-0") == int(rows.get(codec, -1)) for codec in CODECS)

    wait_until(clean, f"cleaning beyond {beyond}", 120)


def last_segment(partition: Path) -> int:
    return max(int(path.stem) for path in partition.glob("*.log"))


def dump(paths: list[Path], *flags: str) -> str:
    printed = java.tool("3.9.1", "dump-log", *flags, "--files", ",".join(map(str, paths)), seconds=120)
    assert not COMPLAINTS.search(re.sub(r"payload: \w+", "", printed)), printed[-2_000:]
    return printed


def test_kafka_reads_and_serves_what_was_compacted(tmp_path: Path, chroot: str) -> None:
    port = free_port()
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 40,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )
    topics = Topics()
    tree = tmp_path / "tree.json"
    with Barnabas(tmp_path, OFTEN, port) as ours:
        admin = AdminClient({"bootstrap.servers": ours.bootstrap, "log_level": 0})
        new = [
            NewTopic(
                codec,
                1,
                1,
                config={"cleanup.policy": "compact", "compression.type": codec.replace("none", "uncompressed")},
            )
            for codec in CODECS
        ]
        for made in admin.create_topics(new).values():
            made.result(30)
        topics.fill(producer, 0)
        wait_for_cleaning(ours.data, 0)
        counts = topics.check(ours.bootstrap)
        assert all(count < COUNT * 0.8 for count in counts.values()), counts
        assert ours.stop() == 0

    logs = sorted(ours.data.glob("[!_]*-0/*.log"))
    printed = dump(logs, "--deep-iteration")
    assert len(re.findall(r"^\| offset: ", printed, re.MULTILINE)) == sum(counts.values())
    assert "isvalid: false" not in printed
    indexes = sorted(ours.data.glob("[!_]*-0/*.*index"))
    assert len(re.findall("passed sanity check|is empty", dump(indexes, "--index-sanity-check"))) == len(indexes)
    dump(indexes)
    dump(sorted(ours.data.glob("[!_]*-0/*.snapshot")))

    replaced = ours.data / f"{CODECS[0]}-0" / "00000000000000000000.log.7.deleted"
    replaced.write_bytes(b"of a segment that was cleaned just before the stop")
    metadata("export", tree, "--data", str(ours.data))
    metadata("import", tree, "--zookeeper", chroot)
    with KafkaZooKeeper(tmp_path, chroot, ours.data, {"broker.id": "1", **OFTEN}, port) as kafka:
        assert topics.check(kafka.bootstrap).keys() == counts.keys()
        assert not replaced.exists()
        topics.fill(producer, 100)
        wait_for_cleaning(ours.data, COUNT)
        topics.check(kafka.bootstrap)
        kafka.stop()
    metadata("export", tree, "--zookeeper", chroot)
    store = tmp_path / "came-back"
    metadata("import", tree, "--store", str(store))
    with Barnabas(tmp_path, {**OFTEN, "metadata.store": str(store)}, port) as ours:
        topics.check(ours.bootstrap)
        topics.fill(producer, 200)
        wait_for_cleaning(ours.data, 2 * COUNT)
        counts = topics.check(ours.bootstrap)
        assert all(count < COUNT * 0.8 for count in counts.values()), counts
        assert ours.stop() == 0
