"""Runs of records of one size, as far as their numbers go."""

from __future__ import annotations

import pytest

from barnabas.protocol.records.records import Record, encode_records
from barnabas.storage.cleaner.worker.payload import add_keys
from barnabas.storage.cleaner.worker.strides import equal_run


def records(count: int) -> bytes:
    return encode_records([Record(number, 0, b"key %05d" % number, b"value") for number in range(count)])


@pytest.mark.parametrize(("count", "expected"), [(7, []), (8, [8]), (64, [64]), (200, [64, 136]), (8300, [64, 8128])])
def test_runs_end_where_numbers_become_longer(count: int, expected: list[int]) -> None:
    payload = records(count)
    found, position, number = [], 0, 0
    while (run := equal_run(payload, position, len(payload), number)) is not None:
        assert run.keys(payload) == [b"key %05d" % each for each in range(number, number + run.records)]
        found.append(run.records)
        position, number = run.end, number + run.records
    assert found == expected


def test_the_rest_is_read_one_by_one() -> None:
    payload = records(8300)
    last: dict[bytes, int] = {}
    assert add_keys(payload, 0, len(payload), 10, 0, last) == 8300
    assert last == {b"key %05d" % number: (10 + number) * 2 for number in range(8300)}
