"""A share coordinator for tests: requests and their answers, records as they would stand in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.machines.outcome import Asker
from barnabas.machines.shares.coordinator import PRUNE, Initialization, Prune, ShareCoordinator, ShareKey, StateUpdate
from barnabas.machines.shares.settings import ShareCoordinatorSettings
from barnabas.protocol.coordinator_records.share_state import StateBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.protocol.coordinator_records.share_state import ShareRecord

KEY = ShareKey("workers", UUID(int=7), 0)


class Client(Asker[Any]):
    """Whoever asks."""


class Coordinator:
    """The machine, its log, and what it answered last."""

    def __init__(self, settings: ShareCoordinatorSettings | None = None, partitions: int = 3) -> None:
        self.settings = settings or ShareCoordinatorSettings()
        self.partitions = partitions
        self.log: list[ShareRecord] = []
        self.now_ms = 1_000_000
        self.sent: list[object] = []
        self.machine = self.new_machine()

    def new_machine(self) -> ShareCoordinator:
        return ShareCoordinator(self.settings, lambda topic_id, partition: partition < self.partitions)

    def reloaded(self) -> ShareCoordinator:
        """A machine that has read the whole log, through its bytes."""
        machine = self.new_machine()
        for record in self.log:
            machine.replay_bytes(*self.machine.encode(record), -1)
        return machine

    def take(self, outcome: Any) -> Any:
        """Store a decision; gives the answer to the one who asked."""
        for record in outcome.changes:
            self.log.append(record)
            self.machine.replay(record)
        self.sent += outcome.sends
        return outcome.replies[0][1] if outcome.replies else None

    def decide(self, make: Callable[[ShareCoordinator, Client, int], Any]) -> Any:
        return self.take(make(self.machine, Client(), self.now_ms))

    def initialize(self, state_epoch: int = 0, start_offset: int = 0, key: ShareKey = KEY) -> Any:
        begin = Initialization(state_epoch, start_offset)
        return self.decide(lambda machine, client, now_ms: machine.initialize(key, begin, client, now_ms))

    def write(
        self,
        batches: Iterable[tuple[int, int, int, int]] = (),
        *,
        start: int = -1,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        complete: int = -1,
        key: ShareKey = KEY,
    ) -> Any:
        stored = tuple(StateBatch(*each) for each in batches)
        update = StateUpdate(state_epoch, leader_epoch, start, stored, complete)
        return self.decide(lambda machine, client, now_ms: machine.write(key, update, client, now_ms))

    def read(self, leader_epoch: int = 0, key: ShareKey = KEY, *, may_fence: bool = True) -> Any:
        return self.decide(
            lambda machine, client, now_ms: machine.read(key, leader_epoch, client, now_ms, may_fence=may_fence)
        )

    def summary(self, key: ShareKey = KEY) -> Any:
        return self.decide(lambda machine, client, now_ms: machine.read_summary(key, client))

    def delete(self, key: ShareKey = KEY) -> Any:
        return self.decide(lambda machine, client, now_ms: machine.delete(key, client))

    def prune(self) -> int | None:
        """Let the machine have records deleted; gives the offset before which they are redundant."""
        self.expire(PRUNE)
        (*_, last) = self.sent or [None]
        self.sent.clear()
        if not isinstance(last, Prune):
            return None
        self.machine.begin_pruning(len(self.log))
        return last.before

    def expire(self, timer: str) -> None:
        self.take(self.machine.expire(timer, self.now_ms))
