"""What a broker out of office believes, and when it stands."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from kio.static.primitive import i64

from barnabas.broker.news import News
from barnabas.broker.standing import Standing
from barnabas.machines.controller.image import BrokerImage, ClusterImage, ConfigResource, PartitionImage, TopicImage
from barnabas.metadata import config_changes
from barnabas.metadata.announcements import announcements
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.sqlite import SqliteStore
from barnabas.metadata.store import Node
from barnabas.metadata.znodes import BrokerNode, ConfigChangesNode, ControllerEpochNode, ControllerNode, Registration
from barnabas.model.errors import (
    ApiError,
    BrokerIdNotRegistered,
    InvalidUpdateVersion,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownControllerId,
)
from barnabas.protocol.internal import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from barnabas.metadata.announcements import Announcement

BROKER = BrokerImage(broker_id=1, epoch=10, endpoints={})
TOPIC = TopicImage("t", UUID(int=7), (PartitionImage(0, 1, 3, (1,), (1,), 3),))
CLUSTER = ClusterImage(controller_id=2, controller_epoch=4, brokers={1: BROKER}, topics={"t": TOPIC})
SETTINGS = ConfigResource.topic("t")


class Tree:
    """A metadata tree with a controller, its term and a registration, and nothing else."""

    def __init__(self, controller_id: int = 2, epoch: int = 4, broker_epoch: int = 10) -> None:
        self.nodes = {
            ControllerNode.path: Node(ControllerNode.path, ControllerNode.encode(controller_id, 0), 0, 1, 1, 1),
            ControllerEpochNode.path: Node(ControllerEpochNode.path, ControllerEpochNode.encode(epoch), 0, 1, 1, 0),
            BrokerNode.path(1): Node(BrokerNode.path(1), b"", 0, broker_epoch, broker_epoch, 1),
        }
        self.reads = 0

    async def find_many(self, paths: Sequence[str]) -> list[Node | None]:
        self.reads += ControllerNode.path in paths
        return [self.nodes.get(path) for path in paths]


TREE: Any = Tree()


@asynccontextmanager
async def a_store(folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder / "metadata")
    await store.start()
    try:
        await store.create(ConfigChangesNode.path, parents=True)
        await store.create(ControllerNode.path, ControllerNode.encode(2, 0))
        await store.create(ControllerEpochNode.path, ControllerEpochNode.encode(4))
        yield store
    finally:
        await store.close()


async def tell(news: News, image: ClusterImage, known: ClusterImage | None = None) -> list[bool]:
    """Tell everything, or what changed; gives whether it was the whole truth each time."""
    told = []
    for message in announcements(known, image, BROKER):
        if isinstance(message, LeaderAndIsrRequest):
            await news.leader_and_isr(message)
        elif isinstance(message, UpdateMetadataRequest):
            told.append(await news.update_metadata(message))
    return told


async def test_the_whole_truth_is_believed() -> None:
    news = News(cache := MetadataCache(), lambda: TREE)
    assert await tell(news, CLUSTER) == [True]
    assert dict(cache.image.topics) == {"t": TOPIC}
    assert cache.image.controller_id == 2


async def test_a_broker_is_behind_from_what_it_leads_until_it_is_told_of_the_rest() -> None:
    news = News(cache := MetadataCache(), lambda: TREE)
    leadership, everything = announcements(None, CLUSTER, BROKER)
    assert isinstance(leadership, LeaderAndIsrRequest)
    assert isinstance(everything, UpdateMetadataRequest)
    was_behind = []
    cache.subscribe(lambda delta: was_behind.append(cache.is_behind))
    await news.leader_and_isr(leadership)
    await news.update_metadata(everything)
    assert was_behind == [True, False]


async def test_a_controller_that_was_replaced_is_not() -> None:
    news = News(cache := MetadataCache(ClusterImage(controller_epoch=5)), lambda: TREE)
    with pytest.raises(StaleControllerEpoch):
        await tell(news, CLUSTER)
    assert not cache.image.topics


@pytest.mark.parametrize(
    ("tree", "refusal"),
    [
        (Tree(epoch=3), UnknownControllerId),
        (Tree(epoch=5), StaleControllerEpoch),
        (Tree(controller_id=3), UnknownControllerId),
        (Tree(broker_epoch=9), BrokerIdNotRegistered),
        (Tree(broker_epoch=11), BrokerIdNotRegistered),
        (None, UnknownControllerId),
    ],
    ids=["a later term", "an earlier term", "another controller", "a later one", "an earlier one", "no tree"],
)
async def test_what_the_tree_does_not_bear_out_is_not(tree: Any, refusal: type[ApiError]) -> None:
    news = News(cache := MetadataCache(), lambda: tree, lambda: Registration(broker_id=1, endpoints={}))
    for message in (*numbered(0, CLUSTER), *numbered(2, replace(CLUSTER, topics={}), CLUSTER)):
        with pytest.raises(refusal):
            await take(news, [message])
    assert cache.image == ClusterImage()


async def test_the_tree_is_asked_once_for_each_term_and_registration() -> None:
    tree: Any = Tree()
    news = News(MetadataCache(), lambda: tree, lambda: Registration(broker_id=1, endpoints={}))
    for _ in range(3):
        await tell(news, CLUSTER)
    assert tree.reads == 1


async def test_what_is_for_an_earlier_registration_is_not() -> None:
    news = News(cache := MetadataCache(), lambda: TREE)
    standing = Standing(news)
    standing.registered(11)
    with pytest.raises(StaleBrokerEpoch):
        await tell(news, CLUSTER)
    standing.registered(10)
    standing.fall()
    with pytest.raises(StaleBrokerEpoch):
        await tell(news, CLUSTER)
    assert not cache.image.topics


def numbered(first: int, image: ClusterImage, known: ClusterImage | None = None) -> list[Announcement]:
    """What is told of an image, with numbers from `first` on."""
    return [
        replace(message, number=i64(number))
        for number, message in enumerate(announcements(known, image, BROKER), start=first)
    ]


async def take(news: News, messages: Iterable[Announcement]) -> None:
    for message in messages:
        if isinstance(message, LeaderAndIsrRequest):
            await news.leader_and_isr(message)
        elif isinstance(message, UpdateMetadataRequest):
            await news.update_metadata(message)
        else:
            await news.stop_replica(message)


async def test_what_the_controller_sent_before_is_refused_after_what_it_sent_later() -> None:
    news = News(cache := MetadataCache(), lambda: TREE)
    older = replace(CLUSTER, topics={})
    late = [*numbered(0, older), *numbered(2, older, CLUSTER), *numbered(4, CLUSTER, older)]
    assert {type(message) for message in late} == {LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest}
    await take(news, numbered(10, CLUSTER))
    for message in late:
        with pytest.raises(InvalidUpdateVersion):
            await take(news, [message])
    assert dict(cache.image.topics) == {"t": TOPIC}
    await take(news, numbered(12, older))
    assert not cache.image.topics


async def test_a_stop_that_was_sent_later_overtakes_what_waits_for_the_tree(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        news = News(cache := MetadataCache(), lambda: store)
        leadership, _ = numbered(0, CLUSTER)
        first = asyncio.create_task(take(news, [leadership]))
        await asyncio.sleep(0)  # it begins to read the settings of its topic
        await take(news, numbered(5, replace(CLUSTER, topics={}), CLUSTER)[:1])
        with pytest.raises(InvalidUpdateVersion):
            await first
        assert not cache.image.topics


async def test_another_controller_and_another_registration_begin_with_numbers_of_their_own() -> None:
    tree: list[Any] = [TREE]
    news = News(cache := MetadataCache(), lambda: tree[-1])
    await take(news, numbered(10, CLUSTER))
    await take(news, [replace(message, broker_epoch=i64(11)) for message in numbered(0, replace(CLUSTER, topics={}))])
    assert not cache.image.topics
    tree.append(Tree(epoch=5))
    await take(news, numbered(0, replace(CLUSTER, controller_epoch=5)))
    assert dict(cache.image.topics) == {"t": TOPIC}


async def test_a_topic_comes_with_its_settings(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        await config_changes.write(store, {SETTINGS: {"retention.ms": "1"}})
        news = News(cache := MetadataCache(), lambda: store)
        await news.skip_settings(store)
        seen = []
        cache.subscribe(lambda delta: seen.append(dict(delta.after.topic_config("t"))))
        await tell(news, CLUSTER)
        assert seen[0] == {"retention.ms": "1"}


async def test_settings_change_and_go_with_their_topic(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        news = News(cache := MetadataCache(), lambda: store)
        await news.skip_settings(store)
        await tell(news, CLUSTER)
        await config_changes.write(store, {SETTINGS: {"retention.ms": "2"}})
        await news.follow_settings(store)
        assert cache.image.topic_config("t") == {"retention.ms": "2"}
        await tell(news, ClusterImage(controller_id=2, controller_epoch=4, brokers={1: BROKER}), CLUSTER)
        assert not cache.image.configs


async def test_standing_tells_who_acts_once() -> None:
    class Actor:
        def __init__(self) -> None:
            self.done: list[str] = []

        def resume(self) -> None:
            self.done.append("resume")

        def resign(self) -> None:
            self.done.append("resign")

    standing = Standing(News(MetadataCache(), lambda: None))
    standing.actor = actor = Actor()
    standing.fall()
    standing.rise()
    standing.rise()
    await standing.stood()
    standing.fall()
    standing.fall()
    assert actor.done == ["resume", "resign"]
