"""Saved runs and kept rows are shown together, the newest of each row; rows are kept as they are measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest
from bench import __main__ as bench
from bench import kept, results
from bench.results import Comparison
from bench.rows import ROWS
from bench.rows.row import Row

from tests.unit.bench.samples import RATE, compare, run

if TYPE_CHECKING:
    from pathlib import Path

    from bench.lab import Lab, Samples, Scale
    from bench.results import Metric

ONE, OTHER = "start", "latency"


def titles() -> dict[str, str]:
    return {row.name: row.title for row in ROWS}


def test_saved_runs_and_kept_rows_are_shown_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = titles()[ONE], titles()[OTHER]
    saved = replace(run(compare(RATE, 100, 700, one), compare(RATE, 100, 200, other)), when="2026-01-02T00:00:00+00:00")
    newer = replace(run(compare(RATE, 100, 500, other)), when="2026-01-03T00:00:00+00:00")
    older = replace(run(compare(RATE, 100, 900, one)), when="2026-01-01T00:00:00+00:00")
    results.save(saved, tmp_path / "run.json")
    monkeypatch.setattr(kept, "load", lambda rows: [newer, older])
    monkeypatch.setattr(sys, "argv", ["bench", "--saved", str(tmp_path / "run.json"), "--kept"])
    assert bench.main() == 0
    shown = capsys.readouterr().out
    assert "7.00×" in shown, "the saved row is newer than the kept one"
    assert "5.00×" in shown, "the kept row is newer than the saved one"
    assert "2.00×" not in shown
    assert "9.00×" not in shown


class Measured(Row):
    """A row that takes no time."""

    name = title = "measured"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        return (RATE,)

    def measure(self, lab: Lab) -> Samples:
        return {"Kafka": [{RATE.key: 1.0}], "Barnabas": [{RATE.key: 2.0}]}


class Interrupted(Measured):
    """A row in the middle of which Ctrl-C is typed."""

    name = title = "interrupted"

    def compare(self, lab: Lab) -> NoReturn:
        raise KeyboardInterrupt


def test_a_row_is_kept_as_soon_as_it_is_measured_whatever_becomes_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Measured(), Interrupted()]
    folder = tmp_path / "kept"
    keep = kept.keep
    monkeypatch.setattr(bench, "ROWS", rows)
    monkeypatch.setattr(kept, "keep", lambda runs, known: keep(runs, known, folder))
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "measured", "interrupted", "--keep"])
    with pytest.raises(KeyboardInterrupt):
        bench.main()
    (found,) = kept.load(rows, folder)
    assert found.comparisons == (Comparison("measured", RATE, (1.0,), (2.0,)),)
