"""A share partition costs what a request names, however much is in flight."""

from __future__ import annotations

import sys
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
