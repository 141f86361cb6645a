"""One producer, its coordinator and two partitions, with every message between them late, twice, or both.

A batch comes to a partition in two steps, as in the broker: the coordinator is asked, and when it has answered the
batch is stored; anything may happen in between. Whatever the order, readers of committed records see the transactions
that were committed, whole and once, and a producer that does everything right is never refused.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.broker.replication.verification_guards import Marker
from barnabas.machines.partition import PartitionLeader
from barnabas.machines.transactions.coordinator import TIMEOUT, TransactionTimer
from barnabas.machines.transactions.states import TransactionState
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.records.batch import HEADER_SIZE, MAX_PRODUCER_EPOCH, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import ControlType, control_type
from barnabas.protocol.records.records import Record, read_records
from tests.support.logs import NOW, new_log, recovered, split
from tests.support.transactions import ID, Coordinator

if TYPE_CHECKING:
    from concurrent.futures import Future

    from barnabas.broker.replication.verification_guards import VerificationGuard
    from barnabas.machines.transactions.steps import Markers
    from barnabas.storage.log.log import Log

PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))
EVERYTHING = 1 << 30


class Host:
    """Nobody waits, and nothing is flushed."""

    def wake_soon(self, partition: LeaderPartition) -> None:
        """Nobody sleeps."""

    def wake_followers_soon(self, partition: LeaderPartition) -> None:
        """There is one replica."""

    def flush_through(self, log: Log, end_offset: int) -> Future[int]:
        raise AssertionError("no log here wants to be flushed")

    def isr_may_grow(self, partition: LeaderPartition) -> None:
        """There is one replica."""

    def brokers_up(self) -> frozenset[int]:
        return frozenset()


class Sent(NamedTuple):
    """A batch on its way."""

    place: TopicPartition
    producer: tuple[int, int]
    sequence: int
    value: bytes


class Question(NamedTuple):
    """A batch that waits for the coordinator's answer, about its own partition or another one of its request."""

    partition: LeaderPartition
    batch: Sent
    guard: VerificationGuard | None
    answer: ErrorCode


def visible(log: Log) -> list[bytes]:
    """What a reader of committed records makes of the log."""
    unstable = log.producers.first_unstable_offset
    up_to = log.log_end_offset if unstable is None else unstable
    if up_to == log.log_start_offset:
        return []
    found = log.read(0, EVERYTHING, up_to, min_one=True, committed=True)
    coming = sorted(found.aborted, key=lambda each: each.first_offset, reverse=True)
    aborted: set[int] = set()
    values: list[bytes] = []
    for each in split(b"".join(part.file.read(part.length, part.position) for part in found.slices)):
        header = read_header(each)
        while coming and coming[-1].first_offset <= header.last_offset:
            aborted.add(coming.pop().producer_id)
        records = list(read_records(each[HEADER_SIZE:], header.record_count))
        if header.is_control:
            if control_type(records[0].key) is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif header.producer_id not in aborted:
            values += [record.value or b"" for record in records]
    return values


class Traffic(RuleBasedStateMachine):
    """What was sent once may arrive at any time, any number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.coordinator = Coordinator()
        self.partitions = {place: self._led(new_log(self.folder / str(place.partition))) for place in PLACES}
        self.producer = self.coordinator.register()
        self.sequences = dict.fromkeys(PLACES, 0)
        self.open: dict[TopicPartition, list[bytes]] = {}
        """What the producer has written in its open transaction."""
        self.committed: dict[TopicPartition, list[bytes]] = {place: [] for place in PLACES}
        self.batches: list[Sent] = []
        self.ends: list[tuple[tuple[int, int], bool]] = []
        self.markers: list[Markers] = []
        self.questions: list[Question] = []
        self.number = 0

    def teardown(self) -> None:
        self.settle()
        for place, partition in self.partitions.items():
            assert visible(partition.log) == self.committed[place]
            partition.log.close()
        shutil.rmtree(self.folder)

    def _led(self, log: Log) -> LeaderPartition:
        end = log.log_end_offset
        leader = PartitionLeader(
            broker_id=1, leader_epoch=0, replicas=(1,), isr=(1,), log_end_offset=end, high_watermark=end
        )
        return LeaderPartition(Host(), log.tp, log, leader)

    @initialize(epoch=st.sampled_from([0, MAX_PRODUCER_EPOCH - 2, MAX_PRODUCER_EPOCH - 1]))
    def grow_old(self, epoch: int) -> None:
        """A producer whose epochs are nearly used up gets a new id soon."""
        if epoch:
            self.producer = self.coordinator.advance(epoch)

    # What the producer does, and is answered in time

    @rule(place=st.sampled_from(PLACES), data=st.data())
    def write(self, place: TopicPartition, data: st.DataObject) -> None:
        """The producer sends a batch; others may interfere while the coordinator is asked."""
        batch = self._new(place)
        self._ask(batch)
        question = self.questions.pop()
        for _ in range(data.draw(st.integers(0, 3))):
            data.draw(
                st.sampled_from(
                    [self.late_batch, self.made_up_batch, self.late_answer, self.late_marker, self.late_end]
                )
            )(data)
        self._store(question)

    def _new(self, place: TopicPartition) -> Sent:
        self.settle()
        self.number += 1
        batch = Sent(place, self.producer, self.sequences[place], f"{self.number}".encode())
        self.sequences[place] += 1
        self.batches.append(batch)
        self.open.setdefault(place, []).append(batch.value)
        return batch

    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        """The producer ends its transaction, and all it knows of it has arrived."""
        if not self.open:
            return
        self.ends.append((self.producer, commit))
        response = self.coordinator.end(self.producer, commit)
        assert response.error_code is ErrorCode.none
        self.producer = response.producer_id, response.producer_epoch
        self._begin_anew(commit)

    @precondition(lambda self: self.open)
    @rule()
    def take_too_long(self) -> None:
        """The coordinator aborts the transaction, and the producer registers again."""
        if TransactionTimer(TIMEOUT, ID) in self.coordinator.timers:
            self.coordinator.expire(TIMEOUT, ID)
            self.coordinator.give_ids()
            self.settle()
            self.producer = self.coordinator.register()
            self._begin_anew(commit=False)

    def _begin_anew(self, commit: bool) -> None:
        for place, values in self.open.items():
            if commit:
                self.committed[place] += values
        self.open = {}
        self.sequences = dict.fromkeys(PLACES, 0)

    # What arrives late, or again

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def late_batch(self, data: st.DataObject) -> None:
        """A copy of a batch that was stored before: it asks, and may or may not get further."""
        if self.batches:
            self._ask(data.draw(st.sampled_from(self.batches)))

    @rule(data=st.data())
    def made_up_batch(self, data: st.DataObject) -> None:
        """A batch with an epoch that nobody was given; the coordinator will refuse it."""
        producer_id, epoch = self.producer
        if epoch < MAX_PRODUCER_EPOCH:
            place = data.draw(st.sampled_from(PLACES))
            self._ask(Sent(place, (producer_id, data.draw(st.integers(epoch + 1, MAX_PRODUCER_EPOCH))), 0, b"made up"))

    @precondition(lambda self: self.questions)
    @rule(data=st.data())
    def late_answer(self, data: st.DataObject) -> None:
        """The coordinator's answer about such a copy arrives."""
        if self.questions:
            question = data.draw(st.sampled_from(self.questions))
            self.questions.remove(question)
            self._store(question, late=True)

    @precondition(lambda self: self.markers)
    @rule(data=st.data())
    def late_marker(self, data: st.DataObject) -> None:
        """A copy of a marker that was written before."""
        if self.markers:
            markers = data.draw(st.sampled_from(self.markers))
            for place in markers.partitions:
                self._write_marker(markers, place, late=True)

    @precondition(lambda self: self.ends)
    @rule(data=st.data())
    def late_end(self, data: st.DataObject) -> None:
        """A copy of an EndTxn that was answered before; it decides nothing."""
        if self.ends:
            before = self.coordinator.value()
            self.coordinator.end(*data.draw(st.sampled_from(self.ends)))
            assert self.coordinator.value() == before

    @rule()
    def move_the_coordinator(self) -> None:
        """Another broker takes over, and sends again what was decided."""
        self.coordinator.reload()

    @rule(place=st.sampled_from(PLACES))
    def crash(self, place: TopicPartition) -> None:
        """A partition is led anew, from what is on disk; for whoever waited in it nobody was asked."""
        self.partitions[place] = self._led(recovered(self.partitions[place].log))

    # How messages are taken

    def settle(self) -> None:
        """All markers are written."""
        for markers in self.coordinator.markers:
            for place in markers.partitions:
                self._write_marker(markers, place)
            self.markers.append(markers)
        self.coordinator.write_markers()

    def _write_marker(self, markers: Markers, place: TopicPartition, *, late: bool = False) -> None:
        marker = Marker(markers.producer_id, markers.producer_epoch, 0, markers.commit, bumped=True)
        try:
            self.partitions[place].end_transaction(marker, NOW)
        except ApiError:
            assert late, "a marker was refused"

    def _ask(self, batch: Sent) -> None:
        partition = self.partitions[batch.place]
        guard = partition.verification.begin(*batch.producer, 0.0, batch.sequence)
        answer = ErrorCode.none if guard is None else self.coordinator.add(batch.producer, (batch.place,))
        self.questions.append(Question(partition, batch, guard, answer))

    def _store(self, question: Question, *, late: bool = False) -> None:
        asked, batch, guard, code = question
        partition = self.partitions[batch.place]
        if code is not ErrorCode.none:
            assert late, f"the producer was refused: {code.name}"
            return
        try:
            shown = guard if partition is asked else None
            partition.verification.check(*batch.producer, shown, batch.sequence, bumped=True)
            self._append(partition, batch)
        except ApiError:
            if not late:
                raise

    def _append(self, partition: LeaderPartition, batch: Sent) -> None:
        data = build_batch(
            [Record(0, 0, None, batch.value)],
            base_timestamp=NOW,
            producer_id=batch.producer[0],
            producer_epoch=batch.producer[1],
            base_sequence=batch.sequence,
            transactional=True,
        )
        partition.append(data, read_header(data), NOW)

    @invariant()
    def only_what_was_committed_is_visible_in_its_order(self) -> None:
        for place, partition in self.partitions.items():
            seen = visible(partition.log)
            assert seen == self.committed[place][: len(seen)]

    @invariant()
    def no_transaction_is_open_of_which_the_coordinator_does_not_know(self) -> None:
        if self.coordinator.state() not in (TransactionState.ONGOING,) and not self.coordinator.markers:
            assert all(partition.log.producers.first_unstable_offset is None for partition in self.partitions.values())


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(deadline=None, max_examples=60, stateful_step_count=25)
