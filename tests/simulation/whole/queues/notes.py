"""What the workers of a world did and saw, written down as it happens: a worker may be killed at any moment."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.ids import uuid_to_text
from tests.history.queues.events import NO_EPOCH, Acknowledgement, Fate, Unheard

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from barnabas.storage.log.log import Log
    from tests.history.queues.events import Delivery, Kind, Observation, Place
    from tests.simulation.whole.machine import Machine
    from tests.simulation.whole.store import MemoryTree


class Leadership(NamedTuple):
    """Who leads a partition, as the metadata tree has it."""

    leader: int
    epoch: int


class _Reign(NamedTuple):
    """What a broker was last seen to lead with."""

    log: Log
    """Another process has another one."""
    epoch: int
    number: int


class QueueNotes:
    """The history of a queue in the making, and what only the world knows: who leads."""

    def __init__(self, tree: MemoryTree, machines: list[Machine], now: Callable[[], float]) -> None:
        self._tree = tree
        self._machines = machines
        self.now = now
        self.deliveries: list[Delivery] = []
        self.acknowledgements: list[Acknowledgement] = []
        self.observations: list[Observation] = []
        self.sessions: dict[str, float] = {}
        self._fetches: dict[int, Unheard] = {}
        self._fetch_count = 0
        self._reigns: dict[tuple[int, int], _Reign] = {}
        """By partition and broker."""
        self._reign_count = 0

    # Requests that may never be answered

    def fetching(self, partitions: list[int]) -> list[int]:
        """A fetch leaves; `heard` ends it."""
        numbers = []
        for partition in partitions:
            self._fetch_count += 1
            self._fetches[self._fetch_count] = Unheard(partition, self.now())
            numbers.append(self._fetch_count)
        return numbers

    def heard(self, fetches: list[int]) -> None:
        """It was answered."""
        for number in fetches:
            del self._fetches[number]

    @property
    def unheard(self) -> list[Unheard]:
        """Fetches without an answer."""
        return list(self._fetches.values())

    def saying(self, member: str, place: Place, kind: Kind, count: int, session: str) -> int:
        """An acknowledgement leaves; `told` says what became of it."""
        said = Acknowledgement(member, place, kind, count, Fate.UNKNOWN, self.now(), math.inf, session)
        self.acknowledgements.append(said)
        return len(self.acknowledgements) - 1

    def told(self, number: int, fate: Fate) -> None:
        """It was answered."""
        said = self.acknowledgements[number]
        self.acknowledgements[number] = said._replace(fate=fate, came_at=self.now())

    # Who leads

    def leadership(self, topic: str, partition: int) -> Leadership:
        """Who leads now."""
        node = self._tree.nodes.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
        if node is None:
            return Leadership(-1, NO_EPOCH)
        state = json.loads(node.data)
        return Leadership(state["leader"], state["leader_epoch"])

    def reign(self, topic: str, partition: int, broker: int) -> int:
        """A number for the time in which a broker leads without a break, as it knows itself: locks last so long.

        Between two epochs that follow each other nobody else leads. One that nobody looked at may have been another's.
        """
        app = self._machines[broker - 1].app if broker > 0 else None
        led = None if app is None else app.broker.replicas.led(topic, partition)
        if led is None:
            return NO_EPOCH
        known, epoch = self._reigns.get((partition, broker)), led.leader.leader_epoch
        if known is None or known.log is not led.log or not known.epoch <= epoch <= known.epoch + 1:
            self._reign_count += 1
            known = _Reign(led.log, epoch, self._reign_count)
        self._reigns[partition, broker] = known._replace(epoch=epoch)
        return known.number

    def broker_at(self, address: tuple[str, int]) -> int:
        """The broker with an address."""
        return next(each.number for each in self._machines if each.address == address)


def state_key(group: str, topic_id: UUID, partition: int) -> str:
    """The key by which the share coordinator of a partition is found."""
    return f"{group}:{uuid_to_text(topic_id)}:{partition}"
