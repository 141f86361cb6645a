"""A share partition beside a plain model of its rules: every record on its own, in a dict.

Members fetch, acknowledge, leave and are late in any order; writes succeed and fail, now or later; the log loses its
beginning and whole batches. After each step every record is in the state that the model says, and a share partition
that loads what was stored goes on without losing a record or a delivery.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.machines.shares.coordinator import StoredState
from barnabas.machines.shares.partition import (
    LOCKS,
    AcknowledgementBatch,
    AcquireLimits,
    LogBatch,
    SharePartition,
    SharePartitionSettings,
)
from barnabas.machines.shares.state_batches import DeliveryState, combine
from barnabas.model.errors import ApiError

if TYPE_CHECKING:
    from barnabas.protocol.coordinator_records.share_state import StateBatch

SETTINGS = SharePartitionSettings(lock_ms=100, max_deliveries=4, max_locks=40)
MEMBERS = st.sampled_from(["anna", "bela", "cleo"])
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
AFTER = {0: ARCHIVED, 1: ACKNOWLEDGED, 2: AVAILABLE, 3: ARCHIVED}
FINAL = (ACKNOWLEDGED, ARCHIVED)


@dataclass
class Known:
    """What the model knows of one record."""

    state: int = AVAILABLE
    deliveries: int = 0
    member: str = ""
    deadline_ms: int = 0
    writing: tuple[int, int, int] | None = None
    """A write, and the state and delivery count after it."""


@dataclass
class Log:
    """Batches of a few records, of which some are gone."""

    batches: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def read(self, offset: int, most: int) -> list[LogBatch]:
        return [LogBatch(first, last) for first, last in self.batches if last >= max(offset, self.start)][:most]


class SharePartitions(RuleBasedStateMachine):
    """The machine, the model and the log."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.now_ms = 1000
        self.machine = SharePartition(SETTINGS)
        self.model: dict[int, Known] = {}
        self.stored: list[StateBatch] = []
        self.start_stored = 0
        self.writes: list[tuple[int, tuple[StateBatch, ...]]] = []

    @rule(size=st.integers(1, 8))
    def produce(self, size: int) -> None:
        self.log.batches.append((self.log.end, self.log.end + size - 1))
        self.log.end += size

    @rule(gone=st.integers(1, 9))
    def lose_the_beginning(self, gone: int) -> None:
        self.log.start = min(self.log.end, self.log.start + gone)
        self.log.batches = [(first, last) for first, last in self.log.batches if last >= self.log.start]
        self.machine.log_start_moved(self.log.start)
        for offset in [offset for offset in self.model if offset < self.log.start]:
            del self.model[offset]

    @precondition(lambda self: self.log.batches)
    @rule(data=st.data())
    def compact(self, data: Any) -> None:
        self.log.batches.pop(data.draw(st.integers(0, len(self.log.batches) - 1)))

    @rule(
        member=MEMBERS, most=st.integers(1, 12), size=st.integers(1, 6), strict=st.booleans(), batches=st.integers(1, 4)
    )
    def fetch(self, member: str, most: int, size: int, strict: bool, batches: int) -> None:
        offset = self.machine.next_fetch_offset()
        found = self.log.read(offset, batches)
        free = {at for at, known in self.model.items() if known.state == AVAILABLE and not known.writing}
        before = set(self.model)
        acquired, _ = self.machine.acquire(member, found, AcquireLimits(most, size, strict), offset, self.now_ms)
        for at in free:
            if found and at < min(self.machine.start_offset, found[0].first_offset):
                self.model[at].state = ARCHIVED  # the log does not have it, and the start has passed it
        for run in self.machine.runs:
            for at in range(run.first, run.last + 1):
                known = self.model.get(at)
                if run.state is DeliveryState.ARCHIVED and (known is None or at in free):
                    assert found, "records were given up without a look at the log"
                    assert at < found[0].first_offset, "the log has it"
                    self.model[at] = Known(ARCHIVED, known.deliveries if known else 0)
        for first, last, deliveries in acquired:
            for at in range(first, last + 1):
                known = self.model.setdefault(at, Known())
                assert known.state == AVAILABLE, f"{at} was delivered twice"
                assert not known.writing
                known.state, known.deliveries, known.member = ACQUIRED, known.deliveries + 1, member
                known.deadline_ms = self.now_ms + SETTINGS.lock_ms
                assert deliveries == known.deliveries <= SETTINGS.max_deliveries
        count = sum(last - first + 1 for first, last, _ in acquired)
        last_time = [each for each in acquired if each.delivery_count == SETTINGS.max_deliveries]
        assert not last_time or count == 1, "a record is delivered the last time alone"
        if strict:
            assert count <= most
        there = {at for each in found for at in range(max(each.first_offset, offset), each.last_offset + 1)}
        if self.machine.in_flight < SETTINGS.max_locks and any(at in free or at not in before for at in there):
            assert count, "there was something to deliver"

    @rule(member=MEMBERS, data=st.data())
    def acknowledge(self, member: str, data: Any) -> None:
        first = data.draw(st.integers(max(0, self.machine.start_offset - 2), self.machine.end_offset + 1))
        last = first + data.draw(st.integers(0, 6))
        length = last - first + 1
        types = data.draw(st.one_of(st.tuples(st.integers(0, 4)), st.tuples(*[st.integers(0, 4)] * length)))
        wanted = {at: types[0 if len(types) == 1 else at - first] for at in range(first, last + 1)}
        wanted = {at: kind for at, kind in wanted.items() if at >= self.machine.start_offset}
        good = all(self.is_held(at, member) for at in wanted)
        try:
            outcome = self.machine.acknowledge(member, [AcknowledgementBatch(first, last, types)], self.now_ms)
        except ApiError:
            assert not good
            return
        assert good, "records were acknowledged that the member does not have"
        (write,) = outcome.sends
        assert isinstance(write, int)
        for at, kind in wanted.items():
            known = self.model[at]
            if kind == 4:
                known.deadline_ms = self.now_ms + SETTINGS.lock_ms
                continue
            used_up = AFTER[kind] == AVAILABLE and known.deliveries >= SETTINGS.max_deliveries
            known.writing = write, ARCHIVED if used_up else AFTER[kind], known.deliveries
        self.writes.append((write, outcome.changes))

    def is_held(self, at: int, member: str) -> bool:
        known = self.model.get(at)
        return known is not None and known.state == ACQUIRED and known.member == member and known.writing is None

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        outcome = self.machine.release(member)
        (write,) = outcome.sends
        assert isinstance(write, int)
        for at, known in self.model.items():
            if self.is_held(at, member):
                used_up = known.deliveries >= SETTINGS.max_deliveries
                known.writing = write, ARCHIVED if used_up else AVAILABLE, known.deliveries
        self.writes.append((write, outcome.changes))

    @precondition(lambda self: self.writes)
    @rule(data=st.data(), succeeds=st.booleans())
    def end_a_write(self, data: Any, succeeds: bool) -> None:
        write, changes = self.writes.pop(data.draw(st.integers(0, len(self.writes) - 1)))
        if succeeds:
            self.store(changes)
            self.machine.stored(write)
        else:
            self.machine.refused(write)
        for known in self.model.values():
            if known.writing and known.writing[0] == write:
                if succeeds:
                    _, known.state, known.deliveries = known.writing
                    known.member = ""
                known.writing = None

    def store(self, changes: tuple[StateBatch, ...]) -> None:
        self.start_stored = max(self.start_stored, self.machine.start_offset)
        self.stored = combine(self.stored, changes, self.start_stored)

    @rule(later=st.integers(1, 120))
    def wait(self, later: int) -> None:
        self.now_ms += later
        self.store(self.machine.expire(LOCKS, self.now_ms).changes)
        for known in self.model.values():
            if known.state == ACQUIRED and known.writing is None and known.deadline_ms <= self.now_ms:
                known.state = ARCHIVED if known.deliveries >= SETTINGS.max_deliveries else AVAILABLE
                known.member = ""

    @rule()
    def fail_over(self) -> None:
        """Another broker leads: it knows only what was stored, and all writes that were under way fail."""
        before = {at: known for at, known in self.model.items() if known.state in FINAL}
        self.machine = SharePartition(SETTINGS)
        self.machine.load(StoredState(0, 0, self.start_stored, -1, tuple(self.stored)), self.start_stored)
        self.machine.log_start_moved(self.log.start)
        self.writes.clear()
        self.model = {
            at: Known(int(run.state), run.deliveries)
            for run in self.machine.runs
            for at in range(run.first, run.last + 1)
        }
        for at, known in before.items():
            there = self.model.get(at)
            if at >= self.machine.start_offset and at in _offsets(self.log) and there is not None:
                assert there.state == known.state, "what was acknowledged is delivered again"

    @invariant()
    def every_record_is_as_the_model_says(self) -> None:
        start = self.machine.start_offset
        seen: dict[int, tuple[int, int]] = {}
        for run in self.machine.runs:
            assert run.first <= run.last
            for at in range(run.first, run.last + 1):
                assert at not in seen, "two runs overlap"
                seen[at] = int(run.state), run.deliveries
        for at in [at for at in self.model if at < start]:
            assert self.model[at].state in FINAL, f"the start passed {at}, which is not done with"
            del self.model[at]
        assert {at: known.state for at, known in self.model.items()} == {at: state for at, (state, _) in seen.items()}
        assert all(known.deliveries == seen[at][1] for at, known in self.model.items() if known.state not in FINAL)
        assert self.machine.in_flight >= 0
        assert max(seen, default=start - 1) < self.machine.end_offset

    @invariant()
    def the_next_record_to_read_is_the_first_that_can_be_delivered(self) -> None:
        start, end = self.machine.start_offset, self.machine.end_offset
        free = [
            at
            for at in range(start, end)
            if at not in self.model or (self.model[at].state == AVAILABLE and not self.model[at].writing)
        ]
        assert self.machine.next_fetch_offset() == min(free, default=end)


def _offsets(log: Log) -> set[int]:
    return {at for first, last in log.batches for at in range(first, last + 1)}


TestSharePartitions = SharePartitions.TestCase
TestSharePartitions.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
