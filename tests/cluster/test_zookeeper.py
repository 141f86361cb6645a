"""Three brokers over a real ZooKeeper: sessions that end, a store that is away, a quick restart."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.support.clusters import Cluster
from tests.support.senders import Sender, everything
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT = {"zookeeper.session.timeout.ms": "4000"}
LONGEST_MS = 120_000
"""Longer than anything is waited for."""
LONG = {"zookeeper.session.timeout.ms": str(LONGEST_MS)}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), longest_session_ms=LONGEST_MS) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[Cluster]:
    chroot = f"{zookeeper.connect}/{uuid.uuid4().hex}"
    with Cluster(tmp_path_factory.mktemp("cluster"), 3, SHORT, zookeeper=chroot) as found:
        yield found


def test_a_broker_whose_session_ended_leads_no_more_until_it_is_registered(cluster: Cluster) -> None:
    cluster.create("expires", 1, 3, min_insync_replicas="2")
    leader = cluster.leader("expires")
    sender = Sender(cluster, "expires")
    sender.send(100)
    sender.finish()
    cluster.nodes[leader].freeze()
    try:
        cluster.leader("expires", other_than=leader)
        sender.send(100)
        sender.finish()
    finally:
        cluster.nodes[leader].thaw()
    cluster.nodes[leader].wait_for_output("The session with the metadata store has expired")
    cluster.wait_for_isr("expires", {1, 2, 3})
    assert not sender.errors
    assert everything(cluster, "expires", 200) == list(range(200))


def test_a_quick_restart_replaces_its_own_registration(cluster: Cluster) -> None:
    cluster.create("quick", 1, 3)
    controller = cluster.controller()
    cluster.nodes[controller].kill()
    cluster.start(controller)
    wait_until(lambda: len(cluster.metadata().brokers) == 3, "all brokers to be known")
    cluster.wait_for_isr("quick", {1, 2, 3})


def test_a_quick_restart_under_another_address_does_not_take_itself_for_another_broker(
    tmp_path: Path, zookeeper: ZooKeeper
) -> None:
    """Nobody else is there to find it dead, and what it finds of itself answers: it listens there again."""
    chroot = f"{zookeeper.connect}/{uuid.uuid4().hex}"
    with Cluster(tmp_path, 1, LONG, zookeeper=chroot) as alone:
        alone.nodes[1].kill()
        port = alone.address(1).rpartition(":")[2]
        alone.start(1, settings={"advertised.listeners": f"PLAINTEXT://localhost:{port}"})
        assert alone.metadata().brokers[1].host == "localhost"


def test_leaders_go_on_while_zookeeper_is_away(cluster: Cluster, zookeeper: ZooKeeper) -> None:
    cluster.create("alone", 1, 3, min_insync_replicas="2")
    sender = Sender(cluster, "alone")
    sender.send(10)
    sender.finish()
    zookeeper.freeze()
    try:
        sender.send(500)
        sender.finish()
    finally:
        zookeeper.thaw()
    assert len(sender.acknowledged) == 510
    wait_until(lambda: cluster.controller() > 0, "a controller")
    cluster.wait_for_isr("alone", {1, 2, 3})
    cluster.create("later", 1, 3)


def test_a_killed_broker_is_replaced_long_before_its_session_times_out(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper
) -> None:
    chroot = f"{zookeeper.connect}/{uuid.uuid4().hex}"
    with Cluster(tmp_path_factory.mktemp("slow"), 3, LONG, zookeeper=chroot) as slow:
        slow.create("lives", 3, 3)
        controller = slow.controller()
        other = next(each for each in slow.nodes if each != controller)
        index = next(each for each in range(3) if slow.leader("lives", each) == other)
        slow.nodes[other].kill()
        assert slow.leader("lives", index, other_than=other) != other
        slow.start(other)
        wait_until(lambda: len(slow.metadata().brokers) == 3, "the broker to be back")
        slow.nodes[controller].kill()
        wait_until(lambda: slow.controller() not in (controller, -1), "another controller")
