"""Nodes that hold something else than they should: whoever reads them says which node it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.images.loading import load
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.topic_znodes import PartitionStateNode, TopicNode, TopicsNode
from barnabas.metadata.znodes import (
    BrokerNode,
    BrokersNode,
    ClusterIdNode,
    ControllerEpochNode,
    FeaturesNode,
    KnownBrokerNode,
    MalformedNode,
)

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = {"version": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": {"0": [1]}}
STATE = {"version": 1, "leader": 1, "leader_epoch": 0, "controller_epoch": 1, "isr": [1]}
REGISTRATION = {"version": 5, "endpoints": ["PLAINTEXT://h:1"]}


async def loading_fails(path: Path, nodes: dict[str, bytes]) -> str:
    async def main() -> str:
        store = SqliteStore(path / "metadata")
        await store.start()
        for folder in (BrokersNode.path, TopicsNode.path, "/config"):
            await store.create(folder, parents=True)
        for node, data in nodes.items():
            await store.create(node, data, parents=True)
        try:
            with pytest.raises(MalformedNode) as caught:
                await load(store)
        finally:
            await store.close()
        return str(caught.value)

    return await main()


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "data",
    [
        dumped({key: value for key, value in STATE.items() if key != "controller_epoch"}),
        dumped(STATE | {"isr": ["one"]}),
        dumped(STATE | {"isr": "1"}),
        dumped(STATE | {"leader": 1 << 40}),
        dumped(STATE | {"leader_epoch": True}),
        dumped([]),
        b"[" * 100_000,
        b"",
    ],
)
async def test_the_state_of_a_partition_is_named_by_its_path(tmp_path: Path, data: bytes) -> None:
    path = PartitionStateNode.path("t", 0)
    assert path in await loading_fails(tmp_path, {TopicNode.path("t"): dumped(TOPIC), path: data})


@pytest.mark.parametrize("replicas", [["one"], "1", [None], [1 << 40], [1.5], 1])
async def test_replicas_are_broker_ids(tmp_path: Path, replicas: object) -> None:
    path = TopicNode.path("t")
    assert path in await loading_fails(tmp_path, {path: dumped(TOPIC | {"partitions": {"0": replicas}})})


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (KnownBrokerNode.path(1), dumped(REGISTRATION | {"features": "none"})),
        (BrokerNode.path(1), dumped(REGISTRATION | {"features": {"f": {"max_version": 1 << 40}}})),
        (f"{BrokersNode.path}/one", dumped(REGISTRATION)),
        (ClusterIdNode.path, dumped({"version": "1", "id": {}})),
        (ControllerEpochNode.path, b"9" * 5000),
        (FeaturesNode.path, b"[" * 100_000),
    ],
)
async def test_any_other_node_is_named_too(tmp_path: Path, path: str, data: bytes) -> None:
    assert path in await loading_fails(tmp_path, {path: data})
