"""The figures of long runs in docs/reliability.md are those that were noted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scripts import reliability

from tests.support import noted_runs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FUZZ = {"kind": "frames", "asked": 5, "frames": 4, "outcomes": {"answered": 4}, "longest_step": 0.02}
CALLS = {"story": "written", "fault": "NO_ROOM", "step": 1, "tellings": 10}
PAIR = {"pair": "read x close", "switches": 2, "orders": 7}
SOAK = {"seconds": 60, "faults": {"kill -9": 1}, "acknowledged": 3}


def test_the_page_says_what_was_noted() -> None:
    assert reliability.BEGIN in reliability.PAGE.read_text("utf-8")
    assert reliability.PAGE.read_text("utf-8") == reliability.page(), "run: python scripts/reliability.py"


def test_the_page_says_what_broke_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reliability, "NOTES", tmp_path)
    rows = {
        "fuzz": [FUZZ | {"seed": 1}, {"kind": "frames", "asked": 5, "seed": 2, "outcomes": {}, "broken": "it died"}],
        "failing-calls": [
            CALLS | {"story": "deleted", "broken": ["lost"]},
            CALLS | {"story": "deleted", "broken": []},
            CALLS | {"broken": []},
            CALLS | {"broken": ["lost"]},
        ],
        "interleavings": [PAIR | {"is_whole": True}, PAIR | {"is_whole": False, "broken": "read x close: lost"}],
        "soak": [
            SOAK | {"seed": 1, "violations": 3, "failed": True},
            SOAK | {"seed": 2, "violations": 0, "failed": True},
            SOAK | {"seed": 3, "failed": True},
        ],
    }
    for tool, lines in rows.items():
        (tmp_path / f"{tool}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    table = reliability.table()
    assert "4 answered; longest step of an event loop 20 ms; rules were broken with seeds 2 (see below)" in table
    assert "20 tellings of 2 pairs of a story and a fault, 2 stories | 1 broke a rule, of written (see below)" in table
    assert "; deleted did before (see below) |" in table
    assert "7 orders of 1 pairs, 0 of them in all orders | a rule was broken by read x close (see below)" in table
    assert "rules were broken with seeds 1 (see below); not brought to an end: seeds 2, 3 (see below)" in table


def test_what_was_never_told_comes_first_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(noted_runs.COMMIT, "new")
    told = [("a", "old"), ("b", "old"), ("a", "old"), ("c", "new")]
    assert noted_runs.not_told(["a", "b", "c", "d"], told) == ["d", "b", "a"]
    assert noted_runs.not_told(["a", "b"], []) == ["a", "b"]
