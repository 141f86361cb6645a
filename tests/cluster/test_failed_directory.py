"""A log directory that fails takes its replicas away, and nothing else: others lead them, and clients see no error.

One that was full brings them back when it has room.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from barnabas.protocol.apis import ApiKey
from tests.support.clusters import LONG_LAG_TIME, Cluster, Node
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PARTITIONS = 6


class SmallDisk(Cluster):
    """Broker 1 has a second log directory, on a disk that is soon full."""

    def start(self, broker_id: int, *, wait: bool = True, settings: Mapping[str, str] | None = None) -> Node:
        own = self.folder / f"logs-{broker_id}"
        directories = f"{own},{self.folder / 'small' / 'logs'}" if broker_id == 1 else str(own)
        return super().start(broker_id, wait=wait, settings={"log.dirs": directories, **(settings or {})})


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    yield disk / "logs"
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_others_lead_what_lay_on_a_full_disk(tmp_path: Path, small: Path) -> None:
    with SmallDisk(tmp_path, settings=LONG_LAG_TIME) as cluster:
        cluster.create("t", PARTITIONS, 3, min_insync_replicas="2")
        wait_until(lambda: len(logs(small) | logs(tmp_path / "logs-1")) == PARTITIONS, "all logs of the first broker")
        lost = logs(small)
        assert lost
        assert len(lost) < PARTITIONS
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})

        def gone() -> bool:
            for index in range(PARTITIONS):
                producer.produce(
                    "t", os.urandom(20_000), partition=index, on_delivery=lambda error, _: errors.append(error)
                )
            producer.poll(0.05)
            found = cluster.metadata("t").topics["t"].partitions
            return all(1 not in found[index].isrs and found[index].leader != 1 for index in lost)

        wait_until(gone, "others to lead what lies on the full disk", 60)
        assert producer.flush(60) == 0
        assert not any(errors)
        found = cluster.metadata("t").topics["t"].partitions
        assert all(1 in found[index].isrs for index in found.keys() - lost)
        wait_until(lambda: all(offline(cluster.address(each), 1) == lost for each in cluster.nodes), "all to know")

        subprocess.run(["mount", "-o", "remount,size=64m", str(small.parent)], check=True)
        wait_until(
            lambda: all(1 in each.isrs for each in cluster.metadata("t").topics["t"].partitions.values()),
            "the first broker to follow again, without a restart",
            60,
        )
        wait_until(lambda: not any(offline(cluster.address(each), 1) for each in cluster.nodes), "all to know")
        errors.clear()
        for index in range(PARTITIONS):
            producer.produce("t", b"more", partition=index, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        assert errors == [None] * PARTITIONS


def logs(directory: Path) -> set[int]:
    """The partitions of the topic that have a log in a directory."""
    return {int(found.name.rpartition("-")[2]) for found in directory.iterdir() if found.name.startswith("t-")}


def offline(address: str, replica: int) -> set[int]:
    """The partitions of which this replica is offline, as one broker says."""
    with Connection(address) as wire:
        told = wire.ask(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})
    return {each.partition_index for each in told.topics[0].partitions if replica in each.offline_replicas}
