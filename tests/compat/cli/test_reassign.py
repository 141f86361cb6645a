"""`barnabas reassign-partitions` and `leader-election` beside Kafka's tools, on an Apache Kafka of three brokers.

What our own brokers do too is tested on three of them in the same way.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import java
from tests.support.clusters import LONG_LAG_TIME, Cluster, Node
from tests.support.kafka_cluster import VERSION, KafkaCluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli

THROTTLE = 10_000
"""Bytes a second: slow enough that a move is seen under way."""
LARGE = 20_000_000
"""Bytes that then take minutes: a fetch takes a megabyte, and the next one waits until that is eleven seconds ago."""


class OwnCluster(Cluster):
    """Three brokers of Barnabas that do what they are told, and nothing by themselves."""

    def __init__(self, folder: Path) -> None:
        own = {"auto.leader.rebalance.enable": "false", "auto.create.topics.enable": "false"}
        super().__init__(folder, settings={**LONG_LAG_TIME, **own})

    def start(self, broker_id: int, *, wait: bool = True, settings: Mapping[str, str] | None = None) -> Node:
        directories = ",".join(map(str, self.directories(broker_id)))
        return super().start(broker_id, wait=wait, settings={"log.dirs": directories, **(settings or {})})

    def directories(self, broker_id: int) -> list[Path]:
        return [self.folder / f"disk-{number}-of-{broker_id}" for number in (1, 2)]

    def stop(self, broker: int) -> None:
        self.nodes[broker].stop()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    with OwnCluster(tmp_path_factory.mktemp("own")) as cluster:
        yield cluster


class Scene:
    """A topic whose partitions lie where the test wants them, and both tools."""

    def __init__(self, cluster: KafkaCluster | OwnCluster, cli: Cli, folder: Path) -> None:
        self.cluster = cluster
        self._cli = cli
        self._folder = folder
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.topic = f"t-{uuid.uuid4().hex[:8]}"

    def create(self, *replicas: list[int], size: int = 0) -> None:
        """Make the topic, with so many bytes in each partition."""
        topic = NewTopic(self.topic, len(replicas), replica_assignment=list(replicas))
        self._admin.create_topics([topic])[self.topic].result(30)
        wait_until(lambda: self.replicas() == list(replicas), "the topic")
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for partition in range(len(replicas)):
            for _ in range(size // 1000):
                producer.produce(self.topic, b"x" * 1000, partition=partition)
        assert producer.flush(60) == 0

    def delete(self) -> None:
        """With the topic, moves of its partitions end."""
        self._admin.delete_topics([self.topic])[self.topic].result(30)

    def replicas(self) -> list[list[int]]:
        return [list(partition.replicas) for _, partition in sorted(self._partitions().items())]

    def leaders(self) -> list[int]:
        return [partition.leader for _, partition in sorted(self._partitions().items())]

    def _partitions(self) -> dict[int, Any]:
        return self._admin.list_topics(self.topic, timeout=30).topics[self.topic].partitions

    def plan(self, *replicas: list[int], directories: list[list[str]] | None = None) -> Path:
        """A file that sends the topic's partitions there."""
        partitions: list[dict[str, object]] = [
            {"topic": self.topic, "partition": number, "replicas": brokers} for number, brokers in enumerate(replicas)
        ]
        for one, paths in zip(partitions, directories or [], strict=False):
            one["log_dirs"] = paths
        return self._write({"version": 1, "partitions": partitions})

    def topics(self) -> Path:
        return self._write({"version": 1, "topics": [{"topic": self.topic}]})

    def _write(self, document: object) -> Path:
        file = self._folder / f"{uuid.uuid4().hex}.json"
        file.write_text(json.dumps(document))
        return file

    def ours(self, tool: str, *words: object) -> CompletedProcess[str]:
        return self._cli(tool, "--bootstrap-server", self.cluster.bootstrap, *words)

    def done(self, tool: str, *words: object) -> str:
        done = self.ours(tool, *words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def theirs(self, tool: str, *words: object) -> str:
        return java.tool(VERSION, tool, "--bootstrap-server", self.cluster.bootstrap, *map(str, words))

    def reassign(self, *words: object) -> str:
        return self.done("reassign-partitions", *words)

    def settings(self, *words: object) -> dict[str, str]:
        (found,) = json.loads(self.done("configs", "--describe", "--json", *words))
        return {setting["name"]: setting["value"] for setting in found["configs"]}


@pytest.fixture(params=["kafka", "own"])
def scene(request: pytest.FixtureRequest, cli: Cli, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(request.getfixturevalue(request.param), cli, tmp_path)
    yield scene
    scene.delete()


@pytest.fixture
def kafka_scene(kafka: KafkaCluster, cli: Cli, tmp_path: Path) -> Iterator[Scene]:
    """For what only Kafka does: moves between directories."""
    scene = Scene(kafka, cli, tmp_path)
    yield scene
    scene.delete()


def test_a_plan_is_generated(scene: Scene) -> None:
    scene.create([1, 2], [2, 1], [1, 2])
    words = ("--generate", "--topics-to-move-json-file", scene.topics(), "--broker-list", "2,3")
    ours = scene.reassign(*words).splitlines()
    theirs = scene.theirs("reassign-partitions", *words).splitlines()
    assert ours[:4] == theirs[:4]
    assert len(ours) == len(theirs) == 5
    proposed, expected = json.loads(ours[4]), json.loads(theirs[4])
    for plan in (proposed, expected):
        leaders = [one["replicas"][0] for one in plan["partitions"]]
        assert {leaders.count(2), leaders.count(3)} == {1, 2}
        for one in plan["partitions"]:
            assert set(one.pop("replicas")) == {2, 3}
    assert proposed == expected


def test_a_plan_is_executed_and_verified(scene: Scene) -> None:
    """Away by our tool, back by Kafka's; each says the same of what the other did."""
    scene.create([1], [1], size=100_000)
    away, back = scene.plan([2], [3]), scene.plan([1], [1])
    ours = scene.reassign("--execute", "--reassignment-json-file", away, "--throttle", 10_000_000)
    assert f"Successfully started partition reassignments for {scene.topic}-0,{scene.topic}-1\n" in ours
    assert "The inter-broker throttle limit was set to 10000000 B/s\n" in ours
    assert scene.settings("--broker", 1)["leader.replication.throttled.rate"] == "10000000"
    assert scene.settings("--topic", scene.topic) == {
        "leader.replication.throttled.replicas": "0:1,1:1",
        "follower.replication.throttled.replicas": "0:2,1:3",
    }
    wait_until(lambda: scene.replicas() == [[2], [3]], "the partitions to move")
    verify = ("--verify", "--reassignment-json-file", away)
    verified = scene.reassign(*verify)
    assert verified == (
        f"Status of partition reassignment:\nReassignment of partition {scene.topic}-0 is completed.\n"
        f"Reassignment of partition {scene.topic}-1 is completed.\n\n"
        f"Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic {scene.topic}\n"
    )
    assert scene.theirs("reassign-partitions", *verify) == verified
    assert scene.settings("--topic", scene.topic) == {}
    assert scene.settings("--broker", 1) == {}

    theirs = scene.theirs(
        "reassign-partitions", "--execute", "--reassignment-json-file", back, "--throttle", 10_000_000
    )
    pattern = re.compile(r"Current partition replica assignment\n\n.*\n\nSave this.*during rollback\n")
    assert pattern.match(ours)
    assert pattern.match(theirs)
    assert pattern.sub("", ours) == pattern.sub("", theirs)
    wait_until(lambda: scene.replicas() == [[1], [1]], "the partitions to move back")
    states = json.loads(scene.reassign("--verify", "--reassignment-json-file", back, "--json"))
    assert [(one["moving"], one["replicas"]) for one in states["partitions"]] == [(False, [1]), (False, [1])]
    assert scene.settings("--topic", scene.topic) == {}
    gone = scene.reassign("--verify", "--reassignment-json-file", away, "--preserve-throttles")
    assert f"There is no active reassignment of partition {scene.topic}-0, but replica set is 1 rather than 2." in gone
    assert "Clearing" not in gone


def test_a_move_is_listed_and_cancelled(scene: Scene) -> None:
    scene.create([1], size=LARGE)
    plan = scene.plan([2])
    scene.reassign("--execute", "--reassignment-json-file", plan, "--throttle", THROTTLE)
    listed = scene.reassign("--list")
    assert listed == (f"Current partition reassignments:\n{scene.topic}-0: replicas: 2,1. adding: 2. removing: 1.\n")
    assert scene.theirs("reassign-partitions", "--list") == listed
    assert json.loads(scene.reassign("--list", "--json")) == [
        {"topic": scene.topic, "partition": 0, "replicas": [2, 1], "adding": [2], "removing": [1]}
    ]
    verify = ("--verify", "--reassignment-json-file", plan)
    verified = scene.reassign(*verify)
    assert f"Reassignment of partition {scene.topic}-0 is still in progress.\n" in verified
    assert "Clearing" not in verified
    assert scene.theirs("reassign-partitions", *verify) == verified
    refused = scene.ours("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    assert refused.returncode == 1
    assert "Use --additional to override this" in refused.stderr
    again = ("--execute", "--additional", "--reassignment-json-file", scene.plan([3]), "--throttle", THROTTLE)
    scene.reassign(*again)
    # A second move begins, in KRaft, where the first one has come to; in ZooKeeper mode, and here, where that began.
    origin = [1, 2] if isinstance(scene.cluster, KafkaCluster) else [1]
    leaving = ",".join(map(str, origin))
    assert f" adding: 3. removing: {leaving}.\n" in scene.reassign("--list")
    assert scene.settings("--topic", scene.topic)["follower.replication.throttled.replicas"] == "0:3"
    cancelled = scene.reassign("--cancel", "--reassignment-json-file", plan)
    assert cancelled == (
        f"Successfully cancelled partition reassignment for: {scene.topic}-0\n"
        "None of the specified partition moves are active.\n"
        f"Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic {scene.topic}\n"
    )
    assert scene.reassign("--list") == scene.theirs("reassign-partitions", "--list")
    assert scene.reassign("--list") == "No partition reassignments found.\n"
    wait_until(lambda: scene.replicas() == [origin], "the move to be undone")
    assert "None of the specified partition reassignments are active.\n" in scene.reassign(
        "--cancel", "--reassignment-json-file", plan
    )


def test_directories(kafka: KafkaCluster, kafka_scene: Scene) -> None:
    scene = kafka_scene
    scene.create([1], size=10_000)
    paths = kafka.directories(1)
    first = json.loads(
        scene.reassign("--generate", "--topics-to-move-json-file", scene.topics(), "--broker-list", "1").splitlines()[1]
    )["partitions"][0]["log_dirs"][0]
    (other,) = set(paths) - {first}
    plan = scene.plan([1], directories=[[other]])
    told = scene.reassign("--execute", "--reassignment-json-file", plan, "--replica-alter-log-dirs-throttle", 1_000_000)
    assert "The replica-alter-dir throttle limit was set to 1000000 B/s\n" in told
    assert f"Successfully started moving log directory to {other} for replica {scene.topic}-0 with broker 1\n" in told
    done = f"Reassignment of replica {scene.topic}-0-1 completed successfully.\n"
    verify = ("--verify", "--reassignment-json-file", plan)
    verified = wait_until(
        lambda: told if done in (told := scene.reassign(*verify)) else None, "the replica in the other directory"
    )
    assert scene.theirs("reassign-partitions", *verify) == verified
    refused = scene.ours(
        "reassign-partitions", "--execute", "--reassignment-json-file", scene.plan([1], directories=[["/nowhere"]])
    )
    assert refused.returncode == 1
    assert "LOG_DIR_NOT_FOUND" in refused.stderr


def test_a_new_replica_is_made_in_its_directory(own: OwnCluster, cli: Cli, tmp_path: Path) -> None:
    scene = Scene(own, cli, tmp_path)
    scene.create([1], [1], size=1000)
    first, second = map(str, own.directories(2))
    plan = scene.plan([2], [2], directories=[[first], [first]])
    told = scene.reassign("--execute", "--reassignment-json-file", plan)
    for partition in (0, 1):
        assert (
            f"Successfully started moving log directory to {first} for replica {scene.topic}-{partition} "
            "with broker 2\n"
        ) in told
    wait_until(lambda: scene.replicas() == [[2], [2]], "the partitions to move")
    verified = scene.reassign("--verify", "--reassignment-json-file", plan)
    for partition in (0, 1):
        assert f"Reassignment of replica {scene.topic}-{partition}-2 completed successfully.\n" in verified
    moved = scene.plan([2], [2], directories=[[second], [second]])
    refused = scene.ours("reassign-partitions", "--execute", "--reassignment-json-file", moved)
    assert refused.returncode == 1
    assert "these brokers do not move replicas between directories (INVALID_REQUEST)" in refused.stderr
    nowhere = scene.plan([3], [3], directories=[["/nowhere"], ["/nowhere"]])
    refused = scene.ours("reassign-partitions", "--execute", "--reassignment-json-file", nowhere)
    assert refused.returncode == 1
    assert "the broker has no such directory in log.dirs (LOG_DIR_NOT_FOUND)" in refused.stderr
    assert scene.replicas() == [[2], [2]]
    scene.delete()


@pytest.mark.parametrize(
    ("replicas", "complaint"),
    [([9], "Unknown broker id 9; there are 1, 2, 3."), ([1, 1], "has broker 1 more than once"), ([], "no replicas")],
)
def test_plans_that_cannot_be(scene: Scene, replicas: list[int], complaint: str) -> None:
    scene.create([1])
    refused = scene.ours("reassign-partitions", "--execute", "--reassignment-json-file", scene.plan(replicas))
    assert refused.returncode == 1
    assert complaint in refused.stderr


def test_a_replication_factor_that_must_not_change(scene: Scene) -> None:
    scene.create([1])
    words = ("--execute", "--reassignment-json-file", scene.plan([1, 2]), "--disallow-replication-factor-change")
    refused = scene.ours("reassign-partitions", *words)
    assert refused.returncode == 1
    assert f"Error reassigning partition(s):\n{scene.topic}-0: The replication factor is changed" in refused.stderr


def test_partitions_that_are_not_there(scene: Scene) -> None:
    scene.create([1])
    plan = scene.plan([1], [2])
    refused = scene.ours("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    assert (refused.returncode, refused.stderr) == (1, f"Error: Unable to find partition: {scene.topic}-1\n")
    assert "replica set is  rather than 2" in scene.reassign(
        "--verify", "--reassignment-json-file", plan, "--preserve-throttles"
    )


def test_preferred_leaders(scene: Scene) -> None:
    """Replicas in another order: the leader stays until there is an election."""
    scene.create([1, 2], [1, 2])
    scene.reassign("--execute", "--reassignment-json-file", scene.plan([2, 1], [2, 1]))
    wait_until(lambda: scene.replicas() == [[2, 1], [2, 1]], "the new order")
    assert scene.leaders() == [1, 1]
    one = ("--election-type", "preferred", "--topic", scene.topic, "--partition", "0")
    elected = scene.done("leader-election", *one)
    assert elected == f"Successfully completed leader election (PREFERRED) for partitions {scene.topic}-0\n"
    needless = scene.done("leader-election", *one)
    assert needless == f"Valid replica already elected for partitions {scene.topic}-0\n"
    assert scene.theirs("leader-election", *one) == needless
    everything = scene.done("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert everything == f"Successfully completed leader election (PREFERRED) for partitions {scene.topic}-1\n"
    wait_until(lambda: scene.leaders() == [2, 2], "the new leaders")
    none = scene.ours("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "No partition needs an election.\n")


def test_elections_that_fail(scene: Scene, unused_topic: str, tmp_path: Path) -> None:
    scene.create([1])
    file = tmp_path / "partitions.json"
    listed = [{"topic": scene.topic, "partition": 0}, {"topic": unused_topic, "partition": 7}]
    file.write_text(json.dumps({"partitions": listed}))
    words = ("--election-type", "UNCLEAN", "--path-to-json-file", file)
    failed = scene.ours("leader-election", *words)
    assert (failed.returncode, failed.stderr) == (1, "Error: 1 replica(s) could not be elected\n")
    lines = failed.stdout.splitlines()
    assert lines[0] == f"Valid replica already elected for partitions {scene.topic}-0"
    assert lines[1].startswith(f"Error completing leader election (UNCLEAN) for partition: {unused_topic}-7: ")
    told = json.loads(scene.ours("leader-election", *words, "--json").stdout)
    assert told["notNeeded"] == listed[:1]
    assert [(one["topic"], one["partition"]) for one in told["failed"]] == [(unused_topic, 7)]


def test_an_election_that_nobody_in_sync_can_win(scene: Scene) -> None:
    """The only replica is gone."""
    scene.create([3])
    scene.cluster.stop(3)
    try:
        wait_until(lambda: scene.leaders() == [-1], "nobody to lead")
        words = ("--topic", scene.topic, "--partition", "0")
        failed = scene.ours("leader-election", "--election-type", "unclean", *words)
        assert failed.returncode == 1
        assert f"Error completing leader election (UNCLEAN) for partition: {scene.topic}-0: " in failed.stdout
    finally:
        scene.cluster.start(3)


def test_a_leader_out_of_sync(own: OwnCluster, cli: Cli, tmp_path: Path) -> None:
    """Nobody leads once the only replica in sync is gone; an unclean election lets the other one lead."""
    scene = Scene(own, cli, tmp_path)
    scene.create([2, 3])
    own.stop(3)
    try:
        own.wait_for_isr(scene.topic, {2})
        own.stop(2)
        own.start(3)
        wait_until(lambda: scene.leaders() == [-1], "nobody to lead")
        words = ("--election-type", "unclean", "--topic", scene.topic, "--partition", "0")
        elected = scene.done("leader-election", *words)
        assert elected == f"Successfully completed leader election (UNCLEAN) for partitions {scene.topic}-0\n"
        wait_until(lambda: scene.leaders() == [3], "the replica that was not in sync to lead")
    finally:
        for broker in (2, 3):
            if not own.nodes[broker].alive:
                own.start(broker)
    scene.delete()
