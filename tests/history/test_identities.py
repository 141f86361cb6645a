"""Two brokers with one id: the second is refused, and the first does not notice."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.clusters import Cluster, Node
from tests.support.processes import free_port
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_the_second_of_two_brokers_with_one_id_is_refused(tmp_path: Path, store: str) -> None:
    with ExitStack() as stack:
        settings = {"metadata.store": str(tmp_path / "metadata")}
        connect = None
        if store == "zookeeper":
            connect = stack.enter_context(ZooKeeper(tmp_path)).connect
            settings = {"zookeeper.connect": connect}
        settings["zookeeper.session.timeout.ms"] = "10000"
        cluster = stack.enter_context(Cluster(tmp_path, 2, settings, connect))
        cluster.create("known", 2, 2)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        second = stack.enter_context(Node(elsewhere, 1, f"127.0.0.1:{free_port()}", settings))
        assert second.wait() != 0
        assert "a broker with id 1 is already up" in second.output()
        assert all(node.alive for node in cluster.nodes.values())
        found = cluster.metadata("known")
        assert {broker.id: broker.port for broker in found.brokers.values()} == {
            broker: int(cluster.address(broker).rpartition(":")[2]) for broker in (1, 2)
        }
        assert {each.leader for each in found.topics["known"].partitions.values()} == {1, 2}
