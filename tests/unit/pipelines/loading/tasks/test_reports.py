"""Progress is told while tasks run, and nothing that anybody sends disturbs it."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.pipelines.loading.tasks import reports as module
from barnabas.pipelines.loading.tasks.reports import TaskCounts, TaskReporter, TaskReports, key
from barnabas.pipelines.spark.read.offsets import OffsetRange
from tests.support.load_jobs import MemoryTopic, OneProcess, load_from

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from barnabas.pipelines.loading.progress import LoadProgress

PIECE = (OffsetRange("t", 0, 0, 10),)
OTHER = (OffsetRange("t", 1, 0, 10),)
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskReports]:
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.0)
    with TaskReports(cast("Any", OneProcess())) as reports:
        yield reports


def test_a_load_tells_of_records_before_its_task_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task goes on with its second half only when the driver has told of the first."""
    topic, told = MemoryTopic(), threading.Event()
    topic.send(*[b'{"n": 1}'] * 10)
    seen: list[tuple[int, int, int]] = []
    read = topic.read

    def in_halves(wanted: OffsetRange, *more: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        [whole] = read(wanted, *more, **options)
        yield whole.slice(0, 5)
        assert told.wait(TIMEOUT_SECONDS), "nothing was told of the first half"
        yield whole.slice(5)

    def show(progress: LoadProgress) -> None:
        seen.append((progress.records, progress.done, progress.lag))
        if progress.records:
            told.set()

    monkeypatch.setattr(topic, "read", in_halves)
    load_from(topic, str(tmp_path / "t"), monkeypatch, on_progress=show)
    assert (5, 5, 5) in seen
    assert seen[-1] == (10, 10, 0)


def test_what_is_finished_counts_instead_of_what_was_reported(reports: TaskReports) -> None:
    for piece, counted in ((PIECE, TaskCounts(3, 30, 4)), (OTHER, TaskCounts(1, 10, 1)), (OTHER, TaskCounts(2, 20, 2))):
        with TaskReporter(piece, reports.line) as reporter:
            reporter.report(counted)
    assert reports.total() == (5, 50, 6)
    reports.finished.add({(reports.round, key(PIECE)): TaskCounts(9, 90, 10)})
    assert reports.total() == (11, 110, 12)
    reports.finished.add({(reports.round, key(PIECE)): TaskCounts(9, 90, 10)})
    assert reports.total() == (11, 110, 12), "a task that ran twice counts once"


@pytest.mark.parametrize("datagram", [b"", b"{", b"7", b'["wrong", "t-0", 1, 2, 3]', b"\xff" * 3_000])
def test_what_others_send_is_passed_over(reports: TaskReports, datagram: bytes) -> None:
    assert reports.line is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(datagram, reports.line.address)
    with TaskReporter(PIECE, reports.line) as reporter:
        reporter.report(TaskCounts(1, 2, 3))
    assert reports.total() == (1, 2, 3)


def test_a_driver_that_cannot_be_reached_is_no_failure() -> None:
    class Elsewhere(OneProcess):
        def getConf(self) -> dict[str, str]:  # noqa: N802  (Spark's own name)
            return {"spark.driver.host": "192.0.2.1"}

    with TaskReports(cast("Any", Elsewhere())) as reports, TaskReporter(PIECE, reports.line) as reporter:
        reporter.report(TaskCounts(1, 2, 3))
        assert reports.line is None and reports.total() == (0, 0, 0)


def test_rounds_leave_nothing_behind() -> None:
    """PySpark keeps each accumulator for as long as the process lives."""
    made: list[Any] = []

    class Counting(OneProcess):
        def accumulator(self, zero: Any, param: Any) -> Any:
            made.append(super().accumulator(zero, param))
            return made[-1]

    context = cast("Any", Counting())
    with TaskReports(context) as first:
        first.finished.add({(first.round, key(PIECE)): TaskCounts(9, 90, 10)})
        with TaskReports(context) as other:
            assert other.total() == (0, 0, 0), "two loads may use one session"
        assert first.total() == (9, 90, 10)
    assert [each.value for each in made] == [{}]
