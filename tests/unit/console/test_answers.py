"""What answers are made of, and that one bad figure spoils none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from barnabas.console.api.pipelines import _row
from barnabas.console.cluster.group_lags import GroupStates
from barnabas.console.cluster.metrics import read_cleaner, read_totals
from barnabas.console.cluster.pipelines import MOST_LISTED, MOST_TEXT, parse_report
from barnabas.console.guard import to_json
from barnabas.console.history import History
from barnabas.console.sampler import Sampler

if TYPE_CHECKING:
    from pathlib import Path


def no_word(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def test_what_is_no_number_is_null_for_browsers() -> None:
    value = {"a": [float("nan"), 1.5, (float("inf"),)], "b": -float("inf"), "c": "NaN"}
    assert json.loads(to_json(value), parse_constant=no_word) == {"a": [None, 1.5, [None]], "b": None, "c": "NaN"}


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "1e999", "1" + "0" * 400, "true", "-1e300"])
def test_a_figure_that_is_none_keeps_nobody_from_seeing_pipelines(figure: str) -> None:
    """Anybody who may write to the topic of reports could: the page was unreadable, or an error, for everybody."""
    words = ", ".join(f'"{name}": {figure}' for name in ("rows", "seconds", "dead_letters", "lag"))
    hostile = parse_report(f'{{"query": "q", {words}}}'.encode())
    assert hostile == {"query": "q"}
    fine = parse_report(b'{"query": "q", "rows": 5, "dead_letters": 1.5}')
    assert fine is not None
    row = json.loads(to_json(_row([hostile, fine], GroupStates(0.0, {}))), parse_constant=no_word)
    assert (row["rows"], row["dead_letters_seen"]) == (5, 1.5)


def test_a_report_with_names_without_end_is_drawn_in_part() -> None:
    """A browser would lay out twenty thousand boxes every three seconds."""
    report = parse_report(json.dumps({"query": "q" * 5000, "topics": ["x"] * 10_000, "sink": "y" * 9000}).encode())
    assert report is not None
    assert (len(report["query"]), len(report["topics"]), len(report["sink"])) == (MOST_TEXT, MOST_LISTED, MOST_TEXT)


@pytest.mark.parametrize("figure", ["1.2.3", "e", "1-2", "9" * 400, "1e999", "NaN", "+Inf", "-"])
def test_metrics_that_are_garbled_are_passed_over(figure: str) -> None:
    assert read_totals(f"kafka_server_brokertopicmetrics_bytesin_total {figure}\n", 0.0) is None
    assert read_cleaner(f"barnabas_cleaner_seconds_total {figure}\n") == {}


@pytest.mark.parametrize("figure", ["7", "1.5e+06", "2e-05", "1.5", "7 1700000000000"])
def test_numbers_of_metrics_are_read_in_every_form(figure: str) -> None:
    wanted = float(figure.partition(" ")[0])
    found = read_totals(f'kafka_server_brokertopicmetrics_bytesin_total{{topic=""}} {figure}\n', 0.0)
    assert found is not None
    assert found.bytes_in == wanted
    assert read_cleaner(f"barnabas_cleaner_seconds_total {figure}\n") == {"seconds": wanted}


def test_what_nobody_expected_leaves_a_gap_and_not_a_dead_console(tmp_path: Path) -> None:
    """An error that is not one of the clients ended the sampler, and with it the whole process."""

    class OddCluster:
        async def snapshot(self, *, fresh: bool = False) -> None:
            raise ValueError("odd")

    history = History(tmp_path)
    sampler = Sampler(cast("Any", OddCluster()), history)

    async def look() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sampler.run)
            with anyio.fail_after(10):
                while sampler.failure is None:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    try:
        anyio.run(look)
    finally:
        history.close()
    assert "odd" in str(sampler.failure)
