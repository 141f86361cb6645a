"""Rows that are kept come back with their samples, under the names and targets that rows have now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from bench import kept, results
from bench.results import Target
from bench.rows.row import Row

from tests.unit.bench.samples import CPU, FREE, RATE, compare, run

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Metric


class KnownRow(Row):
    """A row with metrics of the test."""

    def __init__(self, name: str, title: str, *metrics: Metric) -> None:
        self.name, self.title, self._metrics = name, title, metrics

    def metrics(self, scale: Any) -> tuple[Metric, ...]:
        return self._metrics

    def measure(self, lab: Any) -> Any:
        raise AssertionError("nothing is measured")


def test_a_row_that_is_kept_comes_back(tmp_path: Path) -> None:
    one, other = KnownRow("one", "first row", RATE, CPU), KnownRow("other", "second row", RATE)
    measured = replace(run(compare(RATE, 123_456, 654_321, "first row"), notes=("Mind this.",)), form="full")
    assert [path.name for path in kept.keep([measured], [one, other], tmp_path)] == ["one.json"]
    (back,) = kept.load([one, other], tmp_path)
    assert back.notes == ("Mind this.",)
    assert back.machine == measured.machine
    (comparison,) = back.comparisons
    assert comparison.kafka == pytest.approx(measured.comparisons[0].kafka, rel=1e-3)
    assert comparison.ratio == pytest.approx(measured.comparisons[0].ratio, rel=1e-3)


def test_a_row_that_is_measured_again_replaces_what_was_kept_of_it_alone(tmp_path: Path) -> None:
    one, other = KnownRow("one", "first row", RATE), KnownRow("other", "second row", RATE)
    both = [replace(run(compare(RATE, 100, 200, row.title)), form="full") for row in (one, other)]
    kept.keep(both, [one, other], tmp_path)
    kept.keep([replace(run(compare(RATE, 100, 300, "second row")), form="full")], [one, other], tmp_path)
    merged = results.merge(kept.load([one, other], tmp_path), ["first row", "second row"])
    assert [round(each.ratio) for each in merged.comparisons] == [2, 3]


def test_targets_are_those_of_today_and_metrics_that_are_gone_are_left_out(tmp_path: Path) -> None:
    kept.keep(
        [replace(run(compare(RATE, 100, 200, "row"), compare(FREE, 1, 2, "row")), form="full")],
        [KnownRow("row", "row", RATE, FREE)],
        tmp_path,
    )
    (back,) = kept.load([KnownRow("row", "row", replace(RATE, target=Target(3.0)))], tmp_path)
    (comparison,) = back.comparisons
    assert comparison.met is False


def test_quick_runs_are_not_kept_and_failed_rows_leave_what_was_there(tmp_path: Path) -> None:
    row = KnownRow("row", "row", RATE)
    with pytest.raises(ValueError, match="says too little"):
        kept.keep([replace(run(compare(RATE, 1, 2, "row")), form="quick")], [row], tmp_path)
    failed = replace(run(failures={"row": "RuntimeError: no broker"}), form="full")
    assert kept.keep([failed], [row], tmp_path) == []
