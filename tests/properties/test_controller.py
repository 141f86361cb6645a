"""What a controller keeps, whatever it is asked and whoever comes and goes; and that the tree tells the next one."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.machines.controller.changes import TopicChanged
from barnabas.machines.controller.elections import NO_STATE
from barnabas.machines.controller.image import NO_LEADER, BrokerImage, ClusterImage, ConfigResource
from barnabas.machines.controller.machine import ControllerMachine
from barnabas.machines.controller.requests import (
    AlterConfigs,
    AlterIsr,
    CreatePartitions,
    CreateTopics,
    ElectLeaders,
    IsrChange,
    LogDirFailed,
    NewPartitions,
    Reassign,
    Registered,
    Request,
    ShutDown,
    TopicToCreate,
)
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.metadata.images.loading import load
from barnabas.metadata.images.writes import operations
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.topic_znodes import TopicsNode
from tests.support.controllers import brokers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.machines.controller.image import PartitionImage

BROKERS = (1, 2, 3, 4)
KEYS = [("t", index) for index in range(3)]
UNCLEAN = "unclean.leader.election.enable"

sets = st.permutations(BROKERS).flatmap(lambda order: st.integers(1, 4).map(lambda number: tuple(order[:number])))
restarts = st.dictionaries(st.sampled_from(BROKERS), st.sampled_from([10, 11]), max_size=4)
steps = st.one_of(
    st.tuples(st.just("brokers"), restarts),
    st.tuples(st.just("isr"), st.sampled_from(KEYS), sets),
    st.tuples(st.just("reassign"), st.sampled_from(KEYS), sets | st.none()),
    st.tuples(st.just("elect"), st.sampled_from(["preferred", "unclean"])),
    st.tuples(st.just("stop"), st.sampled_from(BROKERS)),
    st.tuples(st.just("disk"), st.sampled_from(BROKERS), st.sampled_from(KEYS)),
    st.tuples(st.just("allow"), st.booleans()),
    st.tuples(st.just("more"), st.integers(1, 3)),
)


def registered(epochs: Mapping[int, int]) -> dict[int, BrokerImage]:
    found: dict[int, BrokerImage] = {}
    for broker, epoch in epochs.items():
        found |= brokers(broker, epoch=epoch)
    return found


def requested(image: ClusterImage, step: tuple[object, ...]) -> Request | None:
    """A request as a well-behaved broker or client makes it."""
    match step:
        case "brokers", dict(epochs):
            return Registered(registered(epochs))
        case "isr", (str(topic), int(index)), tuple(wanted):
            partition = image.partition(topic, index)
            if partition is None or partition.leader == NO_LEADER:
                return None
            isr = tuple(each for each in partition.replicas if each in wanted or each == partition.leader)
            topic_id = image.topics[topic].topic_id
            change = IsrChange(topic_id, index, partition.leader_epoch, partition.partition_epoch, isr)
            return AlterIsr(partition.leader, image.brokers[partition.leader].epoch, [change])
        case "reassign", (str(topic), int(index)), target:
            return Reassign({(topic, index): target})  # type: ignore[dict-item]  # a tuple of ids, or None
        case "elect", "preferred":
            return ElectLeaders("preferred")
        case "elect", _:
            return ElectLeaders("unclean")
        case "stop", int(broker):
            return ShutDown(broker, image.brokers[broker].epoch) if broker in image.brokers else None
        case "disk", int(broker), (str(topic), int(index)):
            return LogDirFailed(broker, [(topic, index)])
        case "allow", bool(allowed):
            return AlterConfigs({ConfigResource.topic("t"): {UNCLEAN: str(allowed).lower()}})
        case "more", int(number):
            return CreatePartitions([NewPartitions("t", number)])
    raise AssertionError(step)


def started() -> ControllerMachine:
    image = ClusterImage(brokers=brokers(*BROKERS), features_epoch=0)
    machine = ControllerMachine(image, TopicDefaults(), lambda: UUID(int=77))
    machine.replay(machine.handle(CreateTopics([TopicToCreate("t", 2, 3)])).changes)
    return machine


def images(actions: Iterable[tuple[object, ...]]) -> list[tuple[Request | None, ClusterImage]]:
    """Every image on the way, each with the request that led there."""
    machine = started()
    seen: list[tuple[Request | None, ClusterImage]] = [(None, machine.image)]
    for step in actions:
        request = requested(machine.image, step)
        if request is None:
            continue
        outcome = machine.handle(request)
        for change in outcome.changes:
            if isinstance(change, TopicChanged) and change.before is not None:
                assert machine.image.topics[change.before.name] is change.before
        machine.replay(outcome.changes)
        seen.append((request, machine.image))
    return seen


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=25))
def test_every_image_can_stand(actions: list[tuple[object, ...]]) -> None:
    for _, image in images(actions):
        for partition in image.topics["t"].partitions:
            assert len(set(partition.replicas)) == len(partition.replicas) > 0
            assert set(partition.replicas) >= {*partition.adding, *partition.removing}
            if partition.partition_epoch == NO_STATE:
                assert (partition.leader, partition.isr) == (NO_LEADER, ())
                continue
            assert partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            if partition.leader != NO_LEADER:
                assert partition.leader in partition.isr
                assert partition.leader not in image.offline_replicas("t", partition)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=25))
def test_every_change_has_its_epoch_and_nobody_gets_in_sync_by_itself(actions: list[tuple[object, ...]]) -> None:
    for (_, before), (request, after) in pairwise(images(actions)):
        unclean = request == ElectLeaders("unclean") or after.topic_config("t").get(UNCLEAN) == "true"
        for old, new in zip(before.topics["t"].partitions, after.topics["t"].partitions, strict=False):
            if old == new or old.partition_epoch == NO_STATE:
                continue
            assert new.partition_epoch == old.partition_epoch + 1
            assert new.leader_epoch - old.leader_epoch in (0, 1)
            if (new.leader, set(new.replicas)) != (old.leader, set(old.replicas)):
                assert new.leader_epoch == old.leader_epoch + 1
            if not isinstance(request, AlterIsr):
                assert set(new.isr) <= set(old.isr) or unclean


async def _store(path: Path, seen: list[ClusterImage], cut: int) -> list[tuple[PartitionImage, ...]]:
    """Write images one after the other, but stop after some operations; gives what a next controller finds."""
    store = SqliteStore(path)
    await store.start()
    await store.create(TopicsNode.path, parents=True)
    before: ClusterImage | None = None
    left = cut
    for image in seen:
        change = TopicChanged(None if before is None else before.topics["t"], image.topics["t"])
        for operation in await operations(store, [change] if change.before != change.after else [], 1):
            if left == 0:
                break
            left -= 1
            await store.multi([operation])
        before = image
    found = (await load(store)).image.topics
    await store.close()
    return [topic.partitions for topic in found.values()]


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=12))
def test_the_tree_tells_the_next_controller(actions: list[tuple[object, ...]]) -> None:
    seen = [image for _, image in images(actions)]
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_store(Path(folder, "metadata.db"), seen, -1))
    assert found == [seen[-1].topics["t"].partitions]


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=12), st.integers(5, 40))
def test_a_tree_that_a_crash_cut_leads_to_one_that_can_stand(actions: list[tuple[object, ...]], cut: int) -> None:
    seen = [image for _, image in images(actions)]
    with tempfile.TemporaryDirectory() as folder:
        (partitions,) = asyncio.run(_store(Path(folder, "metadata.db"), seen, cut))
    topic = seen[-1].topics["t"]
    image = ClusterImage(topics={"t": type(topic)("t", topic.topic_id, partitions)}, features_epoch=0)
    machine = ControllerMachine(image, TopicDefaults(), lambda: UUID(int=77))
    machine.replay(machine.handle(Registered(brokers(*BROKERS))).changes)
    for partition in machine.image.topics["t"].partitions:
        assert partition.leader in partition.isr
        assert set(partition.isr) <= set(partition.replicas)
