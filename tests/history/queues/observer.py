"""One who looks at what is stored of a queue while everything fails, and at who leads, without getting in the way.

What a coordinator tells is certain only if it coordinates: one that was replaced tells what it knew. A broker leads for
certain if every broker of the cluster says so, with the same leader epoch, before and after: whoever led in between
would know it. While a broker is down, or hangs, nothing is certain, and nothing is counted.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordinators.runtime import partition_of
from barnabas.model.internal_topics import SHARE_GROUP_STATE
from tests.history.queues.events import NO_EPOCH
from tests.history.queues.states import METADATA, look
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.history.queues.events import Delivery, Observation
    from tests.support.clusters import Cluster

SECONDS = 2.0
"""How long a broker may take to say who leads."""
PAUSE = 0.1


class Leadership(NamedTuple):
    """Who leads a partition."""

    leader: int
    epoch: int


class Reign(NamedTuple):
    """A time in which one process led a partition without a break."""

    partition: int
    leadership: Leadership
    process: object
    since: float
    until: float


class Observer(threading.Thread):
    """Looks at one partition after the other until it is told to end."""

    def __init__(self, cluster: Cluster, topic: str, group: str, partitions: int, state_partitions: int) -> None:
        super().__init__(name="observer", daemon=True)
        self.observations: list[Observation] = []
        self.reigns: list[Reign] = []
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._partitions = partitions
        self._state_partitions = state_partitions
        self._ending = threading.Event()

    def end(self) -> None:
        """Look no more."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        """Look now and then."""
        partition = 0
        while not self._ending.wait(PAUSE):
            self._observe(partition)
            partition = (partition + 1) % self._partitions

    def _observe(self, partition: int) -> None:
        nodes = dict(self._cluster.nodes)
        addresses = {broker: self._cluster.address(broker) for broker in nodes}
        before, began = _agreed(addresses, self._topic), time.monotonic()
        found = look(list(addresses.values()), self._topic, self._group, partition) if before else None
        ended, after = time.monotonic(), _agreed(addresses, self._topic) if before else {}
        if nodes != self._cluster.nodes:
            after = {}  # a broker was started anew
        for (topic, number), leadership in before.items():
            if topic == self._topic and after.get((topic, number)) == leadership:
                self._note(Reign(number, leadership, nodes.get(leadership.leader), began, ended))
        if found is not None:
            place = SHARE_GROUP_STATE, partition_of(found.key, self._state_partitions)
            leads = before.get(place)
            is_current = (
                leads is not None and after.get(place) == leads and addresses.get(leads.leader) == found.address
            )
            self.observations.append(found.seen._replace(is_current=is_current))

    def _note(self, reign: Reign) -> None:
        """The process that led when this was last looked at has led ever since."""
        for place, known in enumerate(self.reigns):
            if known[:3] == reign[:3]:
                self.reigns[place] = known._replace(until=reign.until)
                return
        self.reigns.append(reign)


def _agreed(addresses: Mapping[int, str], topic: str) -> dict[tuple[str, int], Leadership]:
    """Who leads, where all brokers say the same; nothing if one of them says nothing."""
    agreed: set[tuple[tuple[str, int], Leadership]] | None = None
    for address in addresses.values():
        try:
            with Connection(address, SECONDS) as broker:
                topics = [{"name": name} for name in (topic, SHARE_GROUP_STATE)]
                answer = broker.ask(METADATA, 12, {"topics": topics})
        except (OSError, AssertionError):
            return {}
        told = {
            ((one.name, part.partition_index), Leadership(part.leader_id, part.leader_epoch))
            for one in answer.topics
            for part in one.partitions
        }
        agreed = told if agreed is None else agreed & told
    return dict(agreed or ())


def with_leaders(deliveries: Sequence[Delivery], leaders: Sequence[int], reigns: Sequence[Reign]) -> list[Delivery]:
    """Deliveries, with the reign of the broker that each came from, where it is certain that it led all the while."""
    found: list[Delivery] = []
    for each, leader in zip(deliveries, leaders, strict=True):
        epoch = next(
            (
                number
                for number, (partition, leadership, _, since, until) in enumerate(reigns)
                if partition == each.place.partition
                and leadership.leader == leader
                and since <= each.asked_at
                and each.came_at <= until
            ),
            NO_EPOCH,
        )
        found.append(each if epoch == NO_EPOCH else each._replace(epoch=epoch, is_current=True))
    return found
