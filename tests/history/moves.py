"""Partitions that move while everything else fails: replicas go and come back, leaders change.

A cluster of a run has as many brokers as a partition has replicas, so a move takes a replica away, log and all, and a
later one makes it anew; two always stay. Partitions of coordinators move like those of clients.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.admin.replicas import Election
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.clients.admin.replicas import Replicas
    from barnabas.model.ids import TopicPartition
    from tests.support.clusters import Cluster

T = TypeVar("T")

COORDINATORS: Final = ("__consumer_offsets", "__transaction_state")
SECONDS: Final = 4.0
"""How long a broker may take for an answer, before the next one is asked."""
PATIENCE: Final = 60.0
"""How long a cluster may take until it moves anything: on a busy machine brokers take long to start and to find another
controller. One without a controller does not."""
ONE: Final = 0.5
"""How often a single partition moves, and not all of them."""


class Moves:
    """The moves of one run. What is asked may be done also if there is no answer, so that is not forgotten."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topics = (topic, *COORDINATORS)
        self._away: set[TopicPartition] = set()
        """Partitions that may have fewer replicas than there are brokers."""
        self._moved: set[TopicPartition] = set()
        """All that were ever moved."""

    def take_from(self, broker: int, luck: float) -> bool:
        """Have a broker give up its replicas, of one partition or of all; whether somebody took that on."""
        others = [each for each in self._everyone if each != broker]
        rotated = _rotated(others, luck)

        def ask(replicas: Replicas) -> bool:
            chosen = _some(list(replicas.layout(self._topics).replicas), luck)
            self._away |= set(chosen)
            self._moved |= set(chosen)
            return len(replicas.reassign(dict.fromkeys(chosen, rotated))) < len(chosen)

        return self._insist(ask)

    def elect(self, broker: int, luck: float) -> bool:
        """Have a broker lead one partition, or all of them; whether the controller took that on."""
        order = [broker, *(each for each in self._everyone if each != broker)]

        def ask(replicas: Replicas) -> bool:
            chosen = _some(list(replicas.layout(self._topics).replicas), luck)
            self._moved |= set(chosen)
            replicas.reassign(dict.fromkeys(chosen, order))
            replicas.elect_leaders(Election.PREFERRED, chosen)
            return bool(chosen)

        return self._insist(ask)

    def bring_back(self, luck: float = 0.0) -> bool:
        """Have every partition on all brokers again; False if that is to be asked again later."""
        wanted = dict.fromkeys(self._away, _rotated(self._everyone, luck))
        if wanted:
            refused = self._ask(lambda replicas: replicas.reassign(wanted))
            self._away = set(wanted if refused is None else refused)
        return not self._away

    def are_over(self) -> bool:
        """Whether all that moved have all their replicas again, and none is on its way; asks for what is missing."""
        if not self._moved:
            return True

        def look(replicas: Replicas) -> bool:
            found = replicas.layout(self._topics).replicas
            home = (each in found and set(found[each]) == set(self._everyone) for each in self._moved)
            return not replicas.reassignments() and all(home)

        return self.bring_back() and bool(self._ask(look))

    @property
    def _everyone(self) -> list[int]:
        return sorted(self._cluster.nodes)

    def _insist(self, what: Callable[[Replicas], bool]) -> bool:
        """Ask until it is so: brokers may be starting, or look for a controller."""
        with suppress(AssertionError):
            return wait_until(lambda: self._ask(what), "partitions to move", PATIENCE, every=0.2)
        return False

    def _ask(self, what: Callable[[Replicas], T]) -> T | None:
        """The answer of the first broker that has one; None if nobody has."""
        for broker in self._everyone:
            with (
                suppress(BrokerUnreachable, RequestRefused),
                ClusterAdmin(self._cluster.address(broker), timeout=SECONDS) as admin,
            ):
                return what(admin.replicas)
        return None


def _some(partitions: list[TopicPartition], luck: float) -> list[TopicPartition]:
    """One of them, or all."""
    return partitions if luck >= ONE or not partitions else [partitions[int(luck / ONE * len(partitions))]]


def _rotated(brokers: Sequence[int], luck: float) -> list[int]:
    first = int(luck * 1000) % len(brokers)
    return [*brokers[first:], *brokers[:first]]
