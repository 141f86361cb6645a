"""What goes wrong in a run of a queue: what goes wrong in every run, coordinators of queues, and workers."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.history.faults import NETWORK_FAULTS, PROCESS_FAULTS, STORE_FAULTS, STORE_LINK_FAULTS, Stage, Wound
from tests.history.queues.states import FIND_COORDINATOR, SECONDS, coordinator_of
from tests.support.wire import Connection

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.history.faults import Keeper
    from tests.history.networks import Network
    from tests.history.queues.crew import Crew
    from tests.support.clusters import Cluster

SHARE_COORDINATOR: Final = "share coordinator"
GROUP_COORDINATOR: Final = "group coordinator"
COORDINATORS: Final = (SHARE_COORDINATOR, GROUP_COORDINATOR)
GROUP: Final = 0
COORDINATOR_FAULTS: Final = tuple(
    f"{verb} {role}" for verb in ("kill", "freeze", "slow", "stop") for role in COORDINATORS
)
COORDINATOR_LINK_FAULTS: Final = tuple(
    f"{verb} {role}" for verb in ("isolate", "deafen", "mute", "part") for role in COORDINATORS
)
WORKER_FAULTS: Final = ("kill worker", "freeze worker", "stop worker")
"""kill -9; SIGSTOP, often for longer than a lock; SIGTERM, upon which a worker leaves its group."""
ON_ONE_HOST: Final = (*PROCESS_FAULTS, *COORDINATOR_FAULTS, *WORKER_FAULTS)
ON_HOSTS: Final = (*ON_ONE_HOST, *NETWORK_FAULTS, *COORDINATOR_LINK_FAULTS, *STORE_FAULTS, *STORE_LINK_FAULTS)


class QueueStage(Stage):
    """What faults happen to: a cluster, and the workers of one queue."""

    def __init__(
        self, cluster: Cluster, topic: str, keeper: Keeper | None = None, network: Network | None = None
    ) -> None:
        super().__init__(cluster, topic, keeper, network)
        self.group = ""
        self.crew: Crew | None = None

    def work(self, topic: str, group: str, crew: Crew | None) -> None:
        """From now on faults happen to this queue and its workers."""
        self.topic, self.group, self.crew = topic, group, crew

    @property
    def kinds(self) -> Sequence[str]:
        """The faults that can happen here."""
        return ON_ONE_HOST if self._network is None else ON_HOSTS

    def strike(self, kind: str, chance: random.Random) -> Wound:
        """Let a fault happen."""
        verb, _, whom = kind.partition(" ")
        if whom != "worker":
            return super().strike(kind, chance)
        crew = self.crew
        assert crew is not None
        index = crew.pick(chance.random())
        worker = crew.workers[index]
        if verb == "freeze":
            worker.send(signal.SIGSTOP)
            return Wound(lambda: worker.send(signal.SIGCONT))
        if verb == "kill":
            worker.kill()
        else:
            worker.send(signal.SIGTERM)
        return Wound(lambda: crew.replace(index))

    def _whose(self, role: str, luck: float) -> int:
        """Who has a role now; anyone, if nobody can say."""
        if role in COORDINATORS:
            for broker in self.cluster.nodes:
                with suppress(OSError, AssertionError, StopIteration):
                    where = self._coordinator(role, self.cluster.address(broker))
                    return next(other for other in self.cluster.nodes if self.cluster.address(other) == where)
        return super()._whose(role, luck)

    def _coordinator(self, role: str, address: str) -> str:
        """The address of a coordinator, as one broker says; of the share coordinators that of the first partition."""
        if role == SHARE_COORDINATOR:
            found = coordinator_of(address, self.topic, self.group, 0)
            return "" if found is None else found[1]
        with Connection(address, SECONDS) as broker:
            asked = {"key_type": GROUP, "coordinator_keys": [self.group]}
            [one] = broker.ask(FIND_COORDINATOR, 6, asked).coordinators
        return f"{one.host}:{one.port}"
