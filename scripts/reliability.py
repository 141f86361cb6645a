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
TOO_LONG: Final = 0.1
"""Seconds of processor time."""
FAMILIES: Final = ("kill -9", "SIGSTOP", "partition", "disk", "move", "other")
Row: TypeAlias = dict[str, Any]


def noted(tool: str) -> list[Row]:
    """All runs of a tool."""
    path = NOTES / f"{tool}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def fuzz(kind: str, what: str) -> list[str]:
    """One kind of fuzzing; `what` is counted."""
    rows = [row for row in noted("fuzz") if row["kind"] == kind]
    if not rows:
        return []
    outcomes = Counter[str]()
    for row in rows:
        outcomes.update(row["outcomes"])
    whole = [row for row in rows if not row.get("broken")]
    total = sum(row["frames"] if "frames" in row else row["asked"] for row in whole)
    shown = "".join(f"{count:,} {name}, " for name, count in outcomes.most_common()).removesuffix(", ")
    results = [shown, _steps(rows), _broken([row["seed"] for row in rows if row.get("broken")])]
    return [
        f"| fuzz of {what} | {total:,} in {len(rows)} runs, seeds {_span(rows)} | "
        f"{'; '.join(result for result in results if result)} |"
    ]


def simulation(tool: str, name: str) -> list[str]:
    """Worlds."""
    rows = noted(tool)
    if not rows:
        return []
    broken = [seed for row in rows for seed in row["broken"]]
    records, worlds = sum(row["records"] for row in rows), sum(row["worlds"] for row in rows)
    rate = worlds * 60 / max(1, sum(row["processor_seconds"] for row in rows))
    return [
        f"| {name} | {worlds:,} worlds, seeds {_span(rows)} | {records:,} records acknowledged; "
        f"{rate:.0f} worlds a minute of processor time; {_broken(broken)} |"
    ]


def failing_calls() -> list[str]:
    """Stories that were told for every call; what was told again counts once, as it was last."""
    rows = _latest([row for row in noted("failing-calls") if row["step"] == 1], "story", "fault", "luck")
    if not rows:
        return []
    stories = {row["story"] for row in rows}
    pairs = len({(row["story"], row["fault"]) for row in rows})
    tellings, broken = sum(row["tellings"] for row in rows), sum(len(row["broken"]) for row in rows)
    which = sorted({row["story"] for row in rows if row["broken"]})
    named = f", of {', '.join(which)} (see below)" if which else ""
    named += _before({row["story"] for row in noted("failing-calls") if row["broken"]}.difference(which))
    return [
        f"| failing calls, every call | {tellings:,} tellings of {pairs} pairs of a story and a fault, "
        f"{len(stories)} stories | {broken or 'none'} broke a rule{named} |"
    ]


def interleavings() -> list[str]:
    """Orders with more than one switch; what was run again counts once, as it was last."""
    rows = _latest([row for row in noted("interleavings") if row["switches"] == 2], "pair")
    if not rows:
        return []
    orders = sum(row["orders"] for row in rows)
    whole = [row for row in rows if row["is_whole"]]
    broken = [row["pair"] for row in rows if row.get("broken")]
    said = f"a rule was broken by {', '.join(broken)} (see below)" if broken else "no rule broken"
    said += _before({row["pair"] for row in noted("interleavings") if row.get("broken")}.difference(broken))
    return [
        f"| interleavings with two switches | {orders:,} orders of {len(rows)} pairs, {len(whole)} of them in all "
        f"orders | {said} |"
    ]


def _before(names: set[str]) -> str:
    """What broke a rule once, and did not when it was run again."""
    return f"; {', '.join(sorted(names))} did before (see below)" if names else ""


def _latest(rows: list[Row], *names: str) -> list[Row]:
    """The last row of each that has the same values of these."""
    return list({tuple(row.get(name) for name in names): row for row in rows}.values())


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
    broken = _broken([row["seed"] for row in rows if row.get("violations")])
    unfinished = [row["seed"] for row in rows if row["failed"] and not row.get("violations")]
    if unfinished:
        broken += f"; not brought to an end: seeds {', '.join(map(str, unfinished))} (see below)"
    return [
        f"| soak, SQLite and ZooKeeper | {faults.total()} faults in {len(rows)} runs and {hours:.1f} hours, seeds "
        f"{_span(rows)}: {counts} | {records:,} records acknowledged; {_steps(rows)}; {broken} |"
    ]


def queues() -> list[str]:
    """Queues with workers that are real processes."""
    rows = noted("queues")
    if not rows:
        return []
    faults = Counter[str]()
    for row in rows:
        faults.update(row["faults"])
    counts = ", ".join(f"{faults[name]} {name}" for name in FAMILIES if faults[name])
    messages, stored, unknown = (sum(row[name] for row in rows) for name in ("messages", "stored", "unknown"))
    hours, longest = sum(row["seconds"] for row in rows) / 3600, max(row["drained_in"] for row in rows)
    broken = [row["seed"] for row in rows if row["violations"]]
    return [
        f"| queues with real workers, SQLite and ZooKeeper | {faults.total()} faults in {len(rows)} runs and "
        f"{hours:.1f} hours, seeds {_span(rows)}: {counts} | {messages:,} messages, {stored:,} acknowledgements "
        f"stored, {unknown:,} of unknown fate; what was left was done within {longest:.0f} s; {_broken(broken)} |"
    ]


def _steps(rows: list[Row]) -> str:
    """The longest step of an event loop, and which runs had one that took too long."""
    timed = [row for row in rows if row.get("longest_step")]
    if not timed:
        return ""
    longest = max(row["longest_step"] for row in timed) * 1000
    late = [row["seed"] for row in timed if row["longest_step"] > TOO_LONG]
    which = f", more than {TOO_LONG * 1000:.0f} ms with seeds {', '.join(map(str, late))} (see below)" if late else ""
    return f"longest step of an event loop {longest:.0f} ms{which}"


def _span(rows: list[Row]) -> str:
    """The seeds of all runs, as ranges."""
    ranges: list[tuple[int, int]] = []
    for first, last in sorted((row["seed"], _last(row)) for row in rows):
        if ranges and first <= ranges[-1][1] + 1:
            begin, end = ranges.pop()
            ranges.append((begin, max(end, last)))
        else:
            ranges.append((first, last))
    return " and ".join(f"{first} to {last}" for first, last in ranges)


def _last(row: Row) -> int:
    return int(row["last"] if "last" in row else row["seed"])


def _broken(seeds: list[int]) -> str:
    return "no rule broken" if not seeds else f"rules were broken with seeds {', '.join(map(str, seeds))} (see below)"


def table() -> str:
    """All figures that add up."""
    rows = [
        *fuzz("frames", "frames"),
        *fuzz("sockets", "frames over sockets"),
        *fuzz("batches", "batches"),
        *fuzz("files", "files, each damaged in a whole directory"),
        *fuzz("tree", "metadata trees"),
        *simulation("simulation", "whole brokers in simulation"),
        *simulation("queues-simulation", "whole brokers with a queue in simulation"),
        *failing_calls(),
        *interleavings(),
        *soak(),
        *queues(),
    ]
    return "\n".join(["| Tool | So far | Result |", "|---|---|---|", *rows])


def page() -> str:
    """reliability.md with its table made anew."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
