"""A broker whose disk is full, and a follower that comes back to a leader whose log begins after its own end."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from tests.history.checker import check
from tests.history.faults import Stage
from tests.history.workload import Workload
from tests.support.clusters import PATIENT, Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, each with a small disk of its own."""
    if os.geteuid() != 0:
        raise AssertionError("full disks need root, to mount small ones: run these tests as root")
    folder = tmp_path_factory.mktemp("disks")
    disks = [folder / f"data-{broker}" for broker in (1, 2, 3)]
    mounted: list[Path] = []
    try:
        for disk in disks:
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)], check=True)
            mounted.append(disk)
        with Cluster(folder, settings={"offsets.topic.num.partitions": "1"}) as found:
            yield found
    finally:
        for disk in mounted:
            subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on a disk."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        while (room := os.statvfs(disk)).f_bavail:
            with suppress(OSError):  # the broker has taken of it meanwhile
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size + room.f_bavail * room.f_frsize)
    return filler


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_broker_with_a_full_disk_is_left_behind_and_comes_back(cluster: Cluster, role: str) -> None:
    topic = f"full-{role}"
    cluster.create(topic, 1, 3, min_insync_replicas="2")
    with Workload(cluster.bootstrap, topic, 1, producers=1, members=0) as workload:
        wait_until(lambda: workload.acknowledged > 50, "the first records to be acknowledged")
        leader = cluster.leader(topic)
        victim = leader if role == "leader" else next(broker for broker in cluster.nodes if broker != leader)
        filler = fill(cluster.nodes[victim].data)
        cluster.wait_for_isr(topic, set(cluster.nodes) - {victim})
        acknowledged = workload.acknowledged
        wait_until(lambda: workload.acknowledged > acknowledged + 50, "acknowledgements by the others")
        filler.unlink()
        cluster.nodes[victim].kill()
        cluster.start(victim)
        Stage(cluster, topic).settle(1)
        assert check(workload.finish()) == []


def test_a_follower_returns_to_a_log_that_begins_after_its_end(cluster: Cluster) -> None:
    topic = "moved-on"
    cluster.create(topic, 1, 3, min_insync_replicas="2")
    with Workload(cluster.bootstrap, topic, 1, producers=1, members=0) as workload:
        wait_until(lambda: workload.acknowledged > 50, "the first records to be acknowledged")
        leader = cluster.leader(topic)
        follower = next(broker for broker in cluster.nodes if broker not in (leader, cluster.controller()))
        cluster.nodes[follower].kill()
        cluster.wait_for_isr(topic, set(cluster.nodes) - {follower})
        acknowledged = workload.acknowledged
        wait_until(lambda: workload.acknowledged > acknowledged + 100, "records that the follower does not have")
        start = acknowledged + 50
        place = TopicPartition(topic, 0, start)
        assert cluster.admin.delete_records([place], **PATIENT)[place].result(60).low_watermark == start
        cluster.start(follower)
        Stage(cluster, topic).settle(1)
        history = workload.finish()
    assert min(record.offset for record in history.final) == start
    assert max(record.offset for record in history.final) == len(history.sends) - 1
    stale = cluster.nodes[follower].data / f"{topic}-0"
    assert min(int(segment.stem) for segment in stale.glob("*.log")) == start
