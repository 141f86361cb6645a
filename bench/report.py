"""The comparison as text: an aligned table for the terminal, the same in Markdown for the documentation."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.results import Better, Kind, improvement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.results import Comparison, Metric, Run

_HEADINGS: Final = ("", "", "Kafka", "", "Barnabas", "", "ratio", "target", "")
_LEFT: Final = (True, True, False, True, False, True, False, True, True)
_WARMING: Final = 1.15
"""A broker whose later repetitions are so many times better than its earlier ones was measured too soon."""
BEGIN: Final = "<!-- results: written by python -m bench --kept --docs -->"
END: Final = "<!-- end of results -->"


class Line(NamedTuple):
    """One metric as text."""

    row: str
    metric: str
    kafka: str
    kafka_spread: str
    barnabas: str
    barnabas_spread: str
    ratio: str
    target: str
    verdict: str


def number(value: float) -> str:
    """Three digits that mean something, thousands apart."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def target(metric: Metric) -> str:
    """A metric's target in words."""
    if metric.target is None:
        return ""
    sign = "≥" if metric.better is Better.HIGHER else "≤"
    limit = metric.target.limit
    if not metric.target.relative:
        return f"{sign} {limit:g} {metric.unit}"
    if limit < 0.5 and (1 / limit).is_integer():
        return f"{sign} 1/{1 / limit:.0f}"
    return f"{sign} {limit:.1f}×"


def verdict(comparison: Comparison) -> str:
    """Whether the target was met."""
    wanted = comparison.metric.target
    if wanted is None:
        return ""
    if not comparison.met:
        return "not met"
    return "met, and the goal" if wanted.goal is not None and comparison.reaches(wanted.goal) else "met"


def lines(run: Run) -> list[Line]:
    """The run's table, without headings; a row's title stands at its first metric only."""
    written: list[Line] = []
    previous = ""
    for comparison in run.shown():
        metric = comparison.metric
        written.append(
            Line(
                comparison.row if comparison.row != previous else "",
                f"{metric.label}, {metric.unit}",
                number(median(comparison.kafka)),
                _spread(comparison.kafka),
                number(median(comparison.barnabas)),
                _spread(comparison.barnabas),
                f"{comparison.ratio:.2f}×",
                target(metric),
                verdict(comparison),
            )
        )
        previous = comparison.row
    return written


def table(run: Run) -> str:
    """Everything a terminal should show."""
    text = [_about(run), ""]
    cells = [_HEADINGS, *map(tuple, lines(run))]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(line, widths, _LEFT, strict=True)
        )
        text.append("  ".join(padded).rstrip())
    text += ["", *_remarks(run), summary(run)]
    return "\n".join(text)


def markdown(run: Run) -> str:
    """The same as a Markdown table."""
    text = [
        f"{_about(run)}.",
        "",
        "| | | Kafka | Barnabas | ratio | target | |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for line in lines(run):
        kafka, barnabas = f"{line.kafka} ({line.kafka_spread})", f"{line.barnabas} ({line.barnabas_spread})"
        cells = (line.row, line.metric, kafka, barnabas, line.ratio, line.target, line.verdict)
        text.append(f"| {' | '.join(cells)} |")
    text += ["", *(f"- {remark}" for remark in _remarks(run)), f"- {summary(run)}"]
    return "\n".join(text)


def write_docs(run: Run, page: Path) -> None:
    """Replace the results on a page of the documentation."""
    before, found, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"{page} has no place for the results: it must hold the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{markdown(run)}\n{END}{after}")


def summary(run: Run) -> str:
    """How many targets were met."""
    verdicts = [comparison.met for comparison in run.shown() if comparison.met is not None]
    return f"{sum(verdicts)} of {len(verdicts)} targets met."


def _remarks(run: Run) -> list[str]:
    failed = (f"Could not measure {row}: {reason}" for row, reason in run.failures.items())
    return [*run.notes, *_warming(run), *failed]


def _warming(run: Run) -> list[str]:
    """Who was still getting faster while it was measured, and where; such a ratio flatters the other."""
    remarks = []
    for name in ("Kafka", "Barnabas"):
        rows = {
            comparison.row
            for comparison in run.shown()
            if comparison.metric.kind in {Kind.THROUGHPUT, Kind.CPU}
            and improvement(getattr(comparison, name.lower()), comparison.metric.better) > _WARMING
        }
        if rows:
            remarks.append(f"{name} was still getting faster in: {'; '.join(sorted(rows))}.")
    return remarks


def _about(run: Run) -> str:
    machine = ", ".join(run.machine.values())
    return f"{run.when[:10]}, {run.form} form, medians of {_repetitions(run)} (min..max), {machine}"


def _repetitions(run: Run) -> str:
    """How many samples the medians are of: rows that take long have fewer."""
    counts = {len(comparison.kafka) for comparison in run.shown()} or {run.repetitions}
    return f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(*counts)


def _spread(samples: Sequence[float]) -> str:
    return f"{number(min(samples))}..{number(max(samples))}"
