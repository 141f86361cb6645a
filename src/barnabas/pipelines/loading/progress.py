"""How far a load has come, and how long it will take."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.loading.tasks.reports import TaskReports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext

    from barnabas.pipelines.loading.tasks.reports import TaskCounts

TICK_SECONDS: Final = 0.2
"""How often progress is reported while tasks run."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A moment of a load."""

    records: int
    """Loaded so far by this run: rows, and dead letters."""
    size: int
    """The size of their keys and values, in bytes."""
    done: int
    """Offsets that this run has passed."""
    lag: int
    """Offsets that are left."""
    seconds: float
    """Since the first round began."""

    @property
    def rate(self) -> float:
        """Records each second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None before anything is done."""
        return self.lag * self.seconds / self.done if self.done else None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did before it ended."""

    records: int
    dead: int
    """How many of them went to the dead-letter table."""
    size: int
    commits: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadTotals:
    """What was committed: by one round, or by all rounds of a run."""

    records: int = 0
    size: int = 0
    offsets: int = 0
    """Offsets that were passed, with a record or without."""
    dead_letters: int = 0
    commits: int = 0
    files: int = 0

    def __add__(self, other: LoadTotals) -> LoadTotals:
        return LoadTotals(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class ProgressMeter:
    """Adds up what a run has committed, and reports it with what its tasks have read since."""

    def __init__(self, on_progress: Callable[[LoadProgress], None]) -> None:
        self.committed = LoadTotals()
        self._on_progress = on_progress
        self._began = time.monotonic()

    def begin(self) -> None:
        """Count the time from now on."""
        self._began = time.monotonic()

    def add(self, committed: LoadTotals) -> None:
        """Count a commit."""
        self.committed += committed

    def report(self) -> LoadReport:
        """What the run has done."""
        done = self.committed
        return LoadReport(done.records, done.dead_letters, done.size, done.commits, time.monotonic() - self._began)

    @contextmanager
    def ticking(self, context: SparkContext, lag: int) -> Iterator[TaskReports]:
        """Report progress at intervals while tasks run; gives what the tasks report to."""
        over = threading.Event()

        def tick() -> None:
            while not over.wait(TICK_SECONDS):
                self._show(reports.total(), lag)

        with TaskReports(context) as reports:
            ticker = threading.Thread(target=tick, daemon=True)
            ticker.start()
            try:
                yield reports
            finally:
                over.set()
                ticker.join()
            self._show(reports.total(), lag)

    def _show(self, running: TaskCounts, lag: int) -> None:
        done = self.committed
        self._on_progress(
            LoadProgress(
                done.records + running.records,
                done.size + running.size,
                done.offsets + running.passed,
                max(0, lag - running.passed),
                time.monotonic() - self._began,
            )
        )
