"""Rows can be told apart, and so can their metrics; what they show has a name and a unit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from bench.lab import FULL, QUICK, Scale
from bench.results import Kind
from bench.rows import ROWS
from bench.rows.growth import bare_rates, compare_with_bare

if TYPE_CHECKING:
    from pathlib import Path


def test_names_and_titles_are_taken_once() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert len({row.title for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_metrics_of_a_row_can_be_told_apart(scale: Scale) -> None:
    for row in ROWS:
        metrics = row.metrics(scale)
        assert len({metric.key for metric in metrics}) == len(metrics), row.name
        shown = [metric for metric in metrics if not metric.detail]
        assert len({metric.label for metric in shown}) == len(shown), row.name
        for kind in Kind:
            captions = [metric.caption or row.title for metric in shown if metric.kind is kind]
            assert len(set(captions)) == len(captions), f"{row.name}: the picture has {kind} twice under one name"


def test_a_program_that_only_writes_leaves_nothing(tmp_path: Path) -> None:
    lab: Any = SimpleNamespace(folder=tmp_path, scale=replace(QUICK, sizes_gb=(0.0005, 0.001)))
    assert min(bare_rates(lab)) > 0
    assert not list(tmp_path.iterdir())


def test_a_broker_that_slows_down_as_bare_writes_do_has_not_slowed_down_beside_them() -> None:
    notes: list[str] = []
    lab: Any = SimpleNamespace(scale=replace(QUICK, sizes_gb=(1, 10)), note=notes.append)
    samples = {"Kafka": [{"flat": 0.5}], "Barnabas": [{"flat": 1.0}, {"flat": 0.8}]}
    compare_with_bare(lab, samples, 1900e6, 1520e6)
    assert [values["beside-bare"] for values in samples["Kafka"]] == [pytest.approx(1.6)]
    assert [values["beside-bare"] for values in samples["Barnabas"]] == [pytest.approx(0.8), pytest.approx(1.0)]
    assert notes == ["A program that only makes the same writes appends 1,900 and 1,520 MB/s at 1 and 10 GB: 0.80×."]
