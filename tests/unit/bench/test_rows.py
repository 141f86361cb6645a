"""Rows can be told apart, and so can their metrics; what they show has a name and a unit."""

from __future__ import annotations

import pytest
from bench.lab import FULL, QUICK, Scale
from bench.results import Kind
from bench.rows import ROWS


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
