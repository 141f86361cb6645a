"""Trees that are exported and imported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.topic_znodes import PartitionState, PartitionStateNode, TopicsNode
from barnabas.metadata.transfer import MARGIN, TransferError, export_tree, import_tree
from barnabas.metadata.znodes import (
    BrokersNode,
    ClusterIdNode,
    ControllerEpochNode,
    ControllerNode,
    FeaturesNode,
    ProducerIds,
    ProducerIdsNode,
)

if TYPE_CHECKING:
    from pathlib import Path


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.start()
    return store


async def test_carries_what_lasts_and_nothing_else(tmp_path: Path) -> None:
    source = await opened(tmp_path / "source.db")
    await source.create(ClusterIdNode.path, ClusterIdNode.encode("id"), parents=True)
    await source.create(f"{TopicsNode.path}/t", "größe".encode(), parents=True)
    await source.create("/binary", b"\xff\x00")
    await source.create("/empty/child", parents=True)
    await source.create("/config/changes/config_change_0000000001", b"an old note", parents=True)
    await source.create(FeaturesNode.path, FeaturesNode.encode({"f": 1}))
    await source.create(ControllerNode.path, ephemeral=True)
    await source.create(f"{BrokersNode.path}/1", ephemeral=True, parents=True)
    tree = json.loads(json.dumps(await export_tree(source)))
    assert tree["nodes"][f"{TopicsNode.path}/t"] == "größe"

    target = await opened(tmp_path / "target.db")
    await target.create("/binary", b"replaced")
    await target.create("/brokers")
    assert await import_tree(target, tree) == len(tree["nodes"])
    copied = {node.path: node.data for node in await target.subtree("/")}
    assert copied == {
        "/binary": b"\xff\x00",
        "/brokers": b"",
        BrokersNode.path: b"",
        TopicsNode.path: b"",
        f"{TopicsNode.path}/t": "größe".encode(),
        "/cluster": b"",
        ClusterIdNode.path: ClusterIdNode.encode("id"),
        "/config": b"",
        "/config/changes": b"",
        "/empty": b"",
        "/empty/child": b"",
    }
    assert await export_tree(target) == tree
    await source.close()
    await target.close()


async def test_goes_on_above_what_an_outdated_tree_has_given_out(tmp_path: Path) -> None:
    state = PartitionState(leader=2, leader_epoch=7, isr=(2, 1), controller_epoch=3)
    nodes = {
        ControllerEpochNode.path: ControllerEpochNode.encode(3),
        ProducerIdsNode.path: ProducerIdsNode.encode(1, ProducerIds(5000, 1000)),
        PartitionStateNode.path("t", 0): PartitionStateNode.encode(state),
        ClusterIdNode.path: ClusterIdNode.encode("id"),
    }

    async def main() -> dict[str, bytes]:
        store = await opened(tmp_path / "metadata.db")
        await import_tree(store, {"version": 1, "nodes": {p: d.decode() for p, d in nodes.items()}}, outdated=True)
        found = {node.path: node.data for node in await store.subtree("/")}
        await store.close()
        return found

    found = await main()
    assert ControllerEpochNode.decode(found[ControllerEpochNode.path]) == 3 + MARGIN
    assert ProducerIdsNode.decode(found[ProducerIdsNode.path]) == ProducerIds(5000 + 1000 * MARGIN, 1000)
    path = PartitionStateNode.path("t", 0)
    raised = PartitionStateNode.decode(path, found[path])
    assert raised == state._replace(leader_epoch=7 + MARGIN)
    assert found[ClusterIdNode.path] == nodes[ClusterIdNode.path]


async def test_an_outdated_tree_that_knows_no_producer_ids_may_be_older_than_the_first(tmp_path: Path) -> None:
    store = await opened(tmp_path / "metadata.db")
    await import_tree(store, {"version": 1, "nodes": {"/a": "1"}}, outdated=True)
    found = ProducerIdsNode.decode((await store.get(ProducerIdsNode.path)).data)
    assert found is not None
    assert found.first > MARGIN
    await store.close()


async def test_makes_parents_that_are_not_listed(tmp_path: Path) -> None:
    store = await opened(tmp_path / "metadata.db")
    await import_tree(store, {"version": 1, "nodes": {"/a/b/c": "1", "/a-b": "2"}})
    assert [node.path for node in await store.subtree("/")] == ["/a", "/a-b", "/a/b", "/a/b/c"]
    await store.close()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"{TopicsNode.path}/orders", "there are topics"),
        (f"{BrokersNode.path}/1", "brokers are up"),
        (ClusterIdNode.path, "already has a cluster id"),
    ],
)
async def test_refuses_a_target_that_is_in_use(tmp_path: Path, path: str, message: str) -> None:
    store = await opened(tmp_path / "metadata.db")
    await store.create(path, parents=True)
    with pytest.raises(TransferError, match=message):
        await import_tree(store, {"version": 1, "nodes": {"/new": ""}})
    assert await store.find("/new") is None
    await store.close()


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"version": 2, "nodes": {}},
        {"version": 1, "nodes": []},
        {"version": 1, "nodes": {"/ok": "", "no-path": ""}},
        {"version": 1, "nodes": {"/ok": "", "/x": {"base64": "?"}}},
        {"version": 1, "nodes": {"/ok": "", "/x": {"other": ""}}},
        {"version": 1, "nodes": {"/ok": "", "/x": 7}},
    ],
)
async def test_refuses_what_is_no_tree(tmp_path: Path, tree: dict[str, Any]) -> None:
    store = await opened(tmp_path / "metadata.db")
    with pytest.raises(TransferError, match=r"not an exported metadata tree|damaged at"):
        await import_tree(store, tree)
    assert await store.subtree("/") == []
    await store.close()


async def test_no_secret_is_exported_unless_it_is_asked_for(tmp_path: Path) -> None:
    """What users log in with, passwords of brokers and delegation tokens are secrets."""
    store = await opened(tmp_path / "tree")
    credential = "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096"
    nodes = {
        "/config/users/alice": {"SCRAM-SHA-256": credential, "producer_byte_rate": "1"},
        "/config/brokers/1": {
            "listener.name.x.ssl.key.password": "hidden",
            "listener.name.x.plain.sasl.jaas.config": "a",
            "listener.name.x.misspelt.mechanism.sasl.jaas.config": "a",
            "some.plugin.password": "hidden",
            "num.io.threads": "3",
        },
    }
    for path, settings in nodes.items():
        await store.create(path, json.dumps({"version": 1, "config": settings}).encode(), parents=True)
    await store.create("/delegation_token/tokens/abc", b"{}", parents=True)
    bare = (await export_tree(store))["nodes"]
    assert json.loads(bare["/config/users/alice"])["config"] == {"producer_byte_rate": "1"}
    assert json.loads(bare["/config/brokers/1"])["config"] == {"num.io.threads": "3"}
    assert "/delegation_token/tokens/abc" not in bare
    whole = (await export_tree(store, with_credentials=True))["nodes"]
    assert json.loads(whole["/config/users/alice"])["config"]["SCRAM-SHA-256"] == credential
    assert json.loads(whole["/config/brokers/1"])["config"] == nodes["/config/brokers/1"]
    assert "/delegation_token/tokens/abc" in whole
    await store.close()
