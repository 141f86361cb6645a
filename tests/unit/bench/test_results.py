"""What samples say about each other, and that a saved run says the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from bench import results
from bench.results import PEAK, Better, Comparison

from tests.unit.bench.samples import CPU, FREE, IDLE, RATE, compare, run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_ratio_compares_medians() -> None:
    comparison = Comparison("row", RATE, kafka=(90.0, 100.0, 500.0), barnabas=(1.0, 150.0, 160.0))
    assert comparison.ratio == 1.5


def test_an_advantage_is_above_one_when_barnabas_is_better() -> None:
    assert compare(RATE, 100, 200).advantage == 2
    assert compare(CPU, 100, 50).advantage == 2


@pytest.mark.parametrize(
    ("comparison", "met"),
    [
        (compare(RATE, 100, 100), True),
        (compare(RATE, 100, 99), False),
        (compare(CPU, 10, 6), True),
        (compare(CPU, 10, 6.1), False),
        (compare(IDLE, 300, 60), True),
        (compare(IDLE, 30, 61), False),
        (compare(FREE, 1, 100), None),
    ],
)
def test_a_target_looks_at_its_own_side(comparison: Comparison, met: bool | None) -> None:
    assert comparison.met is met


def test_nothing_measured_in_kafka_is_no_division_by_zero() -> None:
    nothing = Comparison("row", CPU, (0.0,), (1.0,))
    assert nothing.ratio == float("inf")
    assert nothing.advantage == 0
    assert Comparison("row", CPU, (1.0,), (0.0,)).advantage == float("inf")


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)])
def test_percentiles_are_samples_by_nearest_rank(share: float, expected: float) -> None:
    assert results.percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_a_percentile_of_one_sample_is_that_sample() -> None:
    assert results.percentile([7.0], 0.5) == results.percentile([7.0], 0.99) == 7.0


def test_improvement_compares_the_halves() -> None:
    assert results.improvement([10.0, 10.0, 99.0, 20.0, 20.0], Better.HIGHER) == 2
    assert results.improvement([10.0, 5.0], Better.LOWER) == 2
    assert results.improvement([7.0], Better.LOWER) == 1


def test_loaded_memory_is_the_highest_of_each_repetition() -> None:
    rows = [
        Comparison("one", PEAK, (400.0, 410.0), (50.0, 90.0)),
        Comparison("one", RATE, (1.0, 1.0), (1.0, 1.0)),
        Comparison("two", PEAK, (420.0, 405.0), (70.0, 60.0)),
    ]
    loaded = results.loaded_memory(rows)
    assert loaded is not None
    assert (loaded.kafka, loaded.barnabas) == ((420.0, 410.0), (70.0, 90.0))
    assert results.loaded_memory(rows[1:2]) is None


def test_a_saved_run_comes_back_whole(tmp_path: Path) -> None:
    written = run(compare(RATE, 1, 2), compare(IDLE, 3, 4), compare(FREE, 5, 6), notes=("a",), failures={"row": "why"})
    results.save(written, tmp_path / "folder" / "run.json")
    assert results.load(tmp_path / "folder" / "run.json") == written


def test_merging_keeps_the_latest_of_each_row_in_order() -> None:
    old = run(compare(RATE, 1, 1, "b"), compare(RATE, 1, 1, "a"), notes=("n",), failures={"c": "broken"})
    new = replace(run(compare(RATE, 1, 2, "b"), compare(CPU, 1, 1, "c"), notes=("n", "m")), repetitions=2)
    new = replace(new, machine=new.machine | {"barnabas": "Barnabas (newer)"})
    merged = results.merge([old, new], ["a", "b", "c"])
    assert merged.machine["barnabas"] == f"{old.machine['barnabas']}, Barnabas (newer)"
    assert [(comparison.row, comparison.ratio) for comparison in merged.comparisons] == [("a", 1), ("b", 2), ("c", 1)]
    assert merged.notes == ("n", "m")
    assert merged.failures == {}
    assert merged.repetitions == 2
