"""A row of any view as a dead letter: all that it has, as JSON, whatever Python can say of it."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa

from barnabas.pipelines.decode.contract import DEAD_SCHEMA, places_of
from barnabas.pipelines.runner.queries.letters import to_letters

BERLIN = pa.timestamp("us", tz="Europe/Berlin")
"""Spark gives times in the zone of its session."""


def test_a_letter_has_the_place_that_the_row_still_says_and_all_its_values() -> None:
    rows = pa.record_batch(
        {
            "day": pa.array([0, 3_000_000], pa.int32()).cast(pa.date32()),
            "at": pa.array([0, 2**60], pa.int64()).cast(BERLIN),
            "near": pa.array([0, 1_500_000], pa.int64()).cast(BERLIN),
            "price": pa.array([Decimal("1.20")] * 2),
            "share": [0.5, float("nan")],
            "raw": [b"a", b"\xff"],
            "lines": [[], [{"sku": "x", "day": None}]],
            "tags": pa.array([[], [("n", 1)]], pa.map_(pa.string(), pa.int64())),
            "good": [True, False],
            "nothing": pa.nulls(2),
            "_topic": ["t", "t"],
            "_offset": pa.array([16, 17], pa.int64()),
            "_timestamp": pa.array([0, 1], pa.int64()).cast(BERLIN),
            "_key": pa.array(["the query made text of it"] * 2),
        }
    )
    letters = to_letters(rows, {1: "too late"})
    assert letters.schema == DEAD_SCHEMA
    [letter] = letters.drop_columns(["timestamp"]).to_pylist()
    value = json.loads(letter.pop("value"))
    assert letter == {"topic": "t", "partition": None, "offset": 17, "reason": "too late", "key": None}
    assert letters.column("timestamp").cast(pa.int64()).to_pylist() == [1]
    assert value == {
        "day": 3_000_000,
        "at": 2**60,
        "near": "1970-01-01 00:00:01.500000+00:00",
        "price": "1.20",
        "share": "nan",
        "raw": "/w==",
        "lines": [{"sku": "x", "day": None}],
        "tags": [["n", 1]],
        "good": False,
        "_topic": "t",
        "_offset": 17,
        "_timestamp": "1970-01-01 00:00:00.000001+00:00",
        "_key": "the query made text of it",
    }


def test_letters_keep_the_order_of_their_rows() -> None:
    letters = to_letters(pa.record_batch({"n": [0, 1, 2]}), {2: "second", 0: "first"})
    assert letters.column("reason").to_pylist() == ["first", "second"]
    assert letters.column("value").to_pylist() == [b'{"n":0}', b'{"n":2}']


def test_only_letters_that_tell_where_their_record_is_are_reported() -> None:
    rows = pa.record_batch(
        {
            "_topic": ["t", None, "u"],
            "_partition": pa.array([1, 1, 1], pa.int32()),
            "_offset": pa.array([16, 17, 18], pa.int64()),
        }
    )
    letters = to_letters(rows, dict.fromkeys(range(3), "too late"))
    assert places_of(letters, 5) == [("t", 1, 16), ("u", 1, 18)]
    assert places_of(letters, 1) == [("t", 1, 16)]
    assert places_of(to_letters(rows.select(["_offset"]), {0: "too late"}), 5) == []
