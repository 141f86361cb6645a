"""A share partition costs what a request names, however much is in flight, and isolates what is delivered often."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.machines.shares.locks import LOCKS, SPARE_ENTRIES
from barnabas.machines.shares.partition import SharePartition
from barnabas.machines.shares.records import (
    AcknowledgementBatch,
    AcquireLimits,
    LogBatch,
    RecordRun,
    SharePartitionSettings,
)
from barnabas.protocol.acknowledgements import Acknowledgement

if TYPE_CHECKING:
    from collections.abc import Callable


def bytecodes(work: Callable[[], object]) -> int:
    """How many bytecodes something takes: unlike seconds, the same each time."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_rest_of_a_run_has_everything_in_common_with_it() -> None:
    values: dict[str, Any] = {field.name: number for number, field in enumerate(fields(RecordRun), 100)}
    run = RecordRun(**{**values, "first": 3, "last": 9})
    rest = run.cut_off(5)
    assert (run.first, run.last, rest.first, rest.last) == (3, 4, 5, 9)
    assert replace(rest, first=3, last=4) == run
    assert [getattr(rest, name) for name in list(values)[2:]] == list(values.values())[2:]


def delivered(records: int) -> SharePartition:
    """So many records, each acquired by a fetch of its own."""
    machine = SharePartition(SharePartitionSettings(max_locks=4000))
    for offset in range(records):
        machine.acquire("anna", [LogBatch(offset, offset)], AcquireLimits(1, 1, strict=True), offset, 1000 + offset)
    return machine


def acknowledge(machine: SharePartition, offset: int, kind: Acknowledgement) -> int:
    """Acknowledge one record, store that, and look where to read next."""
    (write,) = machine.acknowledge("anna", [AcknowledgementBatch(offset, offset, (kind,))], 5000).sends
    assert isinstance(write, int)
    machine.stored(write)
    return machine.complete_count + machine.next_fetch_offset()


@pytest.mark.parametrize("kind", [Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.REJECT])
def test_an_acknowledgement_costs_the_same_whatever_is_in_flight(kind: Acknowledgement) -> None:
    costs = []
    for records in (100, 2000):
        machine = delivered(records)
        acknowledge(machine, records // 2, kind)
        costs.append(bytecodes(lambda: acknowledge(machine, records // 2 + 2, kind)))  # noqa: B023
    assert costs[1] < 1.25 * costs[0], f"with 100 records in flight {costs[0]} bytecodes, with 2,000 {costs[1]}"


def test_locks_that_are_over_take_no_memory() -> None:
    machine = delivered(10)
    for time in range(10_000):
        machine.acknowledge("anna", [AcknowledgementBatch(3, 3, (Acknowledgement.RENEW,))], 5000 + time)
    assert len(machine._locks._entries) <= 2 * len(machine.runs) + SPARE_ENTRIES + 1
    assert machine.expire(LOCKS, 5000 + 9_999).timers[0].at_ms == 31_000, "the first lock of another record"


def test_records_are_found_behind_others_that_became_one_run() -> None:
    machine = delivered(10)
    for offset in (3, 5, 4, 8, 7, 6):
        acknowledge(machine, offset, Acknowledgement.ACCEPT)
    acknowledge(machine, 9, Acknowledgement.RELEASE)
    assert [(run.first, run.last) for run in machine.runs] == [(0, 0), (1, 1), (2, 2), (3, 8), (9, 9)]
    assert (machine.next_fetch_offset(), machine.complete_count) == (9, 6)
    for offset in (1, 0, 2):
        acknowledge(machine, offset, Acknowledgement.ACCEPT)
    assert (machine.start_offset, machine.end_offset, machine.complete_count) == (9, 10, 0)
    acquired, _ = machine.acquire("anna", [LogBatch(9, 9), LogBatch(10, 12)], AcquireLimits(9), 9, 5000)
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in acquired] == [(9, 9, 2), (10, 12, 1)]
    machine.log_start_moved(11)
    assert [(run.first, run.last) for run in machine.runs.within(12, 12)] == [(11, 12)]


def test_records_are_found_in_a_run_that_is_divided_from_its_end() -> None:
    machine = SharePartition(SharePartitionSettings())
    machine.acquire("anna", [LogBatch(0, 9)], AcquireLimits(500), 0, 1000)
    for offset in (8, 4, 6, 2):
        acknowledge(machine, offset, Acknowledgement.ACCEPT)
    singles = [(at, at) for at in range(2, 10)]
    assert [(run.first, run.last) for run in machine.runs] == [(0, 1), *singles]
    for at in (0, 3, 5, 7, 9):
        assert [run.first for run in machine.runs.within(at, at)] == [at]
        acknowledge(machine, at, Acknowledgement.RELEASE)
    assert machine.next_fetch_offset() == 0


def deliver_often(sizes: tuple[int, ...], limit: int, *, one_by_one: bool) -> list[dict[int, int]]:
    """What each delivery has, until all records are given up: a member gives everything back, together or in pieces."""
    batches = [LogBatch(sum(sizes[:place]), sum(sizes[: place + 1]) - 1) for place in range(len(sizes))]
    machine = SharePartition(SharePartitionSettings(max_deliveries=limit))
    told: list[dict[int, int]] = []
    while machine.start_offset < sum(sizes):
        offset = machine.next_fetch_offset()
        found = [batch for batch in batches if batch.last_offset >= offset]
        acquired, _ = machine.acquire("anna", found, AcquireLimits(500), offset, 1000)
        told.append({at: count for first, last, count in acquired for at in range(first, last + 1)})
        pieces = [(at, at) for at in told[-1]] if one_by_one else [(first, last) for first, last, _ in acquired]
        said = [AcknowledgementBatch(first, last, (Acknowledgement.RELEASE,)) for first, last in pieces]
        (write,) = machine.acknowledge("anna", said, 1000).sends
        assert isinstance(write, int)
        machine.stored(write)
    return told


@pytest.mark.parametrize("one_by_one", [False, True], ids=["together", "one by one"])
def test_records_that_were_delivered_often_come_with_half_of_those_they_came_with_first(one_by_one: bool) -> None:
    """However their member gives them back: what it says of single records divides what is known of the batch."""
    told = deliver_often((8, 2), 6, one_by_one=one_by_one)
    everything = range(10)
    assert told[:3] == [dict.fromkeys(everything, count) for count in (1, 2, 3)]
    assert told[3:7] == [dict.fromkeys(range(5), 4), {0: 5, 1: 5}, {0: 6}, {1: 6}]
    assert told[7] == {2: 5, 3: 5}
    times = Counter(at for each in told for at in each)
    assert times == dict.fromkeys(everything, 6)
    assert all(len(each) == 1 for each in told if 6 in each.values())


@pytest.mark.parametrize("is_stored", [True, False])
def test_retention_shortens_and_takes_away_what_a_write_is_about(is_stored: bool) -> None:
    machine = delivered(10)
    batches = [AcknowledgementBatch(first, last, (Acknowledgement.ACCEPT,)) for first, last in ((1, 1), (3, 6), (8, 8))]
    machine.acquire("bela", [LogBatch(10, 19)], AcquireLimits(10, 10), 10, 2000)
    (write,) = machine.acknowledge("anna", batches, 5000).sends
    (other,) = machine.acknowledge("bela", [AcknowledgementBatch(12, 17, (Acknowledgement.ACCEPT,))], 5000).sends
    assert isinstance(write, int)
    assert isinstance(other, int)
    assert machine.complete_count == 12
    machine.log_start_moved(5)
    assert machine.complete_count == 9
    machine.log_start_moved(15)
    assert (machine.start_offset, machine.complete_count) == (15, 3)
    for each in (write, other):
        if is_stored:
            machine.stored(each)
        else:
            machine.refused(each)
    assert machine.start_offset == (18 if is_stored else 15)
    assert (machine.complete_count, machine.in_flight) == (0, 2 if is_stored else 5)
