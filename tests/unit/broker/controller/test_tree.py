"""A controller and a tree that is not as it left it: written by others, lost, or not to be had."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.machines.controller.image import ALL_BROKERS, NO_LEADER, TopicImage
from barnabas.machines.controller.requests import LogDirFailed, TopicToCreate
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.store import StoreUnavailable
from barnabas.metadata.topic_znodes import DeletionNode, PartitionStateNode, TopicNode
from barnabas.metadata.znodes import BrokerNode, ClusterIdNode
from barnabas.model.errors import RequestTimedOut, TopicAlreadyExists
from tests.support.controller_shells import cluster, expire, registration
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from barnabas.metadata.stores.store import Operation


async def test_a_store_that_lost_its_tree_is_not_taken_for_a_new_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.controller.membership._RETRY_SECONDS", 0.01)

    async with cluster(tmp_path) as nodes:
        empty = tmp_path / "empty.db"
        stores = iter([SqliteStore(nodes.path), SqliteStore(empty)])
        member = await nodes.started(0, lambda: next(stores, SqliteStore(nodes.path)))
        await member.controller.create_topics([TopicToCreate("t")])
        epoch = member.broker_epoch
        store = await nodes.store()
        expire(nodes.path, (await store.get(BrokerNode.path(0))).owner)
        await until(lambda: "the cluster's id" in caplog.text)
        assert "t" in member.cache.image.topics
        await until(lambda: member.broker_epoch > epoch and member.controller.is_active)
        assert member.cache.image.topics["t"].partitions[0].leader == 0
        await store.close()
        untouched = SqliteStore(empty)
        await untouched.start()
        assert await untouched.children("/") == []
        await untouched.close()


async def test_loads_the_tree_again_when_someone_else_wrote_to_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = await nodes.started(0)
        store = await nodes.store()
        topic_id = UUID(int=99)
        await store.create(TopicNode.path("t"), TopicNode.encode(topic_id, []))
        assert isinstance((await member.controller.create_topics([TopicToCreate("t")]))["t"], TopicAlreadyExists)
        assert member.cache.image.topics["t"].topic_id == topic_id
        await store.close()


class Meddled(SqliteStore):
    """A store in which somebody makes a topic just before its broker does; `meddling` is what else happens then."""

    meddling: Callable[[], Awaitable[None]] | None = None

    async def multi(self, operations: Sequence[Operation]) -> None:
        if self.meddling is not None:
            meddling, self.meddling = self.meddling, None
            await self.create(TopicNode.path("t"), TopicNode.encode(UUID(int=99), []))
            await meddling()
        await super().multi(operations)


async def test_a_broker_that_goes_while_the_tree_is_loaded_again_is_replaced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        store = Meddled(nodes.path)
        member = await nodes.started(0, lambda: store)
        other = await nodes.store()
        await other.create(BrokerNode.path(1), BrokerNode.encode(registration(1), 0), ephemeral=True)
        await until(lambda: 1 in member.cache.image.brokers)
        await member.controller.create_topics([TopicToCreate("r", 2, 2)])
        assert {found.leader for found in member.cache.image.topics["r"].partitions} == {0, 1}
        store.meddling = other.close
        assert isinstance((await member.controller.create_topics([TopicToCreate("t")]))["t"], TopicAlreadyExists)
        await until(lambda: {found.leader for found in member.cache.image.topics["r"].partitions} == {0})


async def test_failed_disks_are_remembered_when_the_tree_is_loaded_again(tmp_path: Path) -> None:
    async def nothing() -> None:
        """Only the topic is made."""

    async with cluster(tmp_path) as nodes:
        store = Meddled(nodes.path)
        member = await nodes.started(0, lambda: store)
        await member.controller.create_topics([TopicToCreate("r")])
        await member.controller.decide(LogDirFailed(0, [("r", 0)]))
        store.meddling = nothing
        assert isinstance((await member.controller.create_topics([TopicToCreate("t")]))["t"], TopicAlreadyExists)
        assert member.cache.image.failed == {0: {("r", 0)}}
        assert member.cache.image.topics["r"].partitions[0].leader == NO_LEADER


async def test_makes_folders_that_another_program_left_out(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        store = await nodes.store()
        await store.create(ClusterIdNode.path, ClusterIdNode.encode("given"), parents=True)
        member = await nodes.started(0)
        assert member.cache.image.cluster_id == "given"
        assert await member.controller.alter_configs({ALL_BROKERS: {"a": "1"}}) == {ALL_BROKERS: None}
        await store.close()


async def test_finishes_a_deletion_that_was_cut_short(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = await nodes.started(0)
        await member.controller.create_topics([TopicToCreate("t", 2, 1), TopicToCreate("kept")])
        await member.stop()
        store = await nodes.store()
        await store.create(DeletionNode.path("t"))
        await store.delete(PartitionStateNode.path("t", 1))
        again = nodes.member()
        assert set((await again.open()).topics) == {"kept"}
        await again.start(registration())
        assert await store.find(TopicNode.path("t")) is None
        assert await store.subtree("/admin/delete_topics") == []
        assert isinstance((await again.controller.create_topics([TopicToCreate("t")]))["t"], TopicImage)
        await store.close()


async def test_says_that_the_store_failed_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    class Failing(SqliteStore):
        failing = False

        async def multi(self, operations: Sequence[Operation]) -> None:
            if self.failing:
                raise StoreUnavailable("the disk is full")
            await super().multi(operations)

    async with cluster(tmp_path) as nodes:
        store = Failing(nodes.path)
        member = await nodes.started(0, lambda: store)
        store.failing = True
        with pytest.raises(RequestTimedOut, match="the disk is full"):
            await member.controller.create_topics([TopicToCreate("t")])
        store.failing = False
        await until(lambda: member.controller.is_active)
        assert isinstance((await member.controller.create_topics([TopicToCreate("t")]))["t"], TopicImage)
