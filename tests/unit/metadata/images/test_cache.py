"""The metadata cache: subscribers apply each image, and one that fails is named."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.machines.controller.image import ALL_BROKERS, ClusterImage, ConfigResource, PartitionImage, TopicImage
from barnabas.metadata.images.cache import Delta, MetadataCache

TOPIC = TopicImage("t", UUID(int=7), (PartitionImage(0, 1, 3, (1,), (1,), 3),))
IMAGE = ClusterImage(topics={"t": TOPIC}, configs={ALL_BROKERS: {"num.io.threads": "9"}})


def fail(_: Delta) -> None:
    raise OSError("no space left")


def test_a_subscriber_that_fails_is_named_and_keeps_the_others_from_nothing() -> None:
    cache, applied, failures = MetadataCache(), list[Delta](), list[tuple[str, str]]()
    cache.on_failure(lambda name, error: failures.append((name, str(error))))
    cache.subscribe(fail)
    cache.subscribe(applied.append)
    cache.replace(IMAGE)
    assert cache.image is IMAGE
    assert [delta.after for delta in applied] == [IMAGE]
    assert failures == [("fail", "no space left")]


def test_a_failure_that_nobody_asks_for_is_raised() -> None:
    cache = MetadataCache()
    cache.subscribe(fail)
    with pytest.raises(OSError, match="no space left"):
        cache.replace(IMAGE)


def test_the_whole_image_is_applied_again_as_if_nothing_had_been() -> None:
    cache, applied = MetadataCache(IMAGE), list[Delta]()
    cache.subscribe(applied.append)
    cache.replace(replace(IMAGE, controller_id=1))
    cache.apply_again()
    change, whole = applied
    assert not change.is_whole
    assert change.created == ()
    assert whole.is_whole
    assert whole.created == (TOPIC,)
    assert whole.configs == {ALL_BROKERS}
    assert whole.after.controller_id == 1


class Uncomparable(dict[str, str]):
    """Settings at which nobody may look who can see that they are the same."""

    def __ne__(self, _: object) -> bool:
        raise AssertionError("the same settings were compared")


def test_settings_that_differ_are_named_and_those_that_are_the_same_are_not_looked_at() -> None:
    topics = [ConfigResource.topic(name) for name in ("same", "changed", "gone", "came", "emptied")]
    same, changed, gone, came, emptied = topics
    kept = Uncomparable(a="1")
    cache, applied = MetadataCache(), list[Delta]()
    cache.replace(ClusterImage(configs={same: kept, changed: {"a": "1"}, gone: {"a": "1"}, emptied: {}}))
    cache.subscribe(applied.append)
    cache.replace(ClusterImage(configs={same: kept, changed: {"a": "2"}, came: {"a": "1"}}))
    assert [delta.configs for delta in applied] == [{changed, gone, came}]
