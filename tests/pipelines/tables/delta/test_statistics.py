"""Bounds of columns for Delta's log: never tighter than the values."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.pipelines.tables.delta.statistics import COLUMNS, HIGHEST, delta_statistics


def of(**columns: Any) -> dict[str, Any]:
    """The statistics of a file whose row groups have two rows."""
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=2)
    return delta_statistics(pq.read_metadata(file))


def test_bounds_go_over_all_row_groups() -> None:
    assert of(n=[5, None, 3, 9, None]) == {
        "numRecords": 5,
        "minValues": {"n": 3},
        "maxValues": {"n": 9},
        "nullCount": {"n": 2},
    }


def test_long_texts_are_cut_outwards() -> None:
    found = of(text=["b" * 40, "c" * 40], short=["", "z"])
    assert found["minValues"] == {"text": "b" * 32, "short": ""}
    assert found["maxValues"] == {"text": "c" * 32 + HIGHEST, "short": "z"}
    assert found["maxValues"]["text"] > "c" * 40
    assert of(text=["c" * 32 + HIGHEST])["maxValues"] == {}


def test_times_are_rounded_outwards() -> None:
    moment = datetime(2026, 1, 31, 23, 59, 59, 999_001, UTC)
    found = of(at=pa.array([moment], pa.timestamp("us", "UTC")), there=[datetime(2026, 1, 31)], day=[date(2026, 1, 31)])
    assert found["minValues"] == {
        "at": "2026-01-31T23:59:59.999Z",
        "there": "2026-01-31T00:00:00.000",
        "day": "2026-01-31",
    }
    assert found["maxValues"]["at"] == "2026-02-01T00:00:00.000Z"
    assert found["maxValues"]["there"] == "2026-01-31T00:00:00.000"
    last = datetime.max.replace(tzinfo=UTC)
    found = of(at=pa.array([last], pa.timestamp("us", "UTC")), there=[datetime.max])
    assert found["minValues"] == {"at": "9999-12-31T23:59:59.999Z", "there": "9999-12-31T23:59:59.999"}
    assert found["maxValues"] == {}, "Python knows no later moment to round up to"
    assert of(there=[datetime.max.replace(microsecond=999_000)])["maxValues"] == {"there": "9999-12-31T23:59:59.999"}
    far = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert of(at=far) == {"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {"at": 0}}


def test_floating_numbers_have_no_maximum_since_nan_would_be_above_it() -> None:
    assert of(x=[1.5, float("nan"), -2.0]) == {
        "numRecords": 3,
        "minValues": {"x": -2.0},
        "maxValues": {},
        "nullCount": {"x": 0},
    }
    assert of(x=[float("-inf")])["minValues"] == {}


def test_fields_of_structs_have_bounds_and_lists_and_maps_have_none() -> None:
    found = of(
        many=[["a"], ["b"]],
        pairs=pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        where=[{"x": 1, "names": ["p"]}, {"x": None, "names": []}],
        last=[7, 8],
    )
    assert found["minValues"] == {"where": {"x": 1}, "last": 7}
    assert found["nullCount"] == {"where": {"x": 1}, "last": 0}


def test_what_delta_keeps_no_bounds_of_has_its_nulls_counted() -> None:
    found = of(
        raw=[b"x", None], yes=[True, False], none=pa.array([None, None], pa.int64()), price=[Decimal("1.25")] * 2
    )
    assert found["minValues"] == found["maxValues"] == {"price": 1.25}
    assert found["nullCount"] == {"raw": 1, "yes": 0, "none": 2, "price": 0}


def test_the_first_columns_are_enough() -> None:
    assert len(of(**{f"c{number}": [1] for number in range(COLUMNS + 5)})["minValues"]) == COLUMNS
