"""Nodes read back as what was written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.machines.controller.image import ConfigResource, Endpoint
from barnabas.metadata.topic_znodes import Assignment, PartitionState, PartitionStateNode, TopicNode
from barnabas.metadata.znodes import (
    BrokerNode,
    ClusterIdNode,
    ConfigChangesNode,
    ConfigNode,
    ControllerEpochNode,
    ControllerNode,
    FeaturesNode,
    MalformedNode,
    ProducerIds,
    ProducerIdsNode,
    Registration,
)

if TYPE_CHECKING:
    from uuid import UUID

ids = st.integers(0, 2**31 - 1)
epochs = st.integers(0, 2**31 - 1)
brokers = st.lists(ids, max_size=5, unique=True).map(tuple)
assignments = st.builds(Assignment, brokers, brokers, brokers)
hosts = st.from_regex(r"[a-z0-9.-]{1,30}", fullmatch=True) | st.ip_addresses(v=6).map(str)
endpoints = st.dictionaries(
    st.from_regex(r"[A-Z][A-Z0-9_-]{0,15}", fullmatch=True),
    st.builds(Endpoint, hosts, st.integers(0, 65535), st.sampled_from(["PLAINTEXT", "SSL", "SASL_SSL"])),
    min_size=1,
    max_size=3,
)
settings = st.dictionaries(st.text(max_size=30), st.text(max_size=30), max_size=5)
levels = st.dictionaries(st.text(min_size=1, max_size=20), st.integers(1, 2**15 - 1), max_size=4)


@given(
    st.builds(
        Registration,
        broker_id=ids,
        endpoints=endpoints,
        rack=st.none() | st.text(max_size=10),
        features=levels.map(lambda found: {name: (0, level) for name, level in found.items()}),
        incarnation_id=st.none() | st.uuids(),
    )
)
def test_registrations(registration: Registration) -> None:
    assert BrokerNode.decode(registration.broker_id, BrokerNode.encode(registration, 5)) == registration


@given(st.uuids(), st.lists(assignments, max_size=12))
def test_topics(topic_id: UUID, partitions: list[Assignment]) -> None:
    assert TopicNode.decode("t", TopicNode.encode(topic_id, partitions)) == (topic_id, tuple(partitions))


@given(st.builds(PartitionState, st.integers(-1, 2**31 - 1), epochs, brokers, epochs))
def test_partition_states(state: PartitionState) -> None:
    assert PartitionStateNode.decode("/state", PartitionStateNode.encode(state)) == state


@given(settings)
def test_settings(found: dict[str, str]) -> None:
    assert ConfigNode.decode("/config/topics/t", ConfigNode.encode(found)) == found


@given(st.sampled_from(["topics", "brokers"]), st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True))
def test_paths_of_settings(kind: str, name: str) -> None:
    resource = ConfigResource.topic(name) if kind == "topics" else ConfigResource("brokers", name)
    assert ConfigNode.resource(ConfigNode.path(resource)) == resource


@given(ids, st.integers(0, 2**62), st.integers(1, 10_000))
def test_producer_ids(broker: int, first: int, count: int) -> None:
    block = ProducerIds(first, count)
    assert ProducerIdsNode.decode(ProducerIdsNode.encode(broker, block)) == block


@given(levels, ids, epochs, st.text(min_size=1, max_size=30))
def test_small_nodes(features: dict[str, int], broker: int, epoch: int, cluster_id: str) -> None:
    assert FeaturesNode.decode(FeaturesNode.encode(features)) == features
    assert ControllerNode.decode(ControllerNode.encode(broker, 5)) == broker
    assert ControllerEpochNode.decode(ControllerEpochNode.encode(epoch)) == epoch
    assert ClusterIdNode.decode(ClusterIdNode.encode(cluster_id)) == cluster_id


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["version", "partitions", "isr", "leader", "endpoints", "features", "config", "status", "0"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=8,
)


@given(st.binary(max_size=30) | values.map(lambda value: json.dumps(value).encode()))
def test_what_cannot_be_read_is_named(data: bytes) -> None:
    for decode in (
        lambda: BrokerNode.decode(1, data),
        lambda: TopicNode.decode("t", data),
        lambda: PartitionStateNode.decode("/state", data),
        lambda: ConfigNode.decode("/config/topics/t", data),
        lambda: ProducerIdsNode.decode(data),
        lambda: FeaturesNode.decode(data),
        lambda: ControllerNode.decode(data),
        lambda: ControllerEpochNode.decode(data),
        lambda: ClusterIdNode.decode(data),
    ):
        try:
            decode()
        except MalformedNode as error:
            assert "cannot be read" in str(error)


def test_kafkas_own_nodes() -> None:
    """As Apache Kafka 3.9.1 and older ones wrote them."""
    registration = BrokerNode.decode(
        0,
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],'
        b'"jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"1700000000000"}',
    )
    assert registration == Registration(broker_id=0, endpoints={"PLAINTEXT": Endpoint("h", 9092)})
    old = b'{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2","endpoints":["SSL://[::1]:9093"]}'
    assert BrokerNode.decode(1, old).endpoints == {"SSL": Endpoint("::1", 9093, "SSL")}
    without_id = b'{"version":1,"partitions":{"1":[2,1],"0":[1,2]}}'
    assert TopicNode.decode("t", without_id) == (None, (Assignment((1, 2)), Assignment((2, 1))))
    assert FeaturesNode.decode(
        b'{"features":{"x":{"min_version_level":1,"max_version_level":2}},"version":1,"status":1}'
    )
    assert FeaturesNode.decode(b'{"features":{},"version":2,"status":0}') == {}
    assert ClusterIdNode.decode(b'{"version":"1","id":"pnXZCa8NQZ2ZJ3JKgy_bVw"}') == "pnXZCa8NQZ2ZJ3JKgy_bVw"
    assert ProducerIdsNode.decode(b"") is None
    with pytest.raises(MalformedNode, match="/brokers/topics/t"):
        TopicNode.decode("t", b"[]")


@given(st.text(min_size=1).filter(lambda name: name.isprintable()))
def test_any_group_is_found_again(name: str) -> None:
    resource = ConfigResource("groups", name)
    path = ConfigNode.path(resource)
    assert path.count("/") == 3
    assert ConfigNode.resource(path) == resource
    assert ConfigChangesNode.decode("x", ConfigChangesNode.encode(resource)) == resource
