"""What a change of one topic costs a controller and the other brokers does not depend on how many topics there are.

Counted in bytecodes, from the decision to what every broker's subscribers are handed. What no bytecode is run for, as
copying a dictionary, is not in it: that the copies are small is a matter of `model/sharded_map`.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from bench.counted_broker import BytecodeCounter

from barnabas.machines.controller.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from barnabas.machines.controller.machine import ControllerMachine
from barnabas.machines.controller.requests import CreateTopics, DeleteTopics, MoveLeader, TopicToCreate
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.metadata.images.announcements import Announcements
from barnabas.metadata.images.cache import MetadataCache
from tests.support.announced import received

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.machines.controller.requests import Request

BROKERS = {
    number: BrokerImage(broker_id=number, epoch=number, endpoints={"PLAINTEXT": Endpoint("host", 9092)})
    for number in (1, 2, 3)
}
PARTITION = PartitionImage(0, 1, 0, (1, 2, 3), (1, 2, 3))


class Cluster:
    """A controller, broker 1, and two other brokers, whose subscribers take what they are handed."""

    def __init__(self, topics: int) -> None:
        found = [TopicImage(f"old.{number}", UUID(int=7919 * number), (PARTITION,)) for number in range(1, topics + 1)]
        image = ClusterImage(
            controller_id=1,
            controller_epoch=1,
            brokers=BROKERS,
            topics={topic.name: topic for topic in found},
            topic_names={topic.topic_id: topic.name for topic in found},
            configs={ConfigResource.topic(topic.name): {"retention.ms": "1"} for topic in found},
        )
        ids = count(1 << 40)
        self._machine = ControllerMachine(image, TopicDefaults(), lambda: UUID(int=next(ids)))
        self.caches = {number: MetadataCache(image) for number in BROKERS}
        self.handed = 0
        for cache in self.caches.values():
            cache.subscribe(lambda delta: self._take(len(delta.created) + len(delta.changed) + len(delta.deleted)))

    def _take(self, topics: int) -> None:
        self.handed += topics

    def decide(self, request: Request) -> None:
        before = self._machine.image
        self._machine.replay(self._machine.handle(request).changes)
        self.caches[1].replace(self._machine.image)
        announcements = Announcements(before, self._machine.image)
        for number in (2, 3):
            for message in announcements.messages(BROKERS[number]):
                self.caches[number].replace(received(self.caches[number].image, message, number))

    def cost(self, request: Callable[[str], Request]) -> int:
        """Bytecodes of such a request, for a topic of its own each time; the first makes what is made once."""
        names = [f"new.{number}" for number in range(4)]
        self.decide(request(names[0]))
        counter = BytecodeCounter()
        counter.begin()
        try:
            for name in names[1:]:
                self.decide(request(name))
        finally:
            used = counter.end()
        return used


REQUESTS: dict[str, Callable[[str], Request]] = {
    "created": lambda name: CreateTopics((TopicToCreate(name, 1, 3, configs={"retention.ms": "2"}),)),
    "moved": lambda name: MoveLeader(name, 0),
    "deleted": lambda name: DeleteTopics((name,)),
}


@pytest.fixture(scope="module")
def costs() -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for topics in (100, 10_000):
        cluster = Cluster(topics)
        found[topics] = {what: cluster.cost(request) for what, request in REQUESTS.items()}
        assert cluster.handed >= 3 * len(BROKERS) * 4, "every broker is handed every change"
        assert len({len(cache.image.topics) for cache in cluster.caches.values()}) == 1
    return found


@pytest.mark.parametrize("what", REQUESTS)
def test_a_change_of_one_topic_costs_the_same_beside_a_hundred_times_as_many(
    what: str, costs: dict[int, dict[str, int]]
) -> None:
    few, many = costs[100][what], costs[10_000][what]
    assert many <= 1.02 * few, f"{few} bytecodes beside 100 topics, {many} beside 10,000"
