"""The controller's shell over the embedded store: start, requests, failover, session loss."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from barnabas.broker.controller import Controller, new_id
from barnabas.machines.controller.image import ALL_BROKERS, NO_LEADER, ConfigResource, Endpoint, TopicImage
from barnabas.machines.controller.requests import LogDirFailed, NewPartitions, NewTopic
from barnabas.metadata import sqlite_tree
from barnabas.metadata.announcements import announcements
from barnabas.metadata.cache import Delta, MetadataCache
from barnabas.metadata.membership import DuplicateBroker
from barnabas.metadata.sqlite import SqliteStore
from barnabas.metadata.store import StoreUnavailable
from barnabas.metadata.znodes import (
    BrokerNode,
    ClusterIdNode,
    ControllerEpochNode,
    DeletionNode,
    PartitionStateNode,
    ProducerIdsNode,
    Registration,
    TopicNode,
)
from barnabas.model.clock import ManualClock
from barnabas.model.errors import CoordinatorLoadInProgress, NotController, RequestTimedOut, TopicAlreadyExists
from barnabas.model.ids import uuid_from_text, uuid_to_text
from barnabas.protocol.internal import UpdateMetadataRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from barnabas.metadata.store import Node, Operation


def registration(broker_id: int = 0) -> Registration:
    return Registration(
        broker_id=broker_id,
        endpoints={"PLAINTEXT": Endpoint("localhost", 9092 + broker_id)},
        incarnation_id=uuid4(),
    )


class Cluster:
    """Controllers over one file, all closed at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.controllers: list[Controller] = []

    def controller(self) -> Controller:
        made = Controller(lambda: SqliteStore(self.path), MetadataCache(), ManualClock())
        self.controllers.append(made)
        return made

    async def started(self, broker_id: int = 0) -> Controller:
        made = self.controller()
        await made.start(registration(broker_id))
        return made

    async def store(self) -> SqliteStore:
        store = SqliteStore(self.path)
        await store.start()
        return store


@contextlib.asynccontextmanager
async def cluster(path: Path) -> AsyncIterator[Cluster]:
    found = Cluster(path / "metadata.db")
    try:
        async with asyncio.timeout(20):
            yield found
    finally:
        for controller in found.controllers:
            await controller.stop()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def expire(path: Path, session: int) -> None:
    connection = sqlite_tree.connect(path, 5.0)
    with sqlite_tree.transaction(connection):
        sqlite_tree.end_session(connection, session)
    connection.close()


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
            await first.stop()
            second = await nodes.started()
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
            controller = Controller(lambda: Failing(nodes.path), MetadataCache(), ManualClock())
            nodes.controllers.append(controller)
            await controller.start(registration())
            with pytest.raises(CoordinatorLoadInProgress, match="the disk is full"):
                await controller.allocate_producer_ids()

    asyncio.run(main())


def test_a_second_broker_with_the_same_id_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            await nodes.started(3)
            with pytest.raises(DuplicateBroker, match=r"id 3 is already up at localhost:9095.*another broker.id"):
                await nodes.started(3)

    asyncio.run(main())


def test_its_own_stale_registration_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            stale = await nodes.store()
            await nodes.controller().open()
            killed = registration(0)
            await stale.create(BrokerNode.path(0), BrokerNode.encode(killed, 0), ephemeral=True)
            again = nodes.controller()
            await again.start(registration(0), killed.incarnation_id)
            assert again.is_active
            await stale.close()
            assert set(again.cache.image.brokers) == {0}

    asyncio.run(main())


def test_a_start_waits_for_another_registration_to_vanish(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            first = await nodes.started(0)
            patient = Controller(lambda: SqliteStore(nodes.path), MetadataCache(), ManualClock(), patience=10)
            nodes.controllers.append(patient)
            starting = asyncio.create_task(patient.start(registration(0)))
            await first.stop()
            await starting
            assert patient.broker_epoch > first.broker_epoch

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
            await until(lambda: controller.is_active)
            assert controller.cache.image.controller_epoch == 9

    asyncio.run(main())


def test_registers_again_after_its_session_was_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started(0)
            await controller.create_topics([NewTopic("t")])
            epoch = controller.broker_epoch
            store = await nodes.store()
            node = await store.get(BrokerNode.path(0))
            expire(nodes.path, node.owner)
            await until(lambda: controller.broker_epoch > epoch and controller.is_active)
            assert controller.cache.image.topics["t"].partitions[0].leader == 0
            await controller.create_topics([NewTopic("u")])
            await store.close()

    asyncio.run(main())


def test_registers_again_when_the_store_comes_back_after_its_session_was_ended(tmp_path: Path) -> None:
    class Away(SqliteStore):
        async def start(self) -> None:
            raise StoreUnavailable("not yet")

    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            stores = iter([SqliteStore(nodes.path), Away(nodes.path), SqliteStore(nodes.path)])
            controller = Controller(lambda: next(stores), MetadataCache(), ManualClock())
            nodes.controllers.append(controller)
            await controller.start(registration(0))
            epoch = controller.broker_epoch
            store = await nodes.store()
            expire(nodes.path, (await store.get(BrokerNode.path(0))).owner)
            await until(lambda: controller.broker_epoch > epoch and controller.is_active)
            await store.close()

    asyncio.run(main())


def test_a_store_that_lost_its_tree_is_not_taken_for_a_new_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            empty = tmp_path / "empty.db"
            stores = iter([SqliteStore(nodes.path), SqliteStore(empty)])
            controller = Controller(lambda: next(stores, SqliteStore(nodes.path)), MetadataCache(), ManualClock())
            nodes.controllers.append(controller)
            await controller.start(registration(0))
            await controller.create_topics([NewTopic("t")])
            epoch = controller.broker_epoch
            store = await nodes.store()
            expire(nodes.path, (await store.get(BrokerNode.path(0))).owner)
            await until(lambda: "the cluster's id" in caplog.text)
            assert "t" in controller.cache.image.topics
            await until(lambda: controller.broker_epoch > epoch and controller.is_active)
            assert controller.cache.image.topics["t"].partitions[0].leader == 0
            await store.close()
            untouched = SqliteStore(empty)
            await untouched.start()
            assert await untouched.children("/") == []
            await untouched.close()

    asyncio.run(main())


class Taken(SqliteStore):
    """A store before whose session another broker has registered with the id 0, from an address that is not up."""

    async def start(self) -> None:
        self.rival = SqliteStore(self._path)
        await self.rival.start()
        other = Registration(broker_id=0, endpoints={"PLAINTEXT": Endpoint("localhost", 1)}, incarnation_id=uuid4())
        await self.rival.create(BrokerNode.path(0), BrokerNode.encode(other, 0), ephemeral=True)
        await super().start()

    async def close(self) -> None:
        await super().close()
        await self.rival.close()


@pytest.mark.parametrize("patience", [0, 0.2])
def test_a_broker_whose_id_another_one_has_taken_and_keeps_is_ousted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr("barnabas.broker.controller._RETRY_SECONDS", 0.01)

    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            stores = iter([first := SqliteStore(nodes.path), Taken(nodes.path)])
            controller = Controller(lambda: next(stores), MetadataCache(), ManualClock(), patience=patience)
            nodes.controllers.append(controller)
            await controller.start(registration(0))
            ousted = asyncio.Event()
            controller.on_ousted = ousted.set
            expire(nodes.path, first.session_id)
            await ousted.wait()
            assert isinstance(controller.ousted, DuplicateBroker)
            assert "id 0 is already up at localhost:1" in str(controller.ousted)
            assert not controller.is_active

    asyncio.run(main())


def test_a_broker_whose_id_another_one_answers_for_tries_again_before_it_is_ousted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answers(endpoint: Endpoint) -> bool:
        return True

    monkeypatch.setattr("barnabas.broker.controller.is_accepted", answers)
    monkeypatch.setattr("barnabas.broker.controller._RETRY_SECONDS", 0.01)

    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            stores = iter([first := SqliteStore(nodes.path), taken := Taken(nodes.path)])
            controller = Controller(lambda: next(stores), MetadataCache(), ManualClock(), patience=600)
            nodes.controllers.append(controller)
            await controller.start(registration(0))
            epoch = controller.broker_epoch
            expire(nodes.path, first.session_id)
            await until(lambda: caplog.text.count("has to stop in ") > 1)
            assert controller.ousted is None
            await taken.rival.delete(BrokerNode.path(0))
            await until(lambda: controller.broker_epoch > epoch and controller.is_active)

    asyncio.run(main())


def test_registers_again_after_its_registration_was_removed(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started(0)
            epoch = controller.broker_epoch
            store = await nodes.store()
            await store.delete(BrokerNode.path(0))
            await until(lambda: controller.broker_epoch > epoch)
            await until(lambda: controller.cache.image.brokers[0].epoch == controller.broker_epoch)
            await store.close()

    asyncio.run(main())


def test_a_registration_whose_answer_got_lost_counts(tmp_path: Path) -> None:
    class Lossy(SqliteStore):
        lost = 0

        async def create(
            self,
            path: str,
            data: bytes = b"",
            *,
            ephemeral: bool = False,
            sequential: bool = False,
            parents: bool = False,
        ) -> str:
            made = await super().create(path, data, ephemeral=ephemeral, sequential=sequential, parents=parents)
            if path == BrokerNode.path(1) and self.lost:
                self.lost -= 1
                raise StoreUnavailable("the connection broke")
            return made

    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            office = await nodes.started(0)
            lossy = Lossy(nodes.path)
            member = Controller(lambda: lossy, MetadataCache(), ManualClock())
            nodes.controllers.append(member)
            await member.start(registration(1))
            first = member.broker_epoch
            lossy.lost = 1
            store = await nodes.store()
            await store.delete(BrokerNode.path(1))
            await until(lambda: office.cache.image.brokers.get(1, office.cache.image.brokers[0]).epoch > first)
            assert member.broker_epoch == first
            for message in announcements(None, office.cache.image, office.cache.image.brokers[1]):
                if isinstance(message, UpdateMetadataRequest):
                    await member.update_metadata(message)
            await member.standing.stood()
            await until(lambda: member.broker_epoch == office.cache.image.brokers[1].epoch)
            async with asyncio.timeout(1):
                await member.standing.stood()  # although it is told nothing more
            await store.close()

    asyncio.run(main())


def test_loads_the_tree_again_when_someone_else_wrote_to_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started(0)
            store = await nodes.store()
            topic_id = UUID(int=99)
            await store.create(TopicNode.path("t"), TopicNode.encode(topic_id, []))
            assert isinstance((await controller.create_topics([NewTopic("t")]))["t"], TopicAlreadyExists)
            assert controller.cache.image.topics["t"].topic_id == topic_id
            await store.close()

    asyncio.run(main())


class Meddled(SqliteStore):
    """A store in which somebody makes a topic just before its broker does; `meddling` is what else happens then."""

    meddling: Callable[[], Awaitable[None]] | None = None

    async def multi(self, operations: Sequence[Operation]) -> None:
        if self.meddling is not None:
            meddling, self.meddling = self.meddling, None
            await self.create(TopicNode.path("t"), TopicNode.encode(UUID(int=99), []))
            await meddling()
        await super().multi(operations)


def test_a_broker_that_goes_while_the_tree_is_loaded_again_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            store = Meddled(nodes.path)
            controller = Controller(lambda: store, MetadataCache(), ManualClock())
            nodes.controllers.append(controller)
            await controller.start(registration(0))
            other = await nodes.store()
            await other.create(BrokerNode.path(1), BrokerNode.encode(registration(1), 0), ephemeral=True)
            await until(lambda: 1 in controller.cache.image.brokers)
            await controller.create_topics([NewTopic("r", 2, 2)])
            assert {found.leader for found in controller.cache.image.topics["r"].partitions} == {0, 1}
            store.meddling = other.close
            assert isinstance((await controller.create_topics([NewTopic("t")]))["t"], TopicAlreadyExists)
            await until(lambda: {found.leader for found in controller.cache.image.topics["r"].partitions} == {0})

    asyncio.run(main())


def test_failed_disks_are_remembered_when_the_tree_is_loaded_again(tmp_path: Path) -> None:
    async def nothing() -> None:
        """Only the topic is made."""

    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            store = Meddled(nodes.path)
            controller = Controller(lambda: store, MetadataCache(), ManualClock())
            nodes.controllers.append(controller)
            await controller.start(registration(0))
            await controller.create_topics([NewTopic("r")])
            await controller.decide(LogDirFailed(0, [("r", 0)]))
            store.meddling = nothing
            assert isinstance((await controller.create_topics([NewTopic("t")]))["t"], TopicAlreadyExists)
            assert controller.cache.image.failed == {0: {("r", 0)}}
            assert controller.cache.image.topics["r"].partitions[0].leader == NO_LEADER

    asyncio.run(main())


def test_makes_folders_that_another_program_left_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            store = await nodes.store()
            await store.create(ClusterIdNode.path, ClusterIdNode.encode("given"), parents=True)
            controller = await nodes.started(0)
            assert controller.cache.image.cluster_id == "given"
            assert await controller.alter_configs({ALL_BROKERS: {"a": "1"}}) == {ALL_BROKERS: None}
            await store.close()

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


def test_finishes_a_deletion_that_was_cut_short(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            controller = await nodes.started(0)
            await controller.create_topics([NewTopic("t", 2, 1), NewTopic("kept")])
            await controller.stop()
            store = await nodes.store()
            await store.create(DeletionNode.path("t"))
            await store.delete(PartitionStateNode.path("t", 1))
            again = nodes.controller()
            assert set((await again.open()).topics) == {"kept"}
            await again.start(registration())
            assert await store.find(TopicNode.path("t")) is None
            assert await store.subtree("/admin/delete_topics") == []
            assert isinstance((await again.create_topics([NewTopic("t")]))["t"], TopicImage)
            await store.close()

    asyncio.run(main())


def test_says_that_the_store_failed_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    class Failing(SqliteStore):
        failing = False

        async def multi(self, operations: object) -> None:
            if self.failing:
                raise StoreUnavailable("the disk is full")
            await super().multi(operations)  # type: ignore[arg-type]  # passed on as it came

    async def main() -> None:
        async with cluster(tmp_path) as nodes:
            store = Failing(nodes.path)
            controller = Controller(lambda: store, MetadataCache(), ManualClock())
            nodes.controllers.append(controller)
            await controller.start(registration())
            store.failing = True
            with pytest.raises(RequestTimedOut, match="the disk is full"):
                await controller.create_topics([NewTopic("t")])
            store.failing = False
            await until(lambda: controller.is_active)
            assert isinstance((await controller.create_topics([NewTopic("t")]))["t"], TopicImage)

    asyncio.run(main())


def test_ids_can_be_typed_on_a_command_line() -> None:
    assert not any(uuid_to_text(new_id()).startswith("-") for _ in range(500))
