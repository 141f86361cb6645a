"""Apache Kafka's own tools on a cluster see its replicas, elect its leaders, move its partitions, compare its logs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support import java
from tests.support.clusters import LONG_LAG_TIME, Cluster
from tests.support.processes import Process
from tests.support.senders import Sender, everything
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = "4.3.0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {**LONG_LAG_TIME, "offsets.topic.num.partitions": "1", "auto.leader.rebalance.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("java"), settings=settings) as found:
        yield found


def run(cluster: Cluster, name: str, *words: object) -> str:
    """Run `kafka-<name>.sh`."""
    return java.tool(VERSION, name, "--bootstrap-server", cluster.bootstrap, *map(str, words))


def partitions(described: str) -> dict[int, tuple[int, list[int], set[int]]]:
    """Leader, replicas and ISR of each partition that kafka-topics has described."""
    found = re.findall(r"Partition: (\d+)\tLeader: (\S+)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)", described)
    return {
        int(index): (int(leader), [*map(int, replicas.split(","))], {*map(int, isr.split(","))})
        for index, leader, replicas, isr in found
    }


def test_kafka_topics_shows_replicas_and_kafka_leader_election_gives_leaderships_back(cluster: Cluster) -> None:
    topic = ("--topic", "seen")
    run(cluster, "topics", "--create", *topic, "--partitions", 3, "--replication-factor", 3)
    for number in range(3):
        cluster.wait_for_isr("seen", {1, 2, 3}, number)
    found = partitions(run(cluster, "topics", "--describe", *topic))
    assert {leader for leader, _, _ in found.values()} == {1, 2, 3}
    assert all(isr == {1, 2, 3} and leader == replicas[0] for leader, replicas, isr in found.values())
    victim = next(broker for broker in cluster.nodes if broker != cluster.controller())
    index = next(index for index, (leader, _, _) in found.items() if leader == victim)
    cluster.nodes[victim].kill()
    cluster.leader("seen", index, other_than=victim)
    for number in range(3):
        cluster.wait_for_isr("seen", {1, 2, 3} - {victim}, number)
    lacking = partitions(run(cluster, "topics", "--describe", "--under-replicated-partitions", *topic))
    assert {number: isr for number, (_, _, isr) in lacking.items()} == dict.fromkeys(range(3), {1, 2, 3} - {victim})
    cluster.start(victim)
    for number in range(3):
        cluster.wait_for_isr("seen", {1, 2, 3}, number)
    elected = run(cluster, "leader-election", "--election-type", "PREFERRED", "--all-topic-partitions")
    assert f"seen-{index}" in elected
    wait_until(lambda: cluster.leader("seen", index) == victim, "the preferred leader")
    assert partitions(run(cluster, "topics", "--describe", *topic)) == found


def test_kafka_reassign_partitions_moves_a_partition(cluster: Cluster, tmp_path: Path) -> None:
    run(cluster, "topics", "--create", "--topic", "moved", "--replica-assignment", "1:2")
    sender = Sender(cluster, "moved")
    sender.send(500)
    sender.finish()
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [3, 2]}]}))
    words = ("--reassignment-json-file", plan)
    executed = run(cluster, "reassign-partitions", *words, "--execute", "--throttle", 10_000_000)
    assert "Successfully started partition reassignment for moved-0" in executed
    wait_until(lambda: list(cluster.partition("moved").replicas) == [3, 2], "the move")
    verified = run(cluster, "reassign-partitions", *words, "--verify")
    assert "Reassignment of partition moved-0 is completed." in verified
    assert "Clearing topic-level throttles on topic moved" in verified
    sender.send(500)
    sender.finish()
    assert everything(cluster, "moved", 1000) == list(range(1000))


def test_kafka_replica_verification_finds_no_difference_after_a_leader_was_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """From the first record on (`--time -2`): by itself the tool compares only what comes after its start."""
    cluster.create("compared", 1, 3, min_insync_replicas="2")
    sender = Sender(cluster, "compared")
    sender.send(1000)
    sender.finish()
    words = [*java.command(VERSION, java.TOOLS["replica-verification"]), "--broker-list", cluster.bootstrap]
    words += ["--topics-include", "compared", "--time", "-2", "--report-interval-ms", "300"]
    with Process("kafka-replica-verification", words, tmp_path / "verification.log") as tool:
        tool.wait_for_output(r"max lag is 0 for partition compared-0 at offset 1000 among 1 partitions")
        leader = cluster.leader("compared")
        cluster.nodes[leader].kill()
        sender.send(500)
        sender.finish()
        cluster.start(leader)
        tool.wait_for_output(r"max lag is 0 for partition compared-0 at offset 1500 among 1 partitions")
        assert not re.findall(r".*(?:doesn't match|unmatched).*", tool.output())
