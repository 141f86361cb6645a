"""Who leads, and where replicas are: elections, moves, a stop that hands over, requests that any broker takes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support import java
from tests.support.clusters import LONG_LAG_TIME, Cluster, Node
from tests.support.senders import Sender, everything
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FETCH, METADATA, API_VERSIONS, CREATE_TOPICS, ELECT_LEADERS = 1, 3, 18, 19, 43
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, UPDATE_FEATURES, DESCRIBE_CLUSTER, UNREGISTER_BROKER = 45, 46, 57, 60, 64
UPGRADE, DOWNGRADE = 1, 2

HALF_A_MINUTE = timedelta(seconds=30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {**LONG_LAG_TIME, "auto.leader.rebalance.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("cluster"), 3, settings) as found:
        yield found


def ask(cluster: Cluster, key: int, version: int, values: dict[str, Any], *, broker: int | None = None) -> Any:
    """Ask a broker, by default one that is not the controller."""
    if broker is None:
        broker = next(each for each in cluster.nodes if each != cluster.controller())
    with Connection(cluster.address(broker)) as wire:
        return wire.ask(key, version, values)


def test_any_broker_hands_requests_on_to_the_controller(cluster: Cluster) -> None:
    topics = [{"name": "handed-on", "num_partitions": 3, "replication_factor": 3, "assignments": [], "configs": []}]
    response = ask(cluster, CREATE_TOPICS, 7, {"topics": topics, "timeout": HALF_A_MINUTE, "validate_only": False})
    assert response.topics[0].error_code is ErrorCode.none
    wait_until(lambda: "handed-on" in cluster.metadata().topics, "the topic to be known")
    again = ask(cluster, CREATE_TOPICS, 2, {"topics": topics, "timeout": HALF_A_MINUTE, "validate_only": False})
    assert again.topics[0].error_code is ErrorCode.topic_already_exists


def test_levels_of_features_reach_every_broker(cluster: Cluster) -> None:
    def change(level: int, direction: int) -> None:
        updates = [{"feature": "transaction.version", "max_version_level": level, "upgrade_type": direction}]
        response = ask(cluster, UPDATE_FEATURES, 2, {"timeout": HALF_A_MINUTE, "feature_updates": updates})
        assert response.error_code is ErrorCode.none, response
        wait_until(lambda: {level_of(broker) for broker in cluster.nodes} == {level}, f"level {level} at every broker")

    def level_of(broker: int) -> int | None:
        software = {"client_software_name": "test", "client_software_version": "1"}
        response = ask(cluster, API_VERSIONS, 4, software, broker=broker)
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        return levels.get("transaction.version")

    assert {level_of(broker) for broker in cluster.nodes} == {2}
    change(1, DOWNGRADE)
    change(2, UPGRADE)


def test_a_broker_that_stops_hands_over_what_it_leads(cluster: Cluster) -> None:
    controller = cluster.controller()
    cluster.create("handed-over", 3, 3, min_insync_replicas="2")
    leaders = [cluster.leader("handed-over", each) for each in range(3)]
    index, leader = next((each, found) for each, found in enumerate(leaders) if found != controller)
    sender = Sender(cluster, "handed-over", index)
    sender.send(100)
    sender.finish()
    assert cluster.nodes[leader].stop() == 0
    assert "The leadership of all partitions moved to other brokers" in cluster.nodes[leader].output(), (
        "it goes, and they find out"
    )
    told = ask(cluster, METADATA, 9, {"topics": [{"name": "handed-over"}]}, broker=controller).topics[0].partitions
    assert {each.leader_id for each in told} == {1, 2, 3} - {leader}, "decided before it had stopped"
    sender.send(100)
    sender.finish()
    cluster.start(leader)
    cluster.wait_for_isr("handed-over", {1, 2, 3}, index)
    assert not sender.errors
    assert everything(cluster, "handed-over", 200, index) == list(range(200))


def test_the_preferred_leader_is_elected_on_demand(cluster: Cluster) -> None:
    cluster.create("preferred", 1, 3)
    first = cluster.partition("preferred").replicas[0]
    cluster.nodes[first].stop()
    cluster.leader("preferred", other_than=first)
    cluster.start(first)
    cluster.wait_for_isr("preferred", {1, 2, 3})
    assert cluster.leader("preferred") != first

    def elected(asked: dict[str, Any]) -> ErrorCode:
        (result,) = ask(cluster, ELECT_LEADERS, 2, asked).replica_election_results
        code: ErrorCode = result.partition_result[0].error_code
        return code

    named = [{"topic": "preferred", "partitions": [0]}]
    asked = {"election_type": 0, "topic_partitions": named, "timeout": HALF_A_MINUTE}
    assert elected(asked) is ErrorCode.none
    wait_until(lambda: cluster.leader("preferred") == first, "the preferred leader")
    assert elected(asked) is ErrorCode.election_not_needed


def test_leaderships_go_back_by_themselves(tmp_path: Path) -> None:
    settings = {"leader.imbalance.check.interval.seconds": "1", "leader.imbalance.per.broker.percentage": "0"}
    with Cluster(tmp_path, 2, settings) as cluster:
        cluster.create("balanced", 2, 2)
        preferred = {index: cluster.partition("balanced", index).replicas[0] for index in (0, 1)}
        assert set(preferred.values()) == {1, 2}
        away = next(each for each in (1, 2) if each != cluster.controller())
        assert cluster.nodes[away].stop() == 0
        wait_until(lambda: {cluster.leader("balanced", index) for index in (0, 1)} == {3 - away}, "the other to lead")
        cluster.start(away)
        wait_until(
            lambda: {index: cluster.leader("balanced", index) for index in (0, 1)} == preferred, "balanced leaders"
        )


def test_a_partition_moves_with_all_its_records(cluster: Cluster) -> None:
    cluster.create("moves", 1, 1)
    sender = Sender(cluster, "moves")
    sender.send(500)
    sender.finish()
    (origin,) = cluster.partition("moves").replicas
    target = [each for each in cluster.nodes if each != origin]
    moved = [{"name": "moves", "partitions": [{"partition_index": 0, "replicas": target}]}]
    response = ask(cluster, ALTER_REASSIGNMENTS, 1, {"topics": moved, "timeout": HALF_A_MINUTE})
    assert response.responses[0].partitions[0].error_code is ErrorCode.none
    wait_until(lambda: set(cluster.partition("moves").replicas) == set(target), "the partition to be moved")
    cluster.wait_for_isr("moves", set(target))
    assert cluster.leader("moves") in target
    assert everything(cluster, "moves", 500) == list(range(500))
    assert ask(cluster, LIST_REASSIGNMENTS, 0, {"topics": None, "timeout": HALF_A_MINUTE}).topics == ()
    data = cluster.nodes[origin].data
    wait_until(lambda: not (data / "moves-0").exists(), "the old replica's data to be removed")


class RackPerBroker(Cluster):
    """Broker N stands in rack rN."""

    def start(self, broker_id: int, *, wait: bool = True, settings: Mapping[str, str] | None = None) -> Node:
        return super().start(broker_id, wait=wait, settings={"broker.rack": f"r{broker_id}", **(settings or {})})


def test_a_consumer_is_sent_to_a_replica_in_its_rack(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with RackPerBroker(tmp_path, 2, {"replica.selector.class": selector}) as cluster:
        cluster.create("near", 1, 2)
        sender = Sender(cluster, "near")
        sender.send(50)
        sender.finish()
        leader = cluster.leader("near")
        other = 3 - leader
        partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 10, "partition_max_bytes": 100_000}
        asked: dict[str, Any] = {
            "replica_id": -1,
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 100_000,
            "session_epoch": -1,
        }
        asked |= {"topics": [{"topic": "near", "partitions": [partition]}], "forgotten_topics_data": []}

        def fetched(broker: int, rack: str) -> Any:
            response = ask(cluster, FETCH, 11, asked | {"rack_id": rack}, broker=broker)
            return response.responses[0].partitions[0]

        assert fetched(leader, f"r{leader}").preferred_read_replica == -1
        assert fetched(leader, "elsewhere").preferred_read_replica == -1
        wait_until(lambda: fetched(leader, f"r{other}").preferred_read_replica == other, "to be sent to the follower")
        wait_until(lambda: fetched(other, f"r{other}").high_watermark == 50, "the follower to know what is committed")
        assert fetched(other, f"r{other}").records
        config: dict[str, Any] = {"client.rack": f"r{other}", "fetch.wait.max.ms": 100}
        assert everything(cluster, "near", 50, **config) == list(range(50))


class ListenersApart(Cluster):
    """Brokers talk to each other on a listener of their own."""

    def start(self, broker_id: int, *, wait: bool = True, settings: Mapping[str, str] | None = None) -> Node:
        own = {
            "listeners": f"PLAINTEXT://{self.address(broker_id)},INTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
        return super().start(broker_id, wait=wait, settings={**own, **(settings or {})})


def test_brokers_have_a_listener_of_their_own(tmp_path: Path) -> None:
    with ListenersApart(tmp_path, 2) as cluster:
        cluster.create("apart", 2, 2, min_insync_replicas="2")
        sender = Sender(cluster, "apart")
        sender.send(50)
        sender.finish()
        assert len(sender.acknowledged) == 50
        partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 100_000}
        asked: dict[str, Any] = {"replica_id": 2, "max_wait": 500, "min_bytes": 1, "max_bytes": 100_000}
        asked |= {"session_epoch": -1, "topics": [{"topic": "apart", "partitions": [partition]}]}
        response = ask(cluster, FETCH, 11, asked, broker=cluster.leader("apart"))
        assert response.responses[0].partitions[0].error_code is ErrorCode.topic_authorization_failed


def test_a_topic_can_be_made_while_one_of_its_brokers_is_away_until_that_one_is_forgotten(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, dict(LONG_LAG_TIME)) as cluster:
        away = next(each for each in cluster.nodes if each != cluster.controller())
        cluster.nodes[away].stop()
        wait_until(lambda: away not in cluster.metadata().brokers, "the cluster to know that a broker went")
        cluster.create("made-meanwhile", 3)
        for index in range(3):
            partition = cluster.partition("made-meanwhile", index)
            assert set(partition.replicas) == set(cluster.nodes) and away not in partition.isrs
        here = next(each for each in cluster.nodes if each != away)
        fenced = ask(cluster, DESCRIBE_CLUSTER, 2, {"include_fenced_brokers": True, "endpoint_type": 1}, broker=here)
        assert {each.broker_id for each in fenced.brokers if each.is_fenced} == {away}

        cluster.start(away)
        cluster.wait_for_isr("made-meanwhile", set(cluster.nodes), 2)
        up = ask(cluster, UNREGISTER_BROKER, 0, {"broker_id": away}, broker=here)
        assert up.error_code is ErrorCode.invalid_request and "stop it first" in up.error_message

        cluster.nodes[away].stop()
        wait_until(lambda: away not in cluster.metadata().brokers, "the cluster to know that a broker went")
        words = ("unregister", "--bootstrap-server", cluster.address(here), "--id", str(away))
        gone = java.tool("4.3.0", "cluster", *words)
        assert f"Broker {away} is no longer registered." in gone
        topics = [{"name": "t", "num_partitions": 1, "replication_factor": 3, "assignments": [], "configs": []}]
        values = {"topics": topics, "timeout": HALF_A_MINUTE, "validate_only": False}
        refused = ask(cluster, CREATE_TOPICS, 7, values, broker=here)
        assert refused.topics[0].error_code is ErrorCode.invalid_replication_factor
