"""The coordinator of the share partitions on one partition of `__share_group_state`: a pure machine.

    initialized   the group coordinator begins a state, in a state epoch of its own; without that nothing is written
    read          the leader of the partition reads the state when it begins to lead, and fences leaders before it
    written       the leader writes each change: a ShareUpdate, and after some of them a ShareSnapshot of everything.
                  A write does not raise the leader epoch
    deleted       the state is forgotten

Two epochs fence. A leader that was replaced writes with a lower leader epoch than its successor has read with. A leader
whose state was initialized anew writes with the state epoch of the state before.

The log would grow forever, since it is not compacted: an update needs the snapshot before it. So share partitions that
do not change are snapshotted from time to time, too, and when every state has a snapshot behind some offset of the log,
the records before this offset are deleted (`Prune`).

A request may arrive long after its sender has given it up and asked again: a connection that was cut off delivers what
it holds when the network is whole again. So a late write does not move the start back, behind which nothing is known
any more, and a state that has begun is not begun again in the same state epoch, unless it is told where.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.outcome import CoordinatorOutcome, Outcome, Timer, answer, as_before
from barnabas.machines.shares.state_batches import combine
from barnabas.machines.shares.unset import UNINITIALIZED
from barnabas.model.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRecord,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import uuid_to_text
from barnabas.protocol.coordinator_records import share_state
from barnabas.protocol.coordinator_records.share_state import (
    NOT_COUNTED,
    ShareRecord,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from uuid import UUID

    from barnabas.machines.outcome import Asker
    from barnabas.machines.shares.settings import ShareCoordinatorSettings
    from barnabas.model.errors import ErrorCode

    ShareOutcome = CoordinatorOutcome[ShareRecord]

logger = logging.getLogger(__name__)

COLD: Final = "cold snapshots"
PRUNE: Final = "prune"


class ShareKey(NamedTuple):
    """A share partition: a partition, for one group."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """As FindCoordinator names it; its hash finds the coordinator."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class Initialization(NamedTuple):
    """A state that is to begin."""

    state_epoch: int
    start_offset: int


class StateUpdate(NamedTuple):
    """What a leader writes. Epochs and a start offset of -1 are left as they are."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    complete_count: int = NOT_COUNTED


class StoredState(NamedTuple):
    """A state as it is read, with all batches."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]


NO_STATE: Final = StoredState(0, 0, UNINITIALIZED, NOT_COUNTED, ())
"""What is told of a share partition without a state, and the answer to a request that asks for none."""


class Prune(NamedTuple):
    """A message to the shell, which gets it when everything that was decided before is committed.

    It deletes the records before an offset, and says where the log ends now (`begin_pruning`).
    """

    before: int | None
    """All states that there were when the log ended here have a snapshot behind it. None if that is not known."""


@dataclass(slots=True)
class _State:
    """The state of a share partition in memory. Only replayed records change it."""

    snapshot: ShareSnapshotValue
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: list[StateBatch]
    updates: int = 0
    """ShareUpdate records since the last snapshot."""
    fencing_leader_epoch: int = field(default=UNINITIALIZED)
    """The highest leader epoch that was seen."""
    fencing_state_epoch: int = field(default=UNINITIALIZED)

    def stored(self) -> StoredState:
        return StoredState(
            self.snapshot.state_epoch, self.leader_epoch, self.start_offset, self.complete_count, tuple(self.batches)
        )


class ShareCoordinator:
    """The share partitions of one partition of the internal topic."""

    def __init__(self, settings: ShareCoordinatorSettings, partition_exists: Callable[[UUID, int], bool]) -> None:
        self.settings = settings
        self._partition_exists = partition_exists
        self._states: dict[ShareKey, _State] = {}
        self._pruned_at: int | None = None
        """The end of the log when `begin_pruning` last began to wait for snapshots."""
        self._without_snapshot: set[ShareKey] = set()
        """The share partitions that have no snapshot since then."""

    # Requests

    def initialize(self, key: ShareKey, begin: Initialization, asker: Asker[StoredState], now_ms: int) -> ShareOutcome:
        """Begin a state, which replaces the one before unless that has a higher state epoch."""
        known = self._states.get(key)
        try:
            _check_key(key)
            if known is not None and known.fencing_state_epoch > begin.state_epoch:
                raise FencedStateEpoch(f"The state epoch of {key.text} is {known.fencing_state_epoch} already.")
            self._check_exists(key)
        except ApiError as error:
            return answer(asker, error)
        if known is not None and begin == (known.snapshot.state_epoch, UNINITIALIZED):
            return answer(asker, NO_STATE)  # it has begun, and who began it has asked again
        value = ShareSnapshotValue(
            snapshot_epoch=0 if known is None else known.snapshot.snapshot_epoch + 1,
            state_epoch=begin.state_epoch,
            leader_epoch=0,
            start_offset=begin.start_offset,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=(),
            delivery_complete_count=NOT_COUNTED if begin.start_offset == UNINITIALIZED else 0,
        )
        return _decided(_snapshot(key, value), asker, NO_STATE)

    def write(self, key: ShareKey, update: StateUpdate, asker: Asker[StoredState], now_ms: int) -> ShareOutcome:
        """Store a change of a state that was initialized."""
        try:
            _check_key(key)
            state = self._initialized(key, "written")
            if UNINITIALIZED != update.leader_epoch < state.fencing_leader_epoch:
                raise FencedLeaderEpoch(f"A leader of epoch {state.fencing_leader_epoch} has read {key.text}.")
            if UNINITIALIZED != update.state_epoch < state.fencing_state_epoch:
                raise FencedStateEpoch(f"The state epoch of {key.text} is {state.fencing_state_epoch} now.")
            self._check_exists(key)
        except ApiError as error:
            return answer(asker, error)
        start = update.start_offset
        kept = update._replace(
            leader_epoch=state.leader_epoch,  # only a leader that reads raises it
            start_offset=start if start == UNINITIALIZED else max(start, state.start_offset),
        )
        return _decided(self._change(key, state, kept, now_ms), asker, NO_STATE)

    def read(
        self, key: ShareKey, leader_epoch: int, asker: Asker[StoredState], now_ms: int, *, may_fence: bool = True
    ) -> ShareOutcome:
        """Give a leader the state that it goes on with. Leaders of lower epochs cannot write from then on.

        Who may not fence them can look at the state in the epoch that is known.
        """
        try:
            _check_key(key)
            state = self._initialized(key, "read")
            if leader_epoch < state.fencing_leader_epoch:
                raise FencedLeaderEpoch(f"A leader of epoch {state.fencing_leader_epoch} has read {key.text}.")
            self._check_exists(key)
            if leader_epoch > state.fencing_leader_epoch and not may_fence:
                raise ClusterAuthorizationFailed(
                    f"Only a broker of this cluster may read {key.text} in leader epoch {leader_epoch}, which is above "
                    f"{state.fencing_leader_epoch}."
                )
        except ApiError as error:
            return answer(asker, error)
        if leader_epoch in (UNINITIALIZED, state.fencing_leader_epoch):
            return answer(asker, state.stored())
        update = StateUpdate(
            state.snapshot.state_epoch, leader_epoch, state.start_offset, (), complete_count=state.complete_count
        )
        return _decided(self._change(key, state, update, now_ms), asker, state.stored())

    def read_summary(self, key: ShareKey, asker: Asker[StoredState]) -> ShareOutcome:
        """Tell how far a share partition is, to one who only looks."""
        try:
            _check_key(key)
            self._check_exists(key)
        except ApiError as error:
            return answer(asker, error)
        state = self._states.get(key)
        if state is None:
            return answer(asker, NO_STATE)
        return answer(asker, state.stored())

    def delete(self, key: ShareKey, asker: Asker[StoredState]) -> ShareOutcome:
        """Forget a state; to forget what is not there is no error."""
        try:
            _check_key(key)
            self._check_exists(key)
        except ApiError as error:
            return answer(asker, error)
        if key not in self._states:
            return answer(asker, NO_STATE)
        return _decided(_forget(key), asker, NO_STATE)

    def topics_deleted(self, topic_ids: Collection[UUID]) -> ShareOutcome:
        """Forget the share partitions of topics that are gone."""
        gone = tuple(_forget(key) for key in self._states if key.topic_id in topic_ids)
        return Outcome(changes=gone, is_divisible=True, otherwise=as_before)

    def _initialized(self, key: ShareKey, what: str) -> _State:
        state = self._states.get(key)
        if state is None:
            raise InvalidRequest(f"The state of {key.text} cannot be {what} before it is initialized.")
        return state

    def _check_exists(self, key: ShareKey) -> None:
        if not self._partition_exists(key.topic_id, key.partition):
            raise UnknownTopicOrPartition(f"There is no partition {key.partition} of {uuid_to_text(key.topic_id)}.")

    def _change(self, key: ShareKey, state: _State, update: StateUpdate, now_ms: int) -> ShareRecord:
        """The record of a change: a snapshot of everything when there are enough updates since the last."""
        if state.updates < self.settings.updates_per_snapshot:
            return ShareRecord(
                ShareUpdateKey(*key),
                ShareUpdateValue(
                    snapshot_epoch=state.snapshot.snapshot_epoch,
                    leader_epoch=update.leader_epoch,
                    start_offset=update.start_offset,
                    state_batches=tuple(combine((), update.batches, update.start_offset)),
                    delivery_complete_count=update.complete_count,
                ),
            )
        start_offset = _or(update.start_offset, state.start_offset)
        value = ShareSnapshotValue(
            snapshot_epoch=state.snapshot.snapshot_epoch + 1,
            state_epoch=state.snapshot.state_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=start_offset,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=tuple(combine(state.batches, update.batches, start_offset)),
            delivery_complete_count=update.complete_count,
        )
        return _snapshot(key, value)

    # Upkeep of the log

    def expire(self, key: object, now_ms: int) -> ShareOutcome:
        """Snapshot what did not change for long, or have records deleted that nobody needs.

        Snapshots that are decided from now on do not count for that: they may get lost while the shell deletes.
        """
        if key == PRUNE:
            sends = () if self._without_snapshot else (Prune(self._pruned_at),)
            return Outcome(sends=sends, timers=(Timer(PRUNE, now_ms + self.settings.prune_interval_ms),))
        return Outcome(
            changes=self._cold_snapshots(now_ms),
            timers=(Timer(COLD, now_ms + self.settings.cold_snapshot_interval_ms),),
            is_divisible=True,
            otherwise=as_before,
        )

    def _cold_snapshots(self, now_ms: int) -> tuple[ShareRecord, ...]:
        """A snapshot of each state whose last one is old, unless nothing was written since all had one like this."""
        if all(_is_cold(state) for state in self._states.values()):
            return ()
        oldest = now_ms - self.settings.cold_snapshot_interval_ms
        return tuple(
            _snapshot(
                key,
                state.snapshot._replace(
                    snapshot_epoch=state.snapshot.snapshot_epoch + 1,
                    leader_epoch=state.leader_epoch,
                    start_offset=state.start_offset,
                    write_timestamp=now_ms,
                    state_batches=tuple(state.batches),
                    delivery_complete_count=state.complete_count,
                ),
            )
            for key, state in self._states.items()
            if state.snapshot.write_timestamp <= oldest
        )

    def begin_pruning(self, log_end: int) -> None:
        """The log ends here: its records will be redundant when every state has a newer snapshot."""
        self._pruned_at = log_end
        self._without_snapshot = set(self._states)

    # The log

    def loaded(self, now_ms: int) -> ShareOutcome:
        """Begin the upkeep."""
        return Outcome(
            timers=(
                Timer(COLD, now_ms + self.settings.cold_snapshot_interval_ms),
                Timer(PRUNE, now_ms + self.settings.prune_interval_ms),
            )
        )

    def encode(self, record: ShareRecord) -> tuple[bytes, bytes | None]:
        """Key and value of a record."""
        return share_state.encode(record)

    def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Apply a record of the log. One that cannot be read is passed over."""
        try:
            record = share_state.decode(key, value)
        except InvalidRecord as error:
            logger.error("A record of __share_group_state is passed over, since it cannot be read: %s", error)
            return
        if record is not None:
            self.replay(record)

    def replay(self, record: ShareRecord) -> None:
        """Apply a record that is stored."""
        key, value = ShareKey(*record.key), record.value
        if isinstance(value, ShareSnapshotValue):
            self._replay_snapshot(key, value)
        elif isinstance(value, ShareUpdateValue):
            self._replay_update(key, value)
        elif isinstance(record.key, ShareSnapshotKey):
            self._states.pop(key, None)
            self._without_snapshot.discard(key)

    def _replay_snapshot(self, key: ShareKey, value: ShareSnapshotValue) -> None:
        known = self._states.get(key)
        state = _State(
            value, value.leader_epoch, value.start_offset, value.delivery_complete_count, list(value.state_batches)
        )
        state.fencing_leader_epoch, state.fencing_state_epoch = value.leader_epoch, value.state_epoch
        if known is not None:
            state.updates = known.updates if known.updates < self.settings.updates_per_snapshot else 0
            state.fencing_leader_epoch = max(value.leader_epoch, known.fencing_leader_epoch)
            state.fencing_state_epoch = max(value.state_epoch, known.fencing_state_epoch)
        self._states[key] = state
        self._without_snapshot.discard(key)

    def _replay_update(self, key: ShareKey, value: ShareUpdateValue) -> None:
        state = self._states.get(key)
        if state is None:
            # Kafka takes an update without a snapshot for the whole state.
            nothing = ShareSnapshotValue(value.snapshot_epoch, 0, 0, UNINITIALIZED, 0, 0, ())
            state = self._states[key] = _State(nothing, 0, UNINITIALIZED, NOT_COUNTED, [], updates=-1)
        state.updates += 1
        state.leader_epoch = _or(value.leader_epoch, state.leader_epoch)
        state.fencing_leader_epoch = max(state.fencing_leader_epoch, value.leader_epoch)
        state.start_offset = _or(value.start_offset, state.start_offset)
        state.complete_count = value.delivery_complete_count
        state.batches = combine(state.batches, value.state_batches, state.start_offset)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Nobody writes here in a transaction."""

    def abandon(self, code: ErrorCode) -> ShareOutcome:
        """Nobody waits in this machine: every request is answered when it is decided."""
        return Outcome()

    @property
    def states(self) -> dict[ShareKey, StoredState]:
        """All states, as they would be read."""
        return {key: state.stored() for key, state in self._states.items()}


def _check_key(key: ShareKey) -> None:
    if key.partition < 0:
        raise InvalidRequest(f"The partition is {key.partition}, but must not be negative.")


def _or(given: int, known: int) -> int:
    """What a request names, or what was there where it names nothing."""
    return known if given == UNINITIALIZED else given


def _snapshot(key: ShareKey, value: ShareSnapshotValue) -> ShareRecord:
    return ShareRecord(ShareSnapshotKey(*key), value)


def _forget(key: ShareKey) -> ShareRecord:
    return ShareRecord(ShareSnapshotKey(*key), None)


def _is_cold(state: _State) -> bool:
    """Whether the last snapshot was made because nothing was written for long."""
    return state.snapshot.create_timestamp != state.snapshot.write_timestamp


def _decided(record: ShareRecord, asker: Asker[StoredState], state: StoredState) -> ShareOutcome:
    return Outcome(changes=(record,), replies=((asker, state),), otherwise=as_before)
