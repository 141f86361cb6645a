"""What becomes of the bytes of a fetch: as many records as can be borne, and no more work than for those."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.console.messages import fetching
from barnabas.console.messages.fetching import LoggedRecord, Stretch, _stretch
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record

ZSTD = 4


def batch(base: int, count: int, codec: int = ZSTD) -> bytes:
    records = [Record(number, number, None, b"x") for number in range(count)]
    return build_batch(records, base_offset=base, base_timestamp=0, codec=codec)


def answer(*parts: bytes) -> Any:
    return SimpleNamespace(records=b"".join(parts), last_stable_offset=-1, high_watermark=10**6)


def read(found: Any, offset: int = 0, end: int = 10**6) -> Stretch:
    return _stretch(0, offset, found, end)


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_RECORDS", 50)
    monkeypatch.setattr(fetching, "MOST_OF_BATCH", 200)


def test_a_stretch_has_no_more_records_than_can_be_borne_and_goes_on_behind_them() -> None:
    """A few kilobytes with a million records took seconds in which nobody could stop, and a gigabyte."""
    found, offset, seen = answer(batch(0, 120), batch(120, 30)), 0, []
    while offset < 150:
        stretch = read(found, offset)
        assert 0 < len(stretch.records) <= 50
        seen += [record.offset for record in stretch.records]
        offset = stretch.next_offset
    assert seen == list(range(150))


def test_records_are_made_from_the_offset_that_was_asked_for_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(**fields: Any) -> LoggedRecord:
        made.append(fields["offset"])
        return LoggedRecord(**fields)

    monkeypatch.setattr(fetching, "LoggedRecord", make)
    stretch = read(answer(batch(100, 120), batch(220, 10)), 205, 209)
    assert [record.offset for record in stretch.records] == [205, 206, 207, 208]
    assert stretch.next_offset == 209
    assert len(made) <= 6, "one for what all have in common, and one to see the end"


def test_a_batch_with_records_without_end_stands_for_itself() -> None:
    stretch = read(answer(batch(0, 201), batch(201, 1)))
    assert [(record.offset, bool(record.damage)) for record in stretch.records] == [(0, True), (201, False)]
    assert "201 records" in str(stretch.records[0].damage)


def test_damage_is_told_where_it_begins_and_not_passed_over() -> None:
    """Who began in the middle of a batch that cannot be read was shown nothing."""
    whole = batch(0, 10, codec=0)
    stretch = read(answer(whole[:-1] + b"\x09", batch(10, 1)), 4)
    assert [(record.offset, bool(record.damage)) for record in stretch.records][-2:] == [(9, True), (10, False)]
    unreadable = batch(0, 10)[:-4] + b"????"
    stretch = read(answer(unreadable, batch(10, 1)), 4)
    assert [(record.offset, bool(record.damage)) for record in stretch.records] == [(4, True), (10, False)]
    assert stretch.next_offset == 11
