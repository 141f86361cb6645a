"""A share partition beside a plain model of its rules: every record on its own, in a dict.

Members fetch, acknowledge, leave and are late in any order; writes succeed and fail, now or later; the log loses its
beginning and whole batches; dead letters are written, and the group gets and loses its topic for them. After each step
every record is in the state that the model says, and a share partition that loads what was stored goes on without
losing a record, a delivery or a dead letter.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.machines.shares.coordinator import StoredState
from barnabas.machines.shares.locks import LOCKS
from barnabas.machines.shares.partition import SharePartition
from barnabas.machines.shares.records import (
    AcknowledgementBatch,
    AcquireLimits,
    LetterProgress,
    LogBatch,
    SharePartitionSettings,
)
from barnabas.machines.shares.state_batches import DeliveryState, combine
from barnabas.model.errors import ApiError
from barnabas.protocol.dead_letters import GivenUp

if TYPE_CHECKING:
    from barnabas.machines.shares.partition import ShareOutcome
    from barnabas.protocol.coordinator_records.share_state import StateBatch

SETTINGS = SharePartitionSettings(lock_ms=100, max_deliveries=4, max_locks=16)
MEMBERS = st.sampled_from(["anna", "bela", "cleo"])
LARGEST_BATCH = 8
"""A batch of the log is not divided, so the last one may go beyond what may be in flight."""
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
AFTER = {0: ARCHIVED, 1: ACKNOWLEDGED, 2: AVAILABLE, 3: ARCHIVING}
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
    progress: LetterProgress = LetterProgress.DECIDED
    """Of the dead letter, while it is archiving."""
    reason: GivenUp = GivenUp.REJECTED


@dataclass
class Log:
    """Batches of a few records, of which some are gone."""

    batches: list[tuple[int, int]] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    """Records of aborted transactions that are there, which the group does not see."""
    start: int = 0
    end: int = 0

    def read(self, offset: int, most: int) -> list[LogBatch]:
        found = [(first, last) for first, last in self.batches if last >= max(offset, self.start)]
        return [LogBatch(first, last, first in self.aborted) for first, last in found[:most]]


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
        self.alarm_ms: int | None = None
        """When the machine has asked to be called."""
        self.letters = Counter[int]()
        """How many dead letters of each record are stored."""
        self.need_letters: set[int] = set()
        """Records of which it is stored that they are archiving."""

    def set_alarm(self, outcome: ShareOutcome) -> None:
        for timer in outcome.timers:
            assert timer.key == LOCKS
            self.alarm_ms = timer.at_ms

    @rule(there_are=st.booleans())
    def switch_dead_letters(self, there_are: bool) -> None:
        self.machine.settings = replace(SETTINGS, has_dead_letters=there_are)

    def after(self, known: Known, wanted: int) -> int:
        """What becomes of a record that its member gives back, by the rules."""
        if wanted == AVAILABLE and known.deliveries >= SETTINGS.max_deliveries:
            wanted, known.reason = ARCHIVING, GivenUp.DELIVERIES_USED_UP
        elif wanted == ARCHIVING:
            known.reason = GivenUp.REJECTED
        return ARCHIVED if wanted == ARCHIVING and not self.machine.settings.has_dead_letters else wanted

    @rule(size=st.integers(1, LARGEST_BATCH), is_aborted=st.sampled_from([False, False, True]))
    def produce(self, size: int, is_aborted: bool) -> None:
        self.log.batches.append((self.log.end, self.log.end + size - 1))
        if is_aborted:
            self.log.aborted.update(range(self.log.end, self.log.end + size))
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
        first, last = self.log.batches.pop(data.draw(st.integers(0, len(self.log.batches) - 1)))
        self.log.aborted.difference_update(range(first, last + 1))  # what is gone is a gap, whatever it was

    @rule(
        member=MEMBERS, most=st.integers(1, 12), size=st.integers(1, 6), strict=st.booleans(), batches=st.integers(1, 4)
    )
    def fetch(self, member: str, most: int, size: int, strict: bool, batches: int) -> None:
        offset = self.machine.next_fetch_offset()
        found = self.log.read(offset, batches)
        free = {at for at, known in self.model.items() if known.state == AVAILABLE and not known.writing}
        before = set(self.model)
        room = max(0, SETTINGS.max_locks - self.machine.in_flight)
        limits = AcquireLimits(most, size, strict)
        acquired, outcome = self.machine.acquire(member, found, limits, offset, self.now_ms)
        self.set_alarm(outcome)
        for at in free:
            if at < self.machine.start_offset and (at in self.log.aborted or (found and at < found[0].first_offset)):
                self.model[
                    at
                ].state = ARCHIVED  # the log does not have it, or nobody sees it, and the start has passed it
        for run in self.machine.runs:
            for at in range(run.first, run.last + 1):
                known = self.model.get(at)
                if run.state is DeliveryState.ARCHIVED and (known is None or at in free):
                    assert found, "records were given up without a look at the log"
                    assert at < found[0].first_offset or at in self.log.aborted, "the log has it"
                    self.model[at] = Known(ARCHIVED, known.deliveries if known else 0)
        for first, last, deliveries in acquired:
            for at in range(first, last + 1):
                known = self.model.setdefault(at, Known())
                assert at not in self.log.aborted, f"{at} is of an aborted transaction"
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
        new = {at for first, last, _ in acquired for at in range(first, last + 1) if at not in before and at in there}
        assert len(new) <= room + (0 if strict or not room else LARGEST_BATCH), "more is in flight than may be"
        if there & self.log.aborted:
            return  # they count as acquired, until it is seen that they are aborted
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
        self.set_alarm(outcome)
        (write,) = outcome.sends
        assert isinstance(write, int)
        for at, kind in wanted.items():
            known = self.model[at]
            if kind == 4:
                known.deadline_ms = self.now_ms + SETTINGS.lock_ms
                continue
            known.writing = write, self.after(known, AFTER[kind]), known.deliveries
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
                known.writing = write, self.after(known, AVAILABLE), known.deliveries
        self.writes.append((write, outcome.changes))

    @rule(most=st.integers(1, 12))
    def go_on_with_dead_letters(self, most: int) -> None:
        """Do what is missing: store that records are archiving, their dead letters, or that they are archived."""
        waiting = {at for at, known in self.model.items() if known.state == ARCHIVING and known.writing is None}
        letters = self.machine.next_letters(most)
        named = {at: each for each in letters for at in range(each.first_offset, each.last_offset + 1)}
        assert len(named) == min(most, len(waiting))
        assert named.keys() <= waiting
        for at, each in named.items():
            known = self.model[at]
            assert (each.delivery_count, each.reason, each.progress) == (known.deliveries, known.reason, known.progress)
        progress = next((each.progress for each in letters), None)
        chosen = [each for each in letters if each.progress is progress]
        if progress is LetterProgress.DECIDED:
            self.begin_write(self.machine.note(chosen), ARCHIVING)
            return
        for at, each in named.items():
            if each in chosen:
                self.letters[at] += progress is LetterProgress.NOTED
                self.model[at].progress = LetterProgress.WRITTEN
        self.begin_write(self.machine.archive(chosen), ARCHIVED)

    def begin_write(self, outcome: ShareOutcome, state: int) -> None:
        (write,) = outcome.sends
        assert isinstance(write, int)
        for first, last, known_state, _ in outcome.changes:
            assert known_state == state
            for at in range(first, last + 1):
                self.model[at].writing = write, state, self.model[at].deliveries
        self.writes.append((write, outcome.changes))

    @precondition(lambda self: self.writes)
    @rule(data=st.data(), succeeds=st.booleans())
    def end_a_write(self, data: Any, succeeds: bool) -> None:
        write, changes = self.writes.pop(data.draw(st.integers(0, len(self.writes) - 1)))
        if succeeds:
            self.store(changes)
            self.machine.stored(write)
        else:
            self.set_alarm(self.machine.refused(write))
        for known in self.model.values():
            if known.writing and known.writing[0] == write:
                if succeeds:
                    _, known.state, known.deliveries = known.writing
                    known.member = ""
                    if known.state == ARCHIVING:
                        known.progress = LetterProgress.NOTED
                known.writing = None

    def store(self, changes: tuple[StateBatch, ...]) -> None:
        self.start_stored = max(self.start_stored, self.machine.start_offset)
        self.stored = combine(self.stored, changes, self.start_stored)
        for first, last, state, _ in changes:
            if state == ARCHIVING:
                self.need_letters.update(range(first, last + 1))

    @rule(later=st.integers(1, 120))
    def wait(self, later: int) -> None:
        self.now_ms += later
        outcome = self.machine.expire(LOCKS, self.now_ms)
        self.set_alarm(outcome)
        for known in self.model.values():
            if known.state == ACQUIRED and known.writing is None and known.deadline_ms <= self.now_ms:
                known.state, known.member, known.progress = self.after(known, AVAILABLE), "", LetterProgress.DECIDED
        if not outcome.sends:
            self.store(outcome.changes)
            return
        (write,) = outcome.sends
        assert isinstance(write, int)
        for first, last, state, _ in outcome.changes:
            for at in range(first, last + 1) if state == ARCHIVING else ():
                self.model[at].writing = write, ARCHIVING, self.model[at].deliveries
        self.writes.append((write, outcome.changes))

    @rule()
    def fail_over(self) -> None:
        """Another broker leads: it knows only what was stored, and all writes that were under way fail."""
        before = {at: known for at, known in self.model.items() if known.state in FINAL}
        self.machine, self.alarm_ms = SharePartition(self.machine.settings), None
        self.machine.load(StoredState(0, 0, self.start_stored, -1, tuple(self.stored)), self.start_stored)
        self.machine.log_start_moved(self.log.start)
        self.writes.clear()
        self.model = {
            at: Known(int(run.state), run.deliveries, progress=run.progress, reason=run.reason)
            for run in self.machine.runs
            for at in range(run.first, run.last + 1)
        }
        for known in self.model.values():
            if known.state == ARCHIVING:
                assert known.progress is LetterProgress.NOTED
                assert (known.reason is GivenUp.REJECTED) == (known.deliveries < SETTINGS.max_deliveries)
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
    def what_was_to_have_a_dead_letter_has_one_before_it_is_archived(self) -> None:
        for at in self.need_letters:
            if at >= self.log.start and not self.letters[at]:
                assert at in self.model, f"the start passed {at}, which has no dead letter"
                assert self.model[at].state == ARCHIVING, f"{at} has no dead letter"

    @invariant()
    def what_is_counted_is_what_is_there(self) -> None:
        complete = [known for known in self.model.values() if (known.writing or (0, known.state))[1] in FINAL]
        assert self.machine.complete_count == len(complete)

    @invariant()
    def no_lock_ends_unseen(self) -> None:
        held = [known for known in self.model.values() if known.state == ACQUIRED and known.writing is None]
        first = min((known.deadline_ms for known in held), default=None)
        assert first is None or (self.alarm_ms is not None and self.alarm_ms <= first)

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
