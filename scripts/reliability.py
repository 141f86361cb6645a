"""`python scripts/reliability.py`: writes the figures of long runs into docs/reliability.md, from docs/reliability.d.

A test compares the page with what this program makes of the notes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final, TypeAlias

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "reliability.md"
NOTES: Final = DOCS / "reliability.d"
BEGIN: Final = "<!-- written by scripts/reliability.py -->"
END: Final = "<!-- end of what scripts/reliability.py writes -->"
FAMILIES: Final = ("kill -9", "SIGSTOP", "partition", "disk", "other")
Row: TypeAlias = dict[str, Any]


def noted(tool: str) -> list[Row]:
    """All runs of a tool."""
    path = NOTES / f"{tool}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def fuzz(kind: str) -> list[str]:
    """Frames or batches."""
    rows = [row for row in noted("fuzz") if row["kind"] == kind]
    if not rows:
        return []
    outcomes = Counter[str]()
    for row in rows:
        outcomes.update(row["outcomes"])
    total = sum(row["frames"] if "frames" in row else row["asked"] for row in rows)
    shown = ", ".join(f"{count:,} {name}" for name, count in outcomes.most_common())
    step = max(row["longest_step"] for row in rows) * 1000
    return [
        f"| fuzz of {kind} | {total:,} in {len(rows)} runs, seeds {_span(rows)} | {shown}; longest step of the event "
        f"loop {step:.0f} ms; no rule broken |"
    ]


def simulation() -> list[str]:
    """Worlds."""
    rows = noted("simulation")
    if not rows:
        return []
    broken = [seed for row in rows for seed in row["broken"]]
    records, worlds = sum(row["records"] for row in rows), sum(row["worlds"] for row in rows)
    rate = worlds * 60 / max(1, sum(row["processor_seconds"] for row in rows))
    return [
        f"| whole brokers in simulation | {worlds:,} worlds, seeds {_span(rows)} | {records:,} records acknowledged; "
        f"{rate:.0f} worlds a minute of processor time; {_broken(broken)} |"
    ]


def failing_calls() -> list[str]:
    """Stories that were told for every call."""
    rows = [row for row in noted("failing-calls") if row["step"] == 1]
    if not rows:
        return []
    stories = {row["story"] for row in rows}
    tellings, broken = sum(row["tellings"] for row in rows), sum(len(row["broken"]) for row in rows)
    pairs = len({(row["story"], row["fault"]) for row in rows})
    return [
        f"| failing calls, every call | {tellings:,} tellings of {pairs} pairs of a story and a fault, {len(stories)} "
        f"stories | {broken or 'none'} broke a rule |"
    ]


def interleavings() -> list[str]:
    """Orders with more than one switch."""
    rows = noted("interleavings")
    if not rows:
        return []
    orders, whole = sum(row["orders"] for row in rows), sum(row["is_whole"] for row in rows)
    return [
        f"| interleavings with two switches | {orders:,} orders of {len(rows)} pairs, {whole} of them in all orders | "
        "no rule broken |"
    ]


def soak() -> list[str]:
    """Faults on real processes."""
    rows = noted("soak")
    if not rows:
        return []
    faults = Counter[str]()
    for row in rows:
        faults.update(row["faults"])
    counts = ", ".join(f"{faults[name]} {name}" for name in FAMILIES)
    hours = sum(row["seconds"] for row in rows) / 3600
    records = sum(row["acknowledged"] for row in rows)
    broken = [row["seed"] for row in rows if row["failed"]]
    step: float = max(row["longest_step"] for row in rows if "longest_step" in row) * 1000
    return [
        f"| soak, SQLite and ZooKeeper | {faults.total()} faults in {len(rows)} runs and {hours:.1f} hours, seeds "
        f"{_span(rows)}: {counts} | {records:,} records acknowledged; longest step of an event loop {step:.0f} ms; "
        f"{_broken(broken)} |"
    ]


def _span(rows: list[Row]) -> str:
    return f"{min(row['seed'] for row in rows)} to {max(_last(row) for row in rows)}"


def _last(row: Row) -> int:
    return int(row["last"] if "last" in row else row["seed"])


def _broken(seeds: list[int]) -> str:
    return "no rule broken" if not seeds else f"rules were broken with seeds {', '.join(map(str, seeds))} (see below)"


def table() -> str:
    """All figures that add up."""
    rows = [*fuzz("frames"), *fuzz("batches"), *simulation(), *failing_calls(), *interleavings(), *soak()]
    return "\n".join(["| Tool | So far | Result |", "|---|---|---|", *rows])


def page() -> str:
    """reliability.md with its table made anew."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
