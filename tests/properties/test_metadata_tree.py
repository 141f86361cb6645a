"""What clients are told and what is stored are the same, after any series of decisions and wherever a crash cut one."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.controller.membership import ClusterMembership, MembershipOptions
from barnabas.machines.controller.image import ClusterImage, ConfigResource, Endpoint
from barnabas.machines.controller.requests import NewPartitions, TopicToCreate
from barnabas.metadata.images.cache import MetadataCache
from barnabas.metadata.images.loading import load
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.znodes import Registration
from barnabas.model.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.stores.store import Operation

Step = Callable[[ClusterMembership], Awaitable[object]]

topics = st.sampled_from(["a", "b.c", "b_c", "state", "partitions"])
configs = st.dictionaries(st.sampled_from(["retention.ms", "cleanup.policy"]), st.sampled_from(["1", "2"]), max_size=2)


def _create(name: str, partitions: int, overrides: dict[str, str]) -> Step:
    return lambda member: member.controller.create_topics([TopicToCreate(name, partitions, 1, configs=overrides)])


def _delete(name: str) -> Step:
    return lambda member: member.controller.delete_topics([name])


def _extend(name: str, partitions: int) -> Step:
    return lambda member: member.controller.create_partitions([NewPartitions(name, partitions)])


def _configure(name: str, overrides: dict[str, str]) -> Step:
    return lambda member: member.controller.alter_configs({ConfigResource.topic(name): overrides})


steps = st.one_of(
    st.builds(_create, topics, st.integers(1, 4), configs),
    st.builds(_delete, topics),
    st.builds(_extend, topics, st.integers(1, 8)),
    st.builds(_configure, topics, configs),
)


class Crash(Exception):
    pass


class Crashing(SqliteStore):
    """Cuts each multi into single operations (with the guard), and dies after some of them."""

    writes_left = 10**9

    async def multi(self, operations: Sequence[Operation]) -> None:
        guard, *rest = operations
        if not rest or not guard.path.startswith("/controller_epoch"):
            await super().multi(operations)
            return
        for operation in rest:
            if self.writes_left == 0:
                raise Crash
            self.writes_left -= 1
            await super().multi([guard, operation])


def _member(store: SqliteStore) -> ClusterMembership:
    ids = count(1)
    options = MembershipOptions(make_id=lambda: UUID(int=next(ids) * 7 + 2**70))
    return ClusterMembership(lambda: store, MetadataCache(), ManualClock(), options)


REGISTRATION = Registration(broker_id=1, endpoints={"PLAINTEXT": Endpoint("h", 9092)}, features={"f": (0, 1)})


async def _stored(path: Path) -> ClusterImage:
    store = SqliteStore(path)
    await store.start()
    loaded = await load(store)
    await store.close()
    assert loaded.deleting == ()
    return loaded.image


@settings(max_examples=25, deadline=None)
@given(st.lists(steps, max_size=12))
def test_the_image_is_the_tree(actions: list[Step]) -> None:
    async def main(path: Path) -> None:
        member = _member(SqliteStore(path))
        await member.start(REGISTRATION)
        for action in actions:
            await action(member)
            assert member.cache.image == await _stored(path)
        await member.stop()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder, "metadata.db")))


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=1, max_size=6), st.integers(0, 40))
def test_the_next_controller_finishes_what_a_crash_cut(actions: list[Step], survived: int) -> None:
    async def main(path: Path) -> None:
        store = Crashing(path)
        member = _member(store)
        await member.start(REGISTRATION)
        store.writes_left = survived
        before = member.cache.image
        try:
            for action in actions:
                before = member.cache.image
                await action(member)
        except Crash:
            pass
        await member.stop()

        successor = _member(SqliteStore(path))
        await successor.open()
        await successor.start(REGISTRATION)
        image = successor.cache.image
        assert image == await _stored(path)
        for topic in image.topics.values():
            assert all(partition.leader == 1 for partition in topic.partitions)
        for name, topic in before.topics.items():
            kept = image.topics.get(name)
            if kept is not None and kept.topic_id == topic.topic_id:
                assert kept.partitions[: len(topic.partitions)] == topic.partitions
        await successor.controller.create_topics([TopicToCreate("afterwards", 1, 1)])
        assert successor.cache.image == await _stored(path)
        await successor.stop()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder, "metadata.db")))
