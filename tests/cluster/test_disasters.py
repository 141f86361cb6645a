"""What the guide says to do when a disk or ZooKeeper's data is lost: nothing that was acknowledged is lost with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition

from tests.support.clusters import LONG_LAG_TIME, PATIENT, Cluster
from tests.support.senders import Sender, everything
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_broker_that_lost_its_disk_copies_everything(tmp_path: Path, role: str) -> None:
    with Cluster(tmp_path, settings=LONG_LAG_TIME) as cluster:
        cluster.create("kept", 1, 3, min_insync_replicas="2")
        sender = Sender(cluster, "kept")
        sender.send(300)
        sender.finish()
        leader = cluster.leader("kept")
        victim = leader if role == "leader" else next(broker for broker in cluster.nodes if broker != leader)
        cluster.nodes[victim].kill()
        shutil.rmtree(cluster.nodes[victim].data)
        cluster.start(victim)
        cluster.wait_for_isr("kept", {1, 2, 3})
        sender.send(100)
        sender.finish()
        assert sorted(sender.acknowledged) == list(range(400))
        for other in set(cluster.nodes) - {victim}:
            cluster.nodes[other].kill()
        wait_until(lambda: cluster.partition("kept").leader == victim, "the one that had lost everything to lead")
        assert everything(cluster, "kept", 400) == list(range(400))


def test_a_log_that_starts_after_its_new_leaders_end_starts_anew(tmp_path: Path) -> None:
    """After an unclean election the new leader may end before others begin; they are in sync when they have it all."""
    with Cluster(tmp_path, settings=LONG_LAG_TIME) as cluster:
        cluster.create("holes", 1, 2, min_insync_replicas="1")
        place = TopicPartition("holes", 0)
        sender = Sender(cluster, "holes")
        sender.send(50)
        sender.finish()
        ahead = cluster.leader("holes")
        (behind,) = set(cluster.partition("holes").replicas) - {ahead}
        cluster.wait_for_isr("holes", {ahead, behind})
        cluster.nodes[behind].kill()
        sender.send(150)
        sender.finish()
        place.offset = 100
        assert cluster.admin.delete_records([place], **PATIENT)[place].result(60).low_watermark == 100
        cluster.nodes[ahead].kill()
        cluster.start(behind)

        def elected() -> bool:
            with suppress(KafkaException):
                cluster.admin.elect_leaders(ElectionType.UNCLEAN, [place]).result(30)
            return cluster.partition("holes").leader == behind

        wait_until(elected, "the broker that is behind to lead")
        cluster.start(ahead)
        cluster.wait_for_isr("holes", {ahead, behind})
        later = Sender(cluster, "holes")
        later.send(70)
        later.finish()
        assert sorted(later.acknowledged) == list(range(70))
        cluster.nodes[behind].kill()
        cluster.leader("holes", other_than=behind)
        assert everything(cluster, "holes", 120) == [*range(50), *range(70)]


def test_brokers_go_on_with_an_old_copy_of_a_lost_tree(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path) as zookeeper:
        place = f"{zookeeper.connect}/barnabas"
        with Cluster(tmp_path, zookeeper=place) as cluster:
            cluster.create("kept", 1, 3, min_insync_replicas="2")
            backup = tmp_path / "backup.json"
            metadata("export", str(backup), "--zookeeper", place)
            sender = Sender(cluster, "kept")
            sender.send(300)
            sender.finish()
            leader = cluster.leader("kept")
            cluster.nodes[leader].kill()
            cluster.leader("kept", other_than=leader)
            sender.send(100)
            sender.finish()
            cluster.start(leader)
            cluster.wait_for_isr("kept", {1, 2, 3})
            cluster.kill_all()
            port = zookeeper.port
            zookeeper.kill()
            shutil.rmtree(tmp_path / "zookeeper")
            with ZooKeeper(tmp_path, port=port):
                metadata("import", str(backup), "--outdated", "--zookeeper", place)
                for broker in cluster.nodes:
                    cluster.start(broker, wait=False)
                cluster.leader("kept")
                assert everything(cluster, "kept", 400) == list(range(400))
                again = Sender(cluster, "kept")
                again.send(100)
                again.finish()
                assert len(again.acknowledged) == 100
                cluster.wait_for_isr("kept", {1, 2, 3})


def metadata(*words: str) -> None:
    """`barnabas metadata ...`."""
    subprocess.run([sys.executable, "-m", "barnabas.cli.main", "metadata", *words], check=True)
