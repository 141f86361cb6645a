"""Whoever follows a cluster by differences alone has what the cluster has, whatever was missed, late or failed.

A controller makes random changes. Two brokers get its metadata updates as updaters send them: the difference from what
was acknowledged, and everything after an answer that was lost, whether the broker has applied the messages or only some
of them. On each broker a subscriber builds its own picture from what it is handed; now and then it fails, and has the
whole image applied again.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.machines.controller.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    Endpoint,
    TopicImage,
)
from barnabas.machines.controller.machine import ControllerMachine
from barnabas.machines.controller.requests import (
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MoveLeader,
    NewPartitions,
    Registered,
    TopicToCreate,
)
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.metadata.images.announcements import Announcements
from barnabas.metadata.images.cache import Delta, MetadataCache
from tests.support.announced import received

if TYPE_CHECKING:
    from barnabas.machines.controller.requests import Request

BROKERS = {
    number: BrokerImage(broker_id=number, epoch=number, endpoints={"PLAINTEXT": Endpoint("host", 9092)})
    for number in (1, 2, 3)
}
NAMES = [f"t{number}" for number in range(12)]


class Follower:
    """A broker's image, and the picture that a subscriber makes of it by differences."""

    def __init__(self, chance: random.Random) -> None:
        self.cache = MetadataCache()
        self.cache.subscribe(self._apply)
        self.cache.on_failure(self._note_failure)
        self._chance = chance
        self._topics: dict[str, TopicImage] = {}
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._has_failed = False

    def _apply(self, delta: Delta) -> None:
        if delta.is_whole:
            self._topics, self._configs, self._has_failed = {}, {}, False
        elif self._has_failed:
            return
        for topic in delta.deleted:
            assert self._topics.pop(topic.name).topic_id == topic.topic_id
        if not delta.is_whole and self._chance.random() < 0.1:
            self._has_failed = True
            raise OSError("no space left")
        for topic in delta.created:
            assert self._topics.setdefault(topic.name, topic) is topic
        for topic in delta.changed:
            assert self._topics[topic.name].topic_id == topic.topic_id
            self._topics[topic.name] = topic
        for resource in delta.configs:
            self._configs[resource] = dict(delta.after.config(resource))

    def _note_failure(self, name: str, error: Exception) -> None:
        if not isinstance(error, OSError):
            raise error

    def check(self) -> None:
        """The picture is the image, after all of it was applied again if that is needed."""
        if self._has_failed:
            self.cache.apply_again()
        image = self.cache.image
        assert self._topics == image.topics
        assert {of: kept for of, kept in self._configs.items() if kept} == {
            of: kept for of, kept in image.configs.items() if kept
        }
        assert image.topic_names == {topic.topic_id: name for name, topic in image.topics.items()}


class Updates:
    """Sends one broker what an updater would."""

    def __init__(self, chance: random.Random, broker: BrokerImage) -> None:
        self.follower = Follower(chance)
        self._chance = chance
        self._broker = broker
        self._acknowledged: ClusterImage | None = None

    def forget(self) -> None:
        """There is another controller, which knows nothing of the broker."""
        self._acknowledged = None

    def send(self, image: ClusterImage, *, safely: bool = False) -> None:
        """The messages, of which each may be lost, and the answer of each."""
        for message in Announcements(self._acknowledged, image).messages(self._broker):
            is_lost = not safely and self._chance.random() < 0.15
            if not is_lost or self._chance.random() < 0.5:
                cache = self.follower.cache
                cache.replace(received(cache.image, message, self._broker.broker_id))
            if is_lost:
                self._acknowledged = None
                return
        self._acknowledged = image


def new_id(chance: random.Random) -> UUID:
    return UUID(int=chance.getrandbits(128), version=4)


def anything(chance: random.Random, image: ClusterImage) -> Request:
    """A request about a topic, or about who is there."""
    name = chance.choice(NAMES)
    topic = image.topics.get(name)
    if topic is None:
        settings = chance.choice(({}, {"retention.ms": "1"}))
        return CreateTopics((TopicToCreate(name, chance.randrange(1, 4), 2, configs=settings),))
    match chance.randrange(5):
        case 0:
            return DeleteTopics((name,))
        case 1:
            return CreatePartitions((NewPartitions(name, len(topic.partitions) + 1),))
        case 2:
            value = chance.choice(({}, {"retention.ms": str(chance.randrange(9))}))
            return AlterConfigs({ConfigResource.topic(name): value})
        case 3:
            up = chance.sample(sorted(BROKERS), chance.choice((2, 3)))
            return Registered({number: BROKERS[number] for number in sorted({1, *up})})
    return MoveLeader(name, chance.randrange(len(topic.partitions)))


def told(image: ClusterImage) -> dict[str, object]:
    """What brokers are told of topics, whether or not they have a replica."""
    return {
        name: (topic.topic_id, [(each.leader, each.leader_epoch, each.replicas, each.isr) for each in topic.partitions])
        for name, topic in image.topics.items()
    }


@pytest.mark.parametrize("seed", range(10))
def test_brokers_and_their_subscribers_have_what_the_controller_has(seed: int) -> None:
    chance = random.Random(seed)
    controller = Follower(chance)
    others = [Updates(chance, BROKERS[2]), Updates(chance, BROKERS[3])]
    image = ClusterImage(controller_id=1, controller_epoch=1, brokers=BROKERS)
    machine = ControllerMachine(image, TopicDefaults(), lambda: new_id(chance))
    for _ in range(120):
        machine.replay(machine.handle(anything(chance, machine.image)).changes)
        controller.cache.replace(machine.image)
        if chance.random() < 0.02:  # another controller, which has loaded the tree
            loaded = {name: replace(topic) for name, topic in sorted(machine.image.topics.items())}
            image = replace(machine.image, controller_epoch=machine.image.controller_epoch + 1, topics=loaded)
            machine = ControllerMachine(image, TopicDefaults(), lambda: new_id(chance))
            for other in others:
                other.forget()
        for other in others:
            if chance.random() < 0.5:
                other.send(machine.image)
        if chance.random() < 0.2:
            for follower in (controller, *(other.follower for other in others)):
                follower.check()
    controller.cache.replace(machine.image)
    for other in others:
        other.send(machine.image, safely=True)
        assert told(other.follower.cache.image) == told(machine.image)
    for follower in (controller, *(other.follower for other in others)):
        follower.check()
