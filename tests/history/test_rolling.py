"""A cluster under load is restarted broker by broker, gets a broker more, and loses one: nobody notices."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.history.checker import Fate, check
from tests.history.faults import Stage
from tests.history.workload import Workload
from tests.support.clusters import Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "rolling"
PARTITIONS = 3


@pytest.mark.timeout(600)
def test_no_request_fails_while_brokers_are_restarted_added_and_removed(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with Cluster(tmp_path, settings=settings) as cluster:
        cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas="2")
        stage = Stage(cluster, TOPIC)
        with Workload(cluster.bootstrap, TOPIC, PARTITIONS, transactional=1, members=1) as workload:
            wait_until(lambda: workload.acknowledged > 100, "the first records to be acknowledged")
            for broker in list(cluster.nodes):
                assert cluster.nodes[broker].stop() == 0
                cluster.start(broker)
                stage.settle(PARTITIONS)
            cluster.add()
            wait_until(lambda: len(cluster.metadata().brokers) == 4, "the new broker to be known")
            move(cluster, tmp_path, sorted({*cluster.nodes} - {1}))
            removed = cluster.nodes.pop(1)
            assert removed.stop() == 0
            stage.settle(PARTITIONS)
            acknowledged = workload.acknowledged
            wait_until(lambda: workload.acknowledged > acknowledged + 100, "more records to be acknowledged")
            history = workload.finish()
    assert check(history) == []
    assert workload.fatal == []
    assert Fate.UNKNOWN not in {send.fate for send in history.sends}


def move(cluster: Cluster, folder: Path, brokers: list[int]) -> None:
    """Move all partitions to these brokers, with our own tool."""
    moved, plan = folder / "topics.json", folder / "plan.json"
    named = [{"topic": name} for name in cluster.metadata().topics]
    moved.write_text(json.dumps({"version": 1, "topics": named}))
    words = [sys.executable, "-m", "barnabas.cli.main", "reassign-partitions", "--bootstrap-server", cluster.bootstrap]

    def run(*more: str) -> str:
        return subprocess.run([*words, *more], check=True, capture_output=True, text=True).stdout

    wanted = ",".join(map(str, brokers))
    generated = run("--generate", "--topics-to-move-json-file", str(moved), "--broker-list", wanted)
    plan.write_text(generated.strip().splitlines()[-1])
    run("--execute", "--reassignment-json-file", str(plan), "--throttle", "1000000")

    def arrived() -> bool:
        topics = cluster.metadata().topics.values()
        return all(set(each.replicas) <= set(brokers) for topic in topics for each in topic.partitions.values())

    wait_until(arrived, "all partitions to be moved", 60, every=0.2)
    assert "still in progress" not in run("--verify", "--reassignment-json-file", str(plan))
