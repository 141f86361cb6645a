"""Bugs of queues: share partitions, and the coordinators that keep their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.shares.dead_letters import DeadLetterWriter
from barnabas.broker.shares.hosted import HostedSharePartition
from barnabas.broker.shares.partitions import SharePartitions
from barnabas.machines.shares.coordinator import ShareCoordinator, StateUpdate
from barnabas.machines.shares.partition import SharePartition
from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.model.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.machines.shares.coordinator import StoredState
    from barnabas.machines.shares.records import DeadLetters


def early_answers() -> None:
    """A worker is answered before its word is stored."""
    store = HostedSharePartition.store

    async def spawn(self: HostedSharePartition, machine: Any, outcome: Any) -> None:
        self._host.spawn(store(self, machine, outcome))

    HostedSharePartition.store = spawn  # type: ignore[method-assign]


def locks_kept() -> None:
    """What a worker holds stays locked when its connection ends."""

    def forget(self: SharePartitions, connection: Any) -> None:
        self.sessions.connection_ended(connection)

    SharePartitions._connection_ended = forget  # type: ignore[method-assign]


def locks_lost() -> None:
    """A leader forgets all locks when its leader epoch rises, as it does when a follower dies."""

    def forget(self: HostedSharePartition, partition: Any) -> bool:
        return self.partition is partition

    HostedSharePartition.leads_on = forget  # type: ignore[method-assign]


def counts_lost() -> None:
    """A new leader counts deliveries from the beginning."""
    load = SharePartition.load

    def forget(self: SharePartition, state: StoredState, start_offset: int) -> None:
        load(self, state, start_offset)
        for run in self.runs:
            run.deliveries = 0

    SharePartition.load = forget  # type: ignore[method-assign]


def gaps_done() -> None:
    """A new leader takes for done what its predecessor had delivered, and what nobody has acknowledged."""
    load = SharePartition.load

    def fill(self: SharePartition, state: StoredState, start_offset: int) -> None:
        load(self, state, start_offset)
        at = self.start_offset
        for run in list(self.runs):
            if run.first > at:
                self.runs.add(at, run.first - 1, DeliveryState.ACKNOWLEDGED)
            at = run.last + 1
        self.runs.settle(self.start_offset, at)

    SharePartition.load = fill  # type: ignore[method-assign]


def unfenced() -> None:
    """A leader that was replaced may still store what its workers say."""
    write = ShareCoordinator.write

    def accept(self: ShareCoordinator, key: Any, update: StateUpdate, *others: Any) -> Any:
        return write(self, key, update._replace(leader_epoch=-1), *others)

    ShareCoordinator.write = accept  # type: ignore[method-assign, assignment]


def snapshot_forgets() -> None:
    """A snapshot has only what the last write says."""
    change = ShareCoordinator._change

    def forget(self: ShareCoordinator, key: Any, state: Any, update: StateUpdate, now_ms: int) -> Any:
        if state.updates >= self.settings.updates_per_snapshot:
            state.batches = []
        return change(self, key, state, update, now_ms)

    ShareCoordinator._change = forget  # type: ignore[method-assign]


def no_letters() -> None:
    """A message is archived though its dead letter could not be written."""
    write = DeadLetterWriter.write

    async def forgive(
        self: DeadLetterWriter, origin: Any, wanted: Sequence[DeadLetters], check: Callable[[], None]
    ) -> list[DeadLetters]:
        try:
            return await write(self, origin, wanted, check)
        except ApiError:
            return list(wanted)

    DeadLetterWriter.write = forgive  # type: ignore[method-assign]
