"""What was last measured of each row, kept in the repository, so that one row can be measured and published again.

A row has a file with its samples alone, a line for each metric. What a metric is called and what is asked of it comes
from the row as it is now. Only runs in the long form are kept: they are what is published.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.lab import FULL
from bench.results import Comparison, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.rows.row import Row

FOLDER: Final = Path(__file__).with_name("kept")
_DIGITS: Final = 4
"""Of a sample: more would say nothing, and make every new run a longer change."""


def keep(runs: Iterable[Run], rows: Sequence[Row], folder: Path = FOLDER) -> list[Path]:
    """Write down runs of one row each; one that failed leaves what is known of its row alone."""
    by_title = {row.title: row for row in rows}
    written = []
    for run in runs:
        if run.form != FULL.form:
            raise ValueError(f"a run in {run.form} form says too little to be kept")
        measured = [comparison for comparison in run.comparisons if comparison.row in by_title]
        if measured:
            path = folder / f"{by_title[measured[0].row].name}.json"
            folder.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_text(_text(run, measured), encoding="utf-8")
            new.replace(path)  # whoever interrupts this leaves the old one whole
            written.append(path)
    return written


def load(rows: Sequence[Row], folder: Path = FOLDER) -> list[Run]:
    """A run of each row that is kept."""
    found = []
    for row in rows:
        path = folder / f"{row.name}.json"
        if path.exists():
            found.append(_run(row, json.loads(path.read_text(encoding="utf-8"))))
    return found


def _text(run: Run, measured: Sequence[Comparison]) -> str:
    """A run as JSON with a line for each metric."""
    about = {"when": run.when, "repetitions": run.repetitions, "machine": run.machine, "notes": list(run.notes)}
    samples = ",\n".join(
        f"  {json.dumps(each.metric.key)}: {json.dumps([_rounded(each.kafka), _rounded(each.barnabas)])}"
        for each in measured
    )
    return f'{{\n "about": {json.dumps(about, ensure_ascii=False)},\n "samples": {{\n{samples}\n }}\n}}\n'


def _rounded(samples: Sequence[float]) -> list[float]:
    return [float(f"{sample:.{_DIGITS}g}") for sample in samples]


def _run(row: Row, document: dict[str, Any]) -> Run:
    about, samples = document["about"], document["samples"]
    return Run(
        when=about["when"],
        form=FULL.form,
        repetitions=about["repetitions"],
        machine=about["machine"],
        comparisons=tuple(
            Comparison(row.title, metric, *map(tuple, samples[metric.key]))
            for metric in row.metrics(FULL)
            if metric.key in samples
        ),
        notes=tuple(about["notes"]),
    )
