"""The table says what was measured, what was wanted, and whether it was reached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench import picture, report
from bench.lab import FULL
from bench.results import START, Comparison, Target
from bench.rows import ROWS

from tests.unit.bench.samples import CPU, FREE, IDLE, RATE, compare, run

if TYPE_CHECKING:
    from bench.results import Metric


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (9.996, "10.00"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1_234.5, "1,230"),
        (1_999_999, "2,000,000"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (RATE, "≥ 1.0×"),
        (CPU, "≤ 0.6×"),
        (IDLE, "≤ 60 MB"),
        (replace(CPU, target=START), "≤ 1/8"),
        (replace(CPU, target=Target(1.2)), "≤ 1.2×"),
        (FREE, ""),
    ],
)
def test_targets_in_words(metric: Metric, text: str) -> None:
    assert report.target(metric) == text


@pytest.mark.parametrize(("barnabas", "text"), [(99, "not met"), (100, "met"), (110, "met, and the goal")])
def test_a_goal_lies_beyond_the_target(barnabas: float, text: str) -> None:
    assert report.verdict(compare(RATE, 100, barnabas)) == text


def test_the_table_is_aligned_and_counts_targets() -> None:
    text = report.table(
        run(
            compare(RATE, 50_000, 60_000),
            compare(CPU, 9.4, 9.0),
            compare(FREE, 300, 200, "seek"),
            notes=("Something to know.",),
            failures={"latency": "RuntimeError: no record came"},
        )
    )
    lines = text.splitlines()
    rate, cpu, seek = lines[3:6]
    assert rate.split("  ")[0] == "produce"
    assert "45,000..60,000" in rate
    assert "48,000..66,000" in rate
    assert "1.20×" in rate
    assert rate.endswith("met, and the goal")
    assert cpu.startswith(" ")
    assert cpu.endswith("not met")
    assert seek.startswith("seek")
    assert rate.index("1.20×") == cpu.index("0.96×") == seek.index("0.67×")
    assert lines[7:] == [
        "Something to know.",
        "Could not measure latency: RuntimeError: no record came",
        "1 of 2 targets met.",
    ]


def test_a_broker_that_was_still_warming_up_is_named() -> None:
    cold = Comparison("produce", CPU, kafka=(40.0, 30.0, 20.0, 10.0), barnabas=(5.0, 5.1, 5.0, 5.1))
    text = report.table(run(cold, replace(cold, metric=FREE, row="latency is not judged")))
    assert "Kafka was still getting faster in: produce." in text
    assert "Barnabas was still" not in text


def test_rows_with_fewer_repetitions_than_others_are_told_of() -> None:
    short = Comparison("load", RATE, (1.0, 1.0), (2.0, 2.0))
    assert "medians of 2 to 3 (min..max)" in report.table(run(compare(RATE, 1, 2), short))
    assert "medians of 2 (min..max)" in report.table(run(short))


def test_a_page_keeps_what_stands_around_the_results(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_docs(run(compare(RATE, 100, 200)), page)
    report.write_docs(run(compare(RATE, 100, 300)), page)
    text = page.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n")
    assert text.endswith(f"\n{report.END}\nafter\n")
    assert "old" not in text
    assert (
        "| produce | throughput, records/s | 100 (90.0..120) | 300 (240..330) | 3.00× | ≥ 1.0× | met, and the goal |"
        in text
    )
    assert "2.00×" not in text


def test_our_page_has_a_place_for_the_results() -> None:
    text = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1
    assert text.index(report.BEGIN) < text.index(report.END)


def test_a_page_without_a_place_for_results_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(ValueError, match="no place for the results"):
        report.write_docs(run(compare(RATE, 1, 1)), page)
    assert page.read_text() == "nothing here\n"


def test_the_headlines_are_what_matters_and_the_worst_of_the_rest() -> None:
    latency = replace(FREE, key="p50")
    measured = run(
        compare(RATE, 100, 120, "consume 1 KB × 6 partitions"),
        compare(FREE, 10, 9, "end-to-end latency, 100 B"),
        compare(latency, 10, 9, "end-to-end latency, 100 B"),
        compare(RATE, 100, 90, "50 clients that commit offsets"),
        compare(RATE, 100, 300, "a row that is won"),
        *(compare(RATE, 100, 10 * number, f"lost {number}") for number in range(1, 8)),
    )
    assert [(shown.row, shown.metric.key) for shown in picture.headlines(measured)] == [
        ("consume 1 KB × 6 partitions", "throughput"),
        ("end-to-end latency, 100 B", "p50"),
        ("50 clients that commit offsets", "throughput"),
        *((f"lost {number}", "throughput") for number in range(1, 5)),
    ]


def test_the_headlines_name_rows_and_figures_that_there_are() -> None:
    keys = {row.title: {metric.key for metric in row.metrics(FULL)} for row in ROWS}
    for title, figures in picture._HEADLINES.items():
        assert keys[title] >= set(figures)


@pytest.mark.slow
def test_the_picture_names_every_row_and_is_the_same_every_time(tmp_path: Path) -> None:
    measured = run(compare(RATE, 100, 250), compare(CPU, 9, 10), compare(IDLE, 300, 30))
    picture.draw(measured.shown(), tmp_path / "one.svg")
    picture.draw(measured.shown(), tmp_path / "two.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    for label in ("Throughput", "Broker CPU", "Memory", "produce", "idle", "2.50×", "0.90×", "10×"):
        assert f">{label}</text>" in text
    assert ">Latency and start</text>" not in text
