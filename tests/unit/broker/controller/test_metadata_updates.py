"""Which metadata updates a broker applies, and when it is fenced."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from kio.static.primitive import i64

from barnabas.broker.controller.fencing import BrokerFence
from barnabas.broker.controller.metadata_updates import MetadataUpdates
from barnabas.machines.controller.image import BrokerImage, ClusterImage, ConfigResource, PartitionImage, TopicImage
from barnabas.metadata import config_changes
from barnabas.metadata.images.announcements import announcements
from barnabas.metadata.images.cache import MetadataCache
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.store import StoredNode
from barnabas.metadata.znodes import BrokerNode, ConfigChangesNode, ControllerEpochNode, ControllerNode, Registration
from barnabas.model.errors import (
    ApiError,
    BrokerIdNotRegistered,
    InvalidUpdateVersion,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownControllerId,
)
from barnabas.protocol.messages.inter_broker import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from barnabas.metadata.images.announcements import Announcement

BROKER = BrokerImage(broker_id=1, epoch=10, endpoints={})
TOPIC = TopicImage("t", UUID(int=7), (PartitionImage(0, 1, 3, (1,), (1,), 3),))
CLUSTER = ClusterImage(controller_id=2, controller_epoch=4, brokers={1: BROKER}, topics={"t": TOPIC})
SETTINGS = ConfigResource.topic("t")


class Tree:
    """A metadata tree with a controller, its term and a registration, and nothing else."""

    def __init__(self, controller_id: int = 2, epoch: int = 4, broker_epoch: int = 10) -> None:
        self.nodes = {
            ControllerNode.path: StoredNode(ControllerNode.path, ControllerNode.encode(controller_id, 0), 0, 1, 1, 1),
            ControllerEpochNode.path: StoredNode(
                ControllerEpochNode.path, ControllerEpochNode.encode(epoch), 0, 1, 1, 0
            ),
            BrokerNode.path(1): StoredNode(BrokerNode.path(1), b"", 0, broker_epoch, broker_epoch, 1),
        }
        self.reads = 0

    async def find_many(self, paths: Sequence[str]) -> list[StoredNode | None]:
        self.reads += ControllerNode.path in paths
        return [self.nodes.get(path) for path in paths]


TREE: Any = Tree()


@asynccontextmanager
async def a_store(folder: Path, kind: type[SqliteStore] = SqliteStore) -> AsyncIterator[SqliteStore]:
    store = kind(folder / "metadata")
    await store.start()
    try:
        await store.create(ConfigChangesNode.path, parents=True)
        await store.create(ControllerNode.path, ControllerNode.encode(2, 0))
        await store.create(ControllerEpochNode.path, ControllerEpochNode.encode(4))
        yield store
    finally:
        await store.close()


async def send(updates: MetadataUpdates, image: ClusterImage, known: ClusterImage | None = None) -> list[bool]:
    """Send everything, or what changed; gives whether each UpdateMetadata was the whole image."""
    was_whole = []
    for message in announcements(known, image, BROKER):
        if isinstance(message, LeaderAndIsrRequest):
            await updates.leader_and_isr(message)
        elif isinstance(message, UpdateMetadataRequest):
            was_whole.append(await updates.update_metadata(message))
    return was_whole


async def test_a_full_update_is_applied() -> None:
    updates = MetadataUpdates(cache := MetadataCache(), lambda: TREE)
    assert await send(updates, CLUSTER) == [True]
    assert dict(cache.image.topics) == {"t": TOPIC}
    assert cache.image.controller_id == 2


async def test_a_broker_is_behind_from_leader_and_isr_until_update_metadata() -> None:
    updates = MetadataUpdates(cache := MetadataCache(), lambda: TREE)
    leadership, everything = announcements(None, CLUSTER, BROKER)
    assert isinstance(leadership, LeaderAndIsrRequest)
    assert isinstance(everything, UpdateMetadataRequest)
    was_behind = []
    cache.subscribe(lambda delta: was_behind.append(cache.is_behind))
    await updates.leader_and_isr(leadership)
    await updates.update_metadata(everything)
    assert was_behind == [True, False]


async def test_a_controller_that_was_replaced_is_refused() -> None:
    updates = MetadataUpdates(cache := MetadataCache(ClusterImage(controller_epoch=5)), lambda: TREE)
    with pytest.raises(StaleControllerEpoch):
        await send(updates, CLUSTER)
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
async def test_epochs_that_the_tree_does_not_have_are_refused(tree: Any, refusal: type[ApiError]) -> None:
    updates = MetadataUpdates(cache := MetadataCache(), lambda: tree, lambda: Registration(broker_id=1, endpoints={}))
    for message in (*numbered(0, CLUSTER), *numbered(2, replace(CLUSTER, topics={}), CLUSTER)):
        with pytest.raises(refusal):
            await apply(updates, [message])
    assert cache.image == ClusterImage()


async def test_the_tree_is_asked_once_for_each_term_and_registration() -> None:
    tree: Any = Tree()
    updates = MetadataUpdates(MetadataCache(), lambda: tree, lambda: Registration(broker_id=1, endpoints={}))
    for _ in range(3):
        await send(updates, CLUSTER)
    assert tree.reads == 1


async def test_a_message_for_an_earlier_registration_is_refused() -> None:
    updates = MetadataUpdates(cache := MetadataCache(), lambda: TREE)
    fence = BrokerFence(updates)
    fence.registered(11)
    with pytest.raises(StaleBrokerEpoch):
        await send(updates, CLUSTER)
    fence.registered(10)
    fence.fence()
    with pytest.raises(StaleBrokerEpoch):
        await send(updates, CLUSTER)
    assert not cache.image.topics


def numbered(first: int, image: ClusterImage, known: ClusterImage | None = None) -> list[Announcement]:
    """The messages for an image, with numbers from `first` on."""
    return [
        replace(message, number=i64(number))
        for number, message in enumerate(announcements(known, image, BROKER), start=first)
    ]


async def apply(updates: MetadataUpdates, messages: Iterable[Announcement]) -> None:
    for message in messages:
        if isinstance(message, LeaderAndIsrRequest):
            await updates.leader_and_isr(message)
        elif isinstance(message, UpdateMetadataRequest):
            await updates.update_metadata(message)
        else:
            await updates.verify_stop(message)
            updates.stop_replica(message, BROKER.broker_id)


async def test_what_the_controller_sent_before_is_refused_after_what_it_sent_later() -> None:
    updates = MetadataUpdates(cache := MetadataCache(), lambda: TREE)
    older = replace(CLUSTER, topics={})
    late = [*numbered(0, older), *numbered(2, older, CLUSTER), *numbered(4, CLUSTER, older)]
    assert {type(message) for message in late} == {LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest}
    await apply(updates, numbered(10, CLUSTER))
    for message in late:
        with pytest.raises(InvalidUpdateVersion):
            await apply(updates, [message])
    assert dict(cache.image.topics) == {"t": TOPIC}
    await apply(updates, numbered(12, older))
    assert not cache.image.topics


async def test_a_stop_that_was_sent_later_overtakes_what_waits_for_the_tree(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        updates = MetadataUpdates(cache := MetadataCache(), lambda: store)
        leadership, _ = numbered(0, CLUSTER)
        first = asyncio.create_task(apply(updates, [leadership]))
        await asyncio.sleep(0)  # it begins to read the settings of its topic
        await apply(updates, numbered(5, replace(CLUSTER, topics={}), CLUSTER)[:1])
        with pytest.raises(InvalidUpdateVersion):
            await first
        assert not cache.image.topics


async def test_another_controller_and_another_registration_begin_with_numbers_of_their_own() -> None:
    tree: list[Any] = [TREE]
    updates = MetadataUpdates(cache := MetadataCache(), lambda: tree[-1])
    await apply(updates, numbered(10, CLUSTER))
    await apply(
        updates, [replace(message, broker_epoch=i64(11)) for message in numbered(0, replace(CLUSTER, topics={}))]
    )
    assert not cache.image.topics
    tree.append(Tree(epoch=5))
    await apply(updates, numbered(0, replace(CLUSTER, controller_epoch=5)))
    assert dict(cache.image.topics) == {"t": TOPIC}


async def test_a_topic_comes_with_its_settings(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        await config_changes.write(store, {SETTINGS: {"retention.ms": "1"}})
        updates = MetadataUpdates(cache := MetadataCache(), lambda: store)
        await updates.skip_settings(store)
        seen = []
        cache.subscribe(lambda delta: seen.append(dict(delta.after.topic_config("t"))))
        await send(updates, CLUSTER)
        assert seen[0] == {"retention.ms": "1"}


async def test_settings_change_and_go_with_their_topic(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        updates = MetadataUpdates(cache := MetadataCache(), lambda: store)
        await updates.skip_settings(store)
        await send(updates, CLUSTER)
        await config_changes.write(store, {SETTINGS: {"retention.ms": "2"}})
        await updates.follow_settings(store)
        assert cache.image.topic_config("t") == {"retention.ms": "2"}
        await send(updates, ClusterImage(controller_id=2, controller_epoch=4, brokers={1: BROKER}), CLUSTER)
        assert not cache.image.configs


class CountedReads(SqliteStore):
    """Counts how often somebody looks for notes."""

    looks = 0

    async def children(self, path: str) -> list[str]:
        self.looks += path == ConfigChangesNode.path
        return await super().children(path)


async def test_who_has_to_know_all_settings_does_and_many_share_a_look(tmp_path: Path) -> None:
    group = ConfigResource("groups", "workers")
    async with a_store(tmp_path, CountedReads) as store:
        assert isinstance(store, CountedReads)
        updates = MetadataUpdates(cache := MetadataCache(), lambda: store)
        await updates.skip_settings(store)
        await send(updates, CLUSTER)
        store.looks = 0
        await config_changes.write(store, {group: {"share.auto.offset.reset": "earliest"}})
        written = store.looks
        read = partial(updates.follow_settings, store)
        await asyncio.gather(*(updates.catch_up_with_settings(read) for _ in range(100)))
        assert cache.image.config(group) == {"share.auto.offset.reset": "earliest"}
        assert store.looks - written <= 2


class Part:
    """Notes what is called; raises while it `fails`."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails = False

    def resume(self) -> None:
        self.done.append("resume")
        if self.fails:
            raise OSError("no space left")

    def resign(self) -> None:
        self.done.append("resign")
        if self.fails:
            raise OSError("no space left")


async def test_a_fence_has_its_parts_resume_and_resign_once() -> None:
    fence = BrokerFence(MetadataUpdates(MetadataCache(), lambda: None))
    fence.subscribe(part := Part())
    fence.fence()
    fence.registered(10)
    fence.unfence(10)
    fence.unfence(10)
    await fence.unfenced()
    fence.fence()
    fence.fence()
    assert part.done == ["resume", "resign"]


async def test_a_registration_that_has_ended_unfences_nobody() -> None:
    fence = BrokerFence(MetadataUpdates(MetadataCache(), lambda: None))
    fence.registered(10)
    fence.fence()
    fence.unfence(10)
    assert fence.is_fenced
    fence.ended(11)
    fence.unfence(11)
    assert fence.is_fenced
    fence.unfence(12)
    await fence.unfenced()


async def test_a_broker_that_is_held_stays_fenced_whatever_the_controller_sends() -> None:
    fence = BrokerFence(MetadataUpdates(MetadataCache(), lambda: None))
    fence.registered(10)
    fence.hold()
    fence.unfence(20)
    assert fence.is_fenced
    fence.release()
    fence.unfence(20)
    await fence.unfenced()


async def test_a_part_that_cannot_resume_is_reported_by_its_name() -> None:
    failures: list[tuple[str, str]] = []
    fence = BrokerFence(MetadataUpdates(MetadataCache(), lambda: None))
    fence.on_failure(lambda name, error: failures.append((name, str(error))))
    fence.subscribe(part := Part())
    fence.registered(10)
    part.fails = True
    fence.unfence(10)
    fence.fence()
    assert failures == [("Part.resume", "no space left"), ("Part.resign", "no space left")]
