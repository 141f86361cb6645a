"""Saved runs and kept rows are shown together, the newest of each row."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from bench import __main__ as bench
from bench import kept, results
from bench.rows import ROWS

from tests.unit.bench.samples import RATE, compare, run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
