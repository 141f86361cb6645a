"""What keeps a run from starting Spark, and how it is stopped from outside."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.runner import running
from barnabas.pipelines.runner.supervisor import QueryFailed
from barnabas.pipelines.spec import Pipeline, TableSink, TopicSource
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.support.tables import add
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from threading import Event

    from barnabas.pipelines.runner.queries.query import SinkQuery


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_and_spark_gets_no_handler_of_its_own(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    stops: list[bool] = []

    def sparks_own(_: int, __: object) -> None:
        raise AssertionError("the batch that is under way would be cut off")

    def session(*_: Any, **__: Any) -> MagicMock:
        if threading.current_thread() is threading.main_thread():  # as PySpark does when it makes a context
            signal.signal(signal.SIGINT, sparks_own)
        return MagicMock()

    def supervise(_: Sequence[SinkQuery], stop: Event) -> None:
        signal.raise_signal(number)
        stops.append(stop.is_set())

    monkeypatch.setattr(running, "spark_session", session)
    monkeypatch.setattr(running, "supervise", supervise)
    try:
        running.run_pipelines([], by_signals=True)
        assert stops == [True]
        assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT], "who had it gets it back"
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_run_tells_again_and_again_that_spark_is_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def session(*_: Any, **__: Any) -> MagicMock:
        wait_until(lambda: caplog.text.count("Spark is starting (for 0 s)") > 1, "two reminders", 30)
        return MagicMock()

    caplog.set_level("INFO", "barnabas.pipelines")
    monkeypatch.setattr(running, "REMIND_SECONDS", 0.01)
    monkeypatch.setattr(running, "spark_session", session)
    monkeypatch.setattr(running, "supervise", MagicMock())
    running.run_pipelines([])
    assert caplog.messages[0] == "Spark is starting"


def test_a_second_ctrl_c_ends_a_run_that_waits() -> None:
    """As for a broker that is not there. A second SIGTERM changes nothing: some send it to everybody twice."""
    with running.stopped_by_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("name", "partition_by", "expected", "remedy"),
    [
        (
            "other",
            [],
            r'other\.all: .*/table belongs to the pipeline "p", not to "other"',
            Remedy(RemedyKind.USE_PIPELINE_NAME, "p"),
        ),
        ("p", ["text"], r"p\.all: .*/table is partitioned by nothing, not by text: that cannot change", None),
    ],
)
def test_a_table_that_refuses_is_found_before_spark_starts(
    tmp_path: Path,
    kind: str,
    name: str,
    partition_by: list[str],
    expected: str,
    remedy: Remedy | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def session(*_: Any, **__: Any) -> MagicMock:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(running, "spark_session", session)
    with open_table(str(tmp_path / "table"), kind) as table:
        add(table, 0, 10)
    sink = TableSink(name="all", reads="numbers", table=str(tmp_path / "table"), format=kind, partition_by=partition_by)
    pipeline = Pipeline(name=name, sources=[TopicSource(name="numbers", topics=["t"])], sinks=[sink])
    with pytest.raises(QueryFailed, match=expected) as caught:
        running.run_pipelines([pipeline])
    assert caught.value.remedy == remedy


def test_a_failure_that_may_pass_is_left_to_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "table_of", MagicMock(side_effect=OSError("the store is away")))
    sink = TableSink(name="all", reads="numbers", table=str(tmp_path / "table"))
    running.check_tables([Pipeline(name="p", sources=[TopicSource(name="numbers", topics=["t"])], sinks=[sink])])
    assert caplog.messages == ["query=p.all: the table cannot be checked yet: the store is away"]


def test_a_session_of_our_own_opens_no_port_to_the_network() -> None:
    """Spark's UI listens on all addresses, whatever the driver is bound to."""
    found = running._local_defaults(None)
    assert (found["spark.ui.enabled"], found["spark.driver.bindAddress"]) == (False, "127.0.0.1")
    assert running._local_defaults("yarn") == {}
