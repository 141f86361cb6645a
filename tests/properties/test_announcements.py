"""Metadata updates bring a broker to the controller's image, whatever image it had before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from barnabas.machines.controller.image import PartitionImage, TopicImage
from tests.support.announced import BROKER, OTHER, applied, image

if TYPE_CHECKING:
    from collections.abc import Mapping


def partitions(count: int, epochs: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[PartitionImage, ...]]:
    """Partitions whose contents their epochs alone determine, as the controller has it."""

    def made(numbers: list[int]) -> tuple[PartitionImage, ...]:
        return tuple(
            PartitionImage(index, 1 + epoch % 2, epoch, ((1, 2), (2,), (1,))[epoch % 3], (1 + epoch % 2,), epoch)
            for index, epoch in enumerate(numbers)
        )

    return st.lists(epochs, min_size=count, max_size=count + 2).map(made)


def topics(epochs: st.SearchStrategy[int]) -> st.SearchStrategy[Mapping[str, TopicImage]]:
    def topic(name: str) -> st.SearchStrategy[TopicImage]:
        ids = st.integers(1, 3).map(lambda number: UUID(int=number))
        return st.builds(TopicImage, st.just(name), ids, partitions(1, epochs))

    return st.sets(st.sampled_from("abc")).flatmap(
        lambda names: st.fixed_dictionaries({name: topic(name) for name in names})
    )


def no_partition_goes(old: Mapping[str, TopicImage], new: Mapping[str, TopicImage]) -> bool:
    """A topic keeps the partitions that it has, under one id."""
    return all(
        old[name].topic_id != new[name].topic_id or len(old[name].partitions) <= len(new[name].partitions)
        for name in old.keys() & new.keys()
    )


@settings(max_examples=50)
@given(topics(st.integers(0, 5)), topics(st.integers(6, 11)))
def test_a_full_update_brings_the_whole_image(old: Mapping[str, TopicImage], new: Mapping[str, TopicImage]) -> None:
    assume(no_partition_goes(old, new))
    after = image(new, BROKER, OTHER)
    found = applied(image(old, BROKER), None, after)
    assert dict(found.topics) == dict(new)
    assert found.brokers.keys() == {1, 2}
    assert (found.controller_id, found.controller_epoch) == (2, 3)


@settings(max_examples=200)
@given(topics(st.integers(0, 5)), topics(st.integers(6, 11)), st.data())
def test_an_update_of_what_changed_brings_the_whole_image(
    old: Mapping[str, TopicImage], new: Mapping[str, TopicImage], data: st.DataObject
) -> None:
    assume(no_partition_goes(old, new))
    new = {name: some_stay(data, old.get(name), topic) for name, topic in new.items()}
    before = replace(image(old, BROKER, OTHER), failed=data.draw(lost_disks(old)))
    after = replace(image(new, BROKER, OTHER), failed=data.draw(lost_disks(new)))
    found = applied(before, before, after)
    assert dict(found.topics) == dict(new)
    for name, topic in new.items():
        for partition in topic.partitions:
            assert found.offline_replicas(name, partition) == after.offline_replicas(name, partition)


def some_stay(data: st.DataObject, old: TopicImage | None, new: TopicImage) -> TopicImage:
    """The new topic with some of its partitions as they were."""
    if old is None or old.topic_id != new.topic_id:
        return new
    stay = data.draw(st.sets(st.sampled_from(range(len(old.partitions)))))
    return replace(
        new, partitions=tuple(old.partitions[each.index] if each.index in stay else each for each in new.partitions)
    )


def lost_disks(found: Mapping[str, TopicImage]) -> st.SearchStrategy[dict[int, frozenset[tuple[str, int]]]]:
    """Replicas of the other broker that lie on disks which failed."""
    keys = [
        (topic.name, each.index)
        for topic in found.values()
        for each in topic.partitions
        if OTHER.broker_id in each.replicas
    ]
    return st.frozensets(st.sampled_from(keys) if keys else st.nothing()).map(
        lambda lost: {OTHER.broker_id: lost} if lost else {}
    )
