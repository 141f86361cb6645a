"""Memberships over an SQLite store: start, requests, failover."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from barnabas.broker.controller.membership import new_id
from barnabas.machines.controller.image import NO_LEADER, ConfigResource, Endpoint, TopicImage
from barnabas.machines.controller.requests import NewPartitions, TopicToCreate
from barnabas.metadata.images.cache import Delta, MetadataCache
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.store import StoreUnavailable
from barnabas.metadata.topic_znodes import PartitionStateNode, TopicNode
from barnabas.metadata.znodes import ConfigNode, ControllerEpochNode, ControllerNode, ProducerIdsNode
from barnabas.model.errors import CoordinatorLoadInProgress, NotController, TopicAlreadyExists
from barnabas.model.ids import uuid_from_text, uuid_to_text
from tests.support.controller_shells import cluster, registration
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from barnabas.metadata.stores.store import Operation, StoredNode, Watch


async def test_a_new_cluster_gets_an_id_that_stays(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        first = nodes.member()
        image = await first.open()
        assert uuid_to_text(uuid_from_text(image.cluster_id)) == image.cluster_id
        assert image.brokers == {}
        await first.start(registration())
        assert first.controller.is_active
        assert first.broker_epoch > 0
        assert first.cache.image.cluster_id == image.cluster_id
        assert first.cache.image.controller_id == 0
        assert first.cache.image.brokers[0].endpoints["PLAINTEXT"] == Endpoint("localhost", 9092)
        assert first.cache.image.brokers[0].epoch == first.broker_epoch
        assert nodes.path.stat().st_mode & 0o077 == 0  # the cluster's secret is in it
        secret = first.secret
        assert len(set(secret)) > 8
        await first.stop()
        second = await nodes.started()
        assert second.secret == secret
        assert second.cache.image.cluster_id == image.cluster_id
        assert second.cache.image.controller_epoch == 2
        assert second.broker_epoch > first.broker_epoch


async def test_topics_survive_a_restart_and_subscribers_hear_of_everything(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = await nodes.started()
        deltas: list[Delta] = []
        member.cache.subscribe(deltas.append)
        answers = await member.controller.create_topics(
            [TopicToCreate("a", 3, 1, configs={"retention.ms": "7"}), TopicToCreate("b")]
        )
        topic = answers["a"]
        assert isinstance(topic, TopicImage)
        assert [found.name for found in deltas[-1].created] == ["a", "b"]
        assert deltas[-1].configs == {ConfigResource.topic("a")}
        assert isinstance((await member.controller.create_topics([TopicToCreate("a")]))["a"], TopicAlreadyExists)

        await member.controller.create_partitions([NewPartitions("a", 5)])
        assert [found.name for found in deltas[-1].changed] == ["a"]
        await member.controller.alter_configs({ConfigResource.topic("b"): {"retention.ms": "8"}})
        assert deltas[-1].configs == {ConfigResource.topic("b")}
        await member.controller.delete_topics(["b"])
        assert [found.name for found in deltas[-1].deleted] == ["b"]
        before = member.cache.image
        await member.stop()

        again = nodes.member()
        image = await again.open()
        assert image.topics == before.topics
        assert image.topics["a"].topic_id == topic.topic_id
        assert image.topic_config("a") == {"retention.ms": "7"}
        await again.start(registration())
        assert again.cache.image.topics == before.topics


async def test_a_topic_made_again_is_deleted_and_created(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = await nodes.started()
        await member.controller.create_topics([TopicToCreate("a")])
        old = member.cache.image
        deltas: list[Delta] = []
        await member.controller.delete_topics(["a"])
        await member.controller.create_topics([TopicToCreate("a")])
        new = member.cache.image
        follower = MetadataCache(old)
        follower.subscribe(deltas.append)
        follower.replace(new)
        assert deltas[0].deleted == (old.topics["a"],)
        assert deltas[0].created == (new.topics["a"],)


async def test_thousands_of_partitions_are_cut_into_portions(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = await nodes.started()
        await member.controller.create_topics([TopicToCreate("big", 4000, 1)])
        store = await nodes.store()
        assert await store.find(PartitionStateNode.path("big", 3999))
        await member.controller.delete_topics(["big"])
        assert await store.subtree("/brokers/topics") == []
        assert await store.subtree("/config/topics") == []
        assert await store.subtree("/admin/delete_topics") == []
        await store.close()


async def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        a, b = await nodes.started(0), await nodes.started(1)
        blocks = await asyncio.gather(*(found.allocate_producer_ids() for found in (a, b, a, b)))
        await a.stop()
        again = await nodes.started(0)
        blocks.append(await again.allocate_producer_ids())
        given = [number for block in blocks for number in range(block.first, block.first + block.count)]
        assert sorted(given) == list(range(5000))


async def test_producers_are_told_to_come_again_while_no_ids_can_be_had(tmp_path: Path) -> None:
    class Failing(SqliteStore):
        async def find(self, path: str) -> StoredNode | None:
            if path == ProducerIdsNode.path:
                raise StoreUnavailable("the disk is full")
            return await super().find(path)

    async with cluster(tmp_path) as nodes:
        member = await nodes.started(0, lambda: Failing(nodes.path))
        with pytest.raises(CoordinatorLoadInProgress, match="the disk is full"):
            await member.allocate_producer_ids()


async def test_another_broker_takes_over_when_the_controller_goes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        a, b = await nodes.started(0), await nodes.started(1)
        assert a.controller.is_active
        assert not b.controller.is_active
        await until(lambda: set(a.cache.image.brokers) == {0, 1})
        await a.controller.create_topics([TopicToCreate("t", 2, 2), TopicToCreate("single", 2, 1)])
        assert b.cache.image.controller_id == 0
        with pytest.raises(NotController, match="Broker 0 is"):
            await b.controller.create_topics([TopicToCreate("x")])
        b.cache.is_behind = True  # as if LeaderAndIsr had come, and no controller were left to send UpdateMetadata
        await a.stop()
        await until(lambda: b.controller.is_active and b.cache.image.controller_id == 1)
        assert not b.cache.is_behind
        assert b.cache.image.controller_epoch == 2
        assert {found.leader for found in b.cache.image.topics["t"].partitions} == {1}
        assert {found.leader for found in b.cache.image.topics["single"].partitions} == {1, NO_LEADER}
        await b.controller.create_topics([TopicToCreate("x")])


async def test_a_controller_takes_requests_when_its_broker_knows_what_it_decides_by(tmp_path: Path) -> None:
    """World 6499: a topic was deleted by a broker that was just elected, and had not heard of it: it is unknown."""
    active_without: list[bool] = []

    async with cluster(tmp_path) as nodes:

        class Watched(SqliteStore):
            async def multi(self, operations: Sequence[Operation]) -> None:
                await super().multi(operations)
                active_without.append(b.controller.is_active and "t" not in b.cache.image.topics)

        b = nodes.member(lambda: Watched(nodes.path))
        a = await nodes.started(0)
        await b.open()
        await b.start(registration(1))
        await until(lambda: set(a.cache.image.brokers) == {0, 1})
        await a.controller.create_topics([TopicToCreate("t", 2, 2)])
        assert "t" not in b.cache.image.topics, "no update came"
        active_without.clear()
        await a.stop()
        await until(lambda: b.controller.is_active and b.cache.image.controller_id == 1)
        assert "t" in b.cache.image.topics
        assert active_without
        assert not any(active_without)


async def test_office_is_taken_by_what_the_tree_holds_then_and_not_when_the_broker_started(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        reads, go_on = asyncio.Event(), asyncio.Event()

        class SlowOnce(SqliteStore):
            """Reads that there is no controller, and is held up before it reads the epoch."""

            async def find(self, path: str) -> StoredNode | None:
                if path == ControllerEpochNode.path and not reads.is_set():
                    reads.set()
                    await go_on.wait()
                return await super().find(path)

        slow = nodes.member(lambda: SlowOnce(nodes.path))
        opened = asyncio.create_task(slow.open())
        await reads.wait()
        first = await nodes.started(0)
        go_on.set()
        await opened
        await slow.start(registration(1))
        await until(lambda: set(first.cache.image.brokers) == {0, 1})
        made = (await first.controller.create_topics([TopicToCreate("t", 1, 2)]))["t"]
        assert isinstance(made, TopicImage)
        await first.stop()
        await until(lambda: slow.controller.is_active and slow.cache.image.controller_id == 1)
        assert slow.cache.image.topics["t"].topic_id == made.topic_id


async def test_a_controller_that_is_replaced_while_it_reads_the_tree_publishes_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        reads, go_on = asyncio.Event(), asyncio.Event()

        class SlowController(SqliteStore):
            async def subtree(self, path: str) -> list[StoredNode]:
                if await self.find(ControllerNode.path) is not None and not reads.is_set():
                    reads.set()
                    await go_on.wait()
                return await super().subtree(path)

        slow = nodes.member(lambda: SlowController(nodes.path))
        await slow.open()
        terms: list[int] = []
        slow.cache.subscribe(lambda delta: terms.append(delta.after.controller_epoch))
        started = asyncio.create_task(slow.start(registration(1)))
        await reads.wait()
        store = await nodes.store()
        await store.set(ControllerEpochNode.path, b"9")
        await store.close()
        go_on.set()
        await started
        await until(lambda: terms and slow.controller.is_active)
        assert set(terms) == {9}


async def test_a_controller_that_was_replaced_can_write_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = await nodes.started(0)
        store = await nodes.store()
        await store.set(ControllerEpochNode.path, b"9")
        with pytest.raises(NotController):
            await member.controller.create_topics([TopicToCreate("t")])
        assert await store.find(TopicNode.path("t")) is None
        await store.close()
        await until(lambda: member.controller.is_active and member.cache.image.controller_epoch == 9)


class Held(SqliteStore):
    """Answers one read of settings late, when `hold` is set: with what they were before. Tells of controllers only."""

    hold: asyncio.Event | None = None
    is_held = False

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        return super().watch(path, callback if path == ControllerNode.path else lambda: None)

    async def find_many(self, paths: Sequence[str]) -> list[StoredNode | None]:
        found = await super().find_many(paths)
        if not self.is_held and self.hold is not None and ConfigNode.path(RESOURCE) in paths:
            self.is_held = True
            await self.hold.wait()
        return found


RESOURCE: Final = ConfigResource.broker(1)
OLD: Final = {RESOURCE: {"log.cleaner.threads": "1"}}
NEW: Final = {RESOURCE: {"log.cleaner.threads": "2"}}


@pytest.mark.parametrize("own", [False, True], ids=["of others", "its own"])
async def test_settings_that_are_read_late_do_not_replace_what_was_decided_since(tmp_path: Path, own: bool) -> None:
    stores: list[Held] = []

    def held() -> Held:
        stores.append(Held(nodes.path))
        return stores[-1]

    async with cluster(tmp_path) as nodes:
        first, second = await nodes.started(0), await nodes.started(1, held)
        [store] = stores
        store.hold = asyncio.Event()

        async def read() -> None:
            if own:
                await second.controller.alter_configs(OLD)
            else:
                await first.controller.alter_configs(OLD)
                await second.catch_up_with_settings()

        async def decide() -> None:
            await until(lambda: second.controller.is_active)
            await second.controller.alter_configs(NEW)

        reading = asyncio.create_task(read())
        await until(lambda: store.is_held)
        await first.stop()
        deciding = asyncio.create_task(decide())
        await asyncio.wait({deciding}, timeout=0.5)  # a broker that reads settings does not become the controller
        store.hold.set()
        await asyncio.gather(reading, deciding)
        assert second.cache.image.config(RESOURCE) == NEW[RESOURCE]


def test_ids_can_be_typed_on_a_command_line() -> None:
    assert not any(uuid_to_text(new_id()).startswith("-") for _ in range(500))
