"""The controller's shell over the embedded store: start, requests, failover."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.controller import new_id
from barnabas.machines.controller.image import NO_LEADER, ConfigResource, Endpoint, TopicImage
from barnabas.machines.controller.requests import NewPartitions, NewTopic
from barnabas.metadata.cache import Delta, MetadataCache
from barnabas.metadata.sqlite import SqliteStore
from barnabas.metadata.store import StoreUnavailable
from barnabas.metadata.znodes import (
    ControllerEpochNode,
    ControllerNode,
    PartitionStateNode,
    ProducerIdsNode,
    TopicNode,
)
from barnabas.model.errors import CoordinatorLoadInProgress, NotController, TopicAlreadyExists
from barnabas.model.ids import uuid_from_text, uuid_to_text
from tests.support.controller_shells import cluster, registration, until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.metadata.store import Node


def test_a_new_cluster_gets_an_id_that_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            first = nodes.controller()
            image = await first.open()
            assert uuid_to_text(uuid_from_text(image.cluster_id)) == image.cluster_id
            assert image.brokers == {}
            await first.start(registration())
            assert first.is_active
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

    asyncio.run(main())


def test_topics_survive_a_restart_and_subscribers_hear_of_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started()
            deltas: list[Delta] = []
            controller.cache.subscribe(deltas.append)
            answers = await controller.create_topics(
                [NewTopic("a", 3, 1, configs={"retention.ms": "7"}), NewTopic("b")]
            )
            topic = answers["a"]
            assert isinstance(topic, TopicImage)
            assert [found.name for found in deltas[-1].created] == ["a", "b"]
            assert deltas[-1].configs == {ConfigResource.topic("a")}
            assert isinstance((await controller.create_topics([NewTopic("a")]))["a"], TopicAlreadyExists)

            await controller.create_partitions([NewPartitions("a", 5)])
            assert [found.name for found in deltas[-1].changed] == ["a"]
            await controller.alter_configs({ConfigResource.topic("b"): {"retention.ms": "8"}})
            assert deltas[-1].configs == {ConfigResource.topic("b")}
            await controller.delete_topics(["b"])
            assert [found.name for found in deltas[-1].deleted] == ["b"]
            before = controller.cache.image
            await controller.stop()

            again = nodes.controller()
            image = await again.open()
            assert image.topics == before.topics
            assert image.topics["a"].topic_id == topic.topic_id
            assert image.topic_config("a") == {"retention.ms": "7"}
            await again.start(registration())
            assert again.cache.image.topics == before.topics

    asyncio.run(main())


def test_a_topic_made_again_is_deleted_and_created(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started()
            await controller.create_topics([NewTopic("a")])
            old = controller.cache.image
            deltas: list[Delta] = []
            await controller.delete_topics(["a"])
            await controller.create_topics([NewTopic("a")])
            new = controller.cache.image
            follower = MetadataCache(old)
            follower.subscribe(deltas.append)
            follower.replace(new)
            assert deltas[0].deleted == (old.topics["a"],)
            assert deltas[0].created == (new.topics["a"],)

    asyncio.run(main())


def test_thousands_of_partitions_are_cut_into_portions(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started()
            await controller.create_topics([NewTopic("big", 4000, 1)])
            store = await nodes.store()
            assert await store.find(PartitionStateNode.path("big", 3999))
            await controller.delete_topics(["big"])
            assert await store.subtree("/brokers/topics") == []
            assert await store.subtree("/config/topics") == []
            assert await store.subtree("/admin/delete_topics") == []
            await store.close()

    asyncio.run(main())


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            a, b = await nodes.started(0), await nodes.started(1)
            blocks = await asyncio.gather(*(found.allocate_producer_ids() for found in (a, b, a, b)))
            await a.stop()
            again = await nodes.started(0)
            blocks.append(await again.allocate_producer_ids())
            given = [number for block in blocks for number in range(block.first, block.first + block.count)]
            assert sorted(given) == list(range(5000))

    asyncio.run(main())


def test_producers_are_told_to_come_again_while_no_ids_can_be_had(tmp_path: Path) -> None:
    class Failing(SqliteStore):
        async def find(self, path: str) -> Node | None:
            if path == ProducerIdsNode.path:
                raise StoreUnavailable("the disk is full")
            return await super().find(path)

    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started(0, lambda: Failing(nodes.path))
            with pytest.raises(CoordinatorLoadInProgress, match="the disk is full"):
                await controller.allocate_producer_ids()

    asyncio.run(main())


def test_another_broker_takes_over_when_the_controller_goes(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            a, b = await nodes.started(0), await nodes.started(1)
            assert a.is_active
            assert not b.is_active
            await until(lambda: set(a.cache.image.brokers) == {0, 1})
            await a.create_topics([NewTopic("t", 2, 2), NewTopic("single", 2, 1)])
            assert b.cache.image.controller_id == 0
            with pytest.raises(NotController, match="broker 0"):
                await b.create_topics([NewTopic("x")])
            b.cache.is_behind = True  # as if it had been told of its leaderships, and nobody were left to tell the rest
            await a.stop()
            await until(lambda: b.is_active and b.cache.image.controller_id == 1)
            assert not b.cache.is_behind
            assert b.cache.image.controller_epoch == 2
            assert {found.leader for found in b.cache.image.topics["t"].partitions} == {1}
            assert {found.leader for found in b.cache.image.topics["single"].partitions} == {1, NO_LEADER}
            await b.create_topics([NewTopic("x")])

    asyncio.run(main())


def test_office_is_taken_by_what_the_tree_holds_then_and_not_when_the_broker_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            reads, go_on = asyncio.Event(), asyncio.Event()

            class SlowOnce(SqliteStore):
                """Reads that nobody is in office, and is held up before it reads the epoch."""

                async def find(self, path: str) -> Node | None:
                    if path == ControllerEpochNode.path and not reads.is_set():
                        reads.set()
                        await go_on.wait()
                    return await super().find(path)

            slow = nodes.controller(lambda: SlowOnce(nodes.path))
            opened = asyncio.create_task(slow.open())
            await reads.wait()
            first = await nodes.started(0)
            go_on.set()
            await opened
            await slow.start(registration(1))
            await until(lambda: set(first.cache.image.brokers) == {0, 1})
            made = (await first.create_topics([NewTopic("t", 1, 2)]))["t"]
            assert isinstance(made, TopicImage)
            await first.stop()
            await until(lambda: slow.is_active and slow.cache.image.controller_id == 1)
            assert slow.cache.image.topics["t"].topic_id == made.topic_id

    asyncio.run(main())


def test_who_is_replaced_while_it_reads_the_tree_publishes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            reads, go_on = asyncio.Event(), asyncio.Event()

            class SlowInOffice(SqliteStore):
                async def subtree(self, path: str) -> list[Node]:
                    if await self.find(ControllerNode.path) is not None and not reads.is_set():
                        reads.set()
                        await go_on.wait()
                    return await super().subtree(path)

            slow = nodes.controller(lambda: SlowInOffice(nodes.path))
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
            await until(lambda: terms and slow.is_active)
            assert set(terms) == {9}

    asyncio.run(main())


def test_a_controller_that_was_replaced_can_write_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started(0)
            store = await nodes.store()
            await store.set(ControllerEpochNode.path, b"9")
            with pytest.raises(NotController):
                await controller.create_topics([NewTopic("t")])
            assert await store.find(TopicNode.path("t")) is None
            await store.close()
            await until(lambda: controller.is_active and controller.cache.image.controller_epoch == 9)

    asyncio.run(main())


def test_one_subscriber_that_fails_does_not_keep_the_news_from_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Delta) -> None:
        raise IndexError

    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started(0)
            heard: list[Delta] = []
            controller.cache.subscribe(broken)
            controller.cache.subscribe(heard.append)
            assert isinstance((await controller.create_topics([NewTopic("t")]))["t"], TopicImage)
            assert len(heard) == 1
            assert "IndexError" in caplog.text

    asyncio.run(main())


def test_ids_can_be_typed_on_a_command_line() -> None:
    assert not any(uuid_to_text(new_id()).startswith("-") for _ in range(500))
