"""A compacted log equals a dictionary, whatever was written to it and whenever it was cleaned.

tests/crash has the same histories on a disk that loses what was not synced.
"""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record, encode_records
from barnabas.storage.cleaner.worker.key_map import LONGEST_KEY, KeyMap, digest
from barnabas.storage.cleaner.worker.payload import (
    add_keys,
    keep_by_delta,
    keep_by_key,
    keep_by_number,
    largest_timestamp_delta,
    restamp,
)
from tests.support.compaction import records_of
from tests.support.compaction_run import CompactionRun
from tests.support.memory import parent_in_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"k" * 30, b"k" * 31, b"k" * 200]))
VALUES = st.one_of(st.none(), st.binary(max_size=5), st.sampled_from([b"v" * 70, b"v" * 9000]))
RECORDS = st.lists(st.tuples(st.integers(1, 200), st.integers(-(10**6), 10**12), KEYS, VALUES), min_size=1, max_size=12)


ODD = st.none() | st.tuples(
    st.integers(0, 899), st.sampled_from(["key", "null", "value", "tombstone", "time", "delta"])
)


def equals(count: int, key_size: int, value_size: int, step: int, odd: tuple[int, str] | None) -> list[Record]:
    """Records that are equally long, but for one of them, perhaps."""
    records = [
        Record(number, number * step, (b"%d" % (number % 50)).ljust(key_size)[:key_size], b"v" * value_size)
        for number in range(count if value_size < 1000 else min(count, 70))
    ]
    if odd is not None:
        at = odd[0] % len(records)
        record = records[at]
        records[at] = {
            "key": record._replace(key=b"k" * (key_size + 1)),
            "null": record._replace(key=None),
            "value": record._replace(value=b"w" * (value_size + 1)),
            "tombstone": record._replace(value=None),
            "time": record._replace(timestamp_delta=10**6),
            "delta": record._replace(offset_delta=at + 1),
        }[odd[1]]
    return records


EQUAL = st.builds(
    equals,
    st.sampled_from([7, 8, 9, 63, 64, 65, 200, 900]),
    st.integers(1, 64),
    st.sampled_from([0, 1, 40, 100, 8000]),
    st.sampled_from([0, 1, 70]),
    ODD,
)


def built(drawn: Sequence[tuple[int, int, bytes | None, bytes | None]]) -> list[Record]:
    """Records with rising offset deltas, with gaps."""
    records, delta = [], -1
    for step, timestamp, key, value in drawn:
        delta += step
        records.append(Record(delta, timestamp, key, value))
    return records


@given(RECORDS, st.integers(0, 2**40), st.integers(0, 300))
def test_keys_are_noted_as_a_plain_reading_would(
    drawn: list[tuple[int, int, bytes | None, bytes | None]], base: int, since: int
) -> None:
    records = built(drawn)
    payload = encode_records(records)
    keys = KeyMap(1 << 20, 1.0, 0)
    assert add_keys(payload, 0, len(payload), base, base + since, keys.last) == len(records)
    last = {
        record.key: (base + record.offset_delta) * 2 + (record.value is None)
        for record in records
        if record.key is not None and record.offset_delta >= since
    }
    assert keys.survivors() == array("q", sorted(last.values()))
    short = {key: value for key, value in keys.last.items() if len(key) <= 30}
    assert short == {key: value for key, value in last.items() if len(key) <= 30}


@given(EQUAL, st.integers(0, 2**32))
@settings(max_examples=40)
def test_records_of_one_size_are_treated_as_one_by_one(records: list[Record], seed: int) -> None:
    payload = encode_records(records)
    last: dict[bytes, int] = {}
    assert add_keys(payload, 0, len(payload), 100, 0, last) == len(records)
    expected = {
        (record.key if len(record.key) <= LONGEST_KEY else digest(record.key)): (100 + record.offset_delta) * 2
        + (record.value is None)
        for record in records
        if record.key is not None
    }
    assert last == expected
    chance = random.Random(seed)
    newer = {key: 10**6 for key in sorted(expected) if chance.random() < chance.choice((0, 0.1))}
    kept = keep_by_key(payload, 0, len(payload), 100, newer, keep_tombstones=True)
    stay = [
        record
        for record in records
        if record.key is not None
        and (record.key if len(record.key) <= LONGEST_KEY else digest(record.key)) not in newer
    ]
    assert kept.records == len(stay)
    assert b"".join(payload[start:end] for start, end in kept.runs) == encode_records(stay)
    wanted = sorted(chance.sample(range(len(records)), chance.randint(0, len(records))))
    runs = keep_by_number(payload, 0, len(payload), wanted)
    if runs is None:
        assert any(records[number].offset_delta != number for number in wanted)
    else:
        assert b"".join(payload[start:end] for start, end in runs) == encode_records([records[at] for at in wanted])


@given(RECORDS, RECORDS, st.booleans())
def test_superseded_records_are_left_out(
    drawn: list[tuple[int, int, bytes | None, bytes | None]],
    later: list[tuple[int, int, bytes | None, bytes | None]],
    keep_tombstones: bool,
) -> None:
    records, newer = built(drawn), built(later)
    payload, newer_payload = encode_records(records), encode_records(newer)
    last: dict[bytes, int] = {}
    add_keys(newer_payload, 0, len(newer_payload), 10_000, 0, last)
    kept = keep_by_key(payload, 0, len(payload), 0, last, keep_tombstones=keep_tombstones)
    newer_keys = {record.key for record in newer}
    expected = [
        record
        for record in records
        if record.key is not None and record.key not in newer_keys and (keep_tombstones or record.value is not None)
    ]
    assert kept.records == len(expected)
    assert b"".join(payload[start:end] for start, end in kept.runs) == encode_records(expected)
    assert kept.tombstones == any(record.value is None for record in expected)
    if expected:
        assert largest_timestamp_delta(payload, kept.runs) == max(record.timestamp_delta for record in expected)
        moved = [record._replace(timestamp_delta=record.timestamp_delta - 5) for record in expected]
        assert restamp(payload, kept.runs, -5, None) == encode_records(moved)
        assert restamp(payload, kept.runs, 0, 9) == encode_records(
            [record._replace(timestamp_delta=9) for record in expected]
        )


@given(RECORDS, st.data())
def test_records_are_picked_by_number(
    drawn: list[tuple[int, int, bytes | None, bytes | None]], data: st.DataObject
) -> None:
    dense = [record._replace(offset_delta=number) for number, record in enumerate(built(drawn))]
    wanted = sorted(data.draw(st.sets(st.integers(0, len(dense) - 1))))
    expected = encode_records([dense[number] for number in wanted])
    payload = encode_records(dense)
    runs = keep_by_number(payload, 0, len(payload), wanted)
    assert runs is not None
    assert b"".join(payload[start:end] for start, end in runs) == expected
    by_delta = keep_by_delta(payload, 0, len(payload), frozenset(wanted))
    assert b"".join(payload[start:end] for start, end in by_delta) == expected
    shifted = encode_records([record._replace(offset_delta=record.offset_delta + 1) for record in dense])
    assert not wanted or keep_by_number(shifted, 0, len(shifted), wanted) is None


@given(RECORDS)
def test_the_support_reads_what_it_compares(drawn: list[tuple[int, int, bytes | None, bytes | None]]) -> None:
    records = built(drawn)
    batch = build_batch(records, base_offset=7, base_timestamp=0)
    assert read_header(batch).size == HEADER_SIZE + len(encode_records(records))
    assert [(seen.offset, seen.key, seen.value) for seen in records_of([batch])] == [
        (7 + record.offset_delta, record.key, record.value) for record in records
    ]


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_a_compacted_log_equals_its_dictionary_through_kills_and_restarts(seed: int) -> None:
    with TemporaryDirectory(dir=parent_in_memory()) as path:
        run = CompactionRun(Path(path), seed)
        log = run.start()
        run.live(log, 30)
        if run.chance.random() < 0.5:
            run.crash(power=False)
        else:
            run.manager.close()
            run.certain = log.log_end_offset
        log = run.start()
        run.check(log)
        run.live(log, 20)
        run.finish(log)
