"""What long runs found, one line of JSON for each in docs/reliability.d: runs of several days and machines add up.

A tool notes a run when it has ended. `scripts/reliability.py` makes the tables of docs/reliability.md from these files.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_What = TypeVar("_What")

FOLDER: Final = Path(os.environ.get("BARNABAS_NOTED_RUNS", Path(__file__).parents[2] / "docs" / "reliability.d"))
"""Where the notes are; elsewhere where a run of the project's tests must not change the project."""
COMMIT: Final = "BARNABAS_COMMIT"
"""Names the code that is run, where it is a copy without its repository."""


def note(tool: str, **figures: Any) -> None:
    """Add a run: what a tool was asked, what came of it, on which day and with which code."""
    row = {"day": datetime.datetime.now(datetime.UTC).date().isoformat(), "commit": commit(), **figures}
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{tool}.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def noted(tool: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """All runs of a tool, the oldest first."""
    path = folder / f"{tool}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def next_seed(tool: str, **chosen: Any) -> int:
    """The first seed that no run of the tool had; `chosen` are the figures that such runs have in common."""
    runs = (row for row in noted(tool) if all(row.get(name) == value for name, value in chosen.items()))
    return max((row.get("last", row["seed"]) for row in runs), default=0) + 1


def not_told(asked: Iterable[_What], told: Sequence[tuple[_What, str]]) -> list[_What]:
    """What is to be told: first what never was, then what was told longest ago, but nothing twice of the same code.

    `told` is the oldest first, each with the commit of its code. So a run goes on where the one before it ended, also
    when the code has changed meanwhile, and everything is told again one day.
    """
    latest = {what: (place, code) for place, (what, code) in enumerate(told)}
    code = commit()
    left = [what for what in asked if what not in latest or latest[what][1] != code]
    return sorted(left, key=lambda what: latest[what][0] if what in latest else -1)


def commit() -> str:
    """Which code this is."""
    if COMMIT in os.environ:
        return os.environ[COMMIT]
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
