"""Trees that are exported and imported."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.sqlite import SqliteStore
from barnabas.metadata.transfer import MARGIN, TransferError, export_tree, import_tree
from barnabas.metadata.znodes import (
    BrokersNode,
    ClusterIdNode,
    ControllerEpochNode,
    ControllerNode,
    FeaturesNode,
    PartitionState,
    PartitionStateNode,
    ProducerIds,
    ProducerIdsNode,
    TopicsNode,
)

if TYPE_CHECKING:
    from pathlib import Path


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.start()
    return store


def test_carries_what_lasts_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        source = await opened(tmp_path / "source.db")
        await source.create(ClusterIdNode.path, ClusterIdNode.encode("id"), parents=True)
        await source.create(f"{TopicsNode.path}/t", "größe".encode(), parents=True)
        await source.create("/binary", b"\xff\x00")
        await source.create("/empty/child", parents=True)
        await source.create("/config/changes/config_change_0000000001", b"old news", parents=True)
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

    asyncio.run(main())


def test_goes_on_above_what_an_outdated_tree_has_given_out(tmp_path: Path) -> None:
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

    found = asyncio.run(main())
    assert ControllerEpochNode.decode(found[ControllerEpochNode.path]) == 3 + MARGIN
    assert ProducerIdsNode.decode(found[ProducerIdsNode.path]) == ProducerIds(5000 + 1000 * MARGIN, 1000)
    raised = PartitionStateNode.decode(found[PartitionStateNode.path("t", 0)])
    assert raised == state._replace(leader_epoch=7 + MARGIN)
    assert found[ClusterIdNode.path] == nodes[ClusterIdNode.path]


def test_an_outdated_tree_that_knows_no_producer_ids_may_be_older_than_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "metadata.db")
        await import_tree(store, {"version": 1, "nodes": {"/a": "1"}}, outdated=True)
        found = ProducerIdsNode.decode((await store.get(ProducerIdsNode.path)).data)
        assert found is not None
        assert found.first > MARGIN
        await store.close()

    asyncio.run(main())


def test_makes_parents_that_are_not_listed(tmp_path: Path) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "metadata.db")
        await import_tree(store, {"version": 1, "nodes": {"/a/b/c": "1", "/a-b": "2"}})
        assert [node.path for node in await store.subtree("/")] == ["/a", "/a-b", "/a/b", "/a/b/c"]
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"{TopicsNode.path}/orders", "there are topics"),
        (f"{BrokersNode.path}/1", "brokers are up"),
        (ClusterIdNode.path, "already has a cluster id"),
    ],
)
def test_refuses_a_target_that_is_in_use(tmp_path: Path, path: str, message: str) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "metadata.db")
        await store.create(path, parents=True)
        with pytest.raises(TransferError, match=message):
            await import_tree(store, {"version": 1, "nodes": {"/new": ""}})
        assert await store.find("/new") is None
        await store.close()

    asyncio.run(main())


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
def test_refuses_what_is_no_tree(tmp_path: Path, tree: dict[str, Any]) -> None:
    async def main() -> None:
        store = await opened(tmp_path / "metadata.db")
        with pytest.raises(TransferError, match=r"no exported tree|damaged at"):
            await import_tree(store, tree)
        assert await store.subtree("/") == []
        await store.close()

    asyncio.run(main())
