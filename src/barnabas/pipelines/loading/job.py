"""The driver of a load: in rounds it reads the position, plans, has Spark run the tasks, and commits.

What is kept where: the table has rows and offsets, in one commit; the dead-letter table gets its files after they were
promised in that commit (`Outbox`), so that the next start makes good a crash between the two; the consumer group gets
the offsets last, for people and tools to see the lag. Only the table decides where to go on.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from barnabas.pipelines.decode.contract import REPORTED_LETTERS
from barnabas.pipelines.loading.commits import LoadCommits
from barnabas.pipelines.loading.group import LoadGroup
from barnabas.pipelines.loading.plan import plan_round
from barnabas.pipelines.loading.position import PositionReader
from barnabas.pipelines.loading.progress import ProgressMeter
from barnabas.pipelines.loading.row_columns import RowColumns
from barnabas.pipelines.loading.stopping import Stopping
from barnabas.pipelines.loading.tasks.runner import TaskRunner
from barnabas.pipelines.runner.metrics import BatchMetrics
from barnabas.pipelines.spark.read.offsets import between
from barnabas.pipelines.spark.read.positions import moves

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark import SparkContext

    from barnabas.pipelines.decode.contract import Place
    from barnabas.pipelines.loading.position import LoadPosition
    from barnabas.pipelines.loading.progress import LoadProgress, LoadReport, LoadTotals
    from barnabas.pipelines.loading.settings import LoadSettings
    from barnabas.pipelines.metrics_topic import MetricsTopic
    from barnabas.pipelines.spark.cluster import ClusterView
    from barnabas.pipelines.spark.read.offsets import Offsets
    from barnabas.pipelines.tables.table import Table

log = logging.getLogger("barnabas.pipelines")


class LoadJob:
    """One load. Its tables are open, and are locked for it if the format has locks."""

    def __init__(
        self,
        settings: LoadSettings,
        view: ClusterView,
        table: Table,
        dead: Table,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_step: Callable[[str], None] | None = None,
        reports: MetricsTopic | None = None,
    ) -> None:
        """Raises InvalidOption if the decoder has no name."""
        self._reports = reports
        self.stopping = Stopping()
        self._settings = settings
        self._table = table
        self._columns = RowColumns(settings.decoder, table)
        self._positions = PositionReader(settings, view, table, dead)
        self._tasks = TaskRunner(settings, self._columns, table, dead)
        self._commits = LoadCommits(settings, table, dead)
        self._group = LoadGroup(settings.group, view, self.stopping)
        self._meter = ProgressMeter(on_progress or (lambda _: None))
        self._on_step = on_step or (lambda _: None)

    def begin(self) -> None:
        """Check everything that can be checked before Spark starts."""
        position = self._positions.read()
        if position.table is not None:
            self._columns.check_decoder(position.table)
        self._table.claim()
        if not self._settings.decoder.evolves:
            self._columns.check_partition_columns(self._settings.decoder.schema)
            self._table.evolve(self._columns.of_decoder())
        if position.table is None and moves(self._settings.starting):
            self._commits.commit_start(position, self._columns.of_decoder())

    def run(self, spark: Callable[[], SparkContext], every: float | None) -> LoadReport:
        """Load up to the end that the topic has now or, with `every`, for as long as the process runs.

        Spark is asked for when there is something to load: a load that finds nothing starts no Spark.
        """
        self._meter.begin()
        limit = None if every is not None else self._positions.topic_ends()
        while True:
            began = time.monotonic()
            while self._run_round(spark, limit):
                pass
            if every is None:
                return self._meter.report()
            self.stopping.pause(max(0.0, began + every - time.monotonic()))

    def _run_round(self, spark: Callable[[], SparkContext], limit: Offsets | None) -> bool:
        """Load and commit once; whether there was anything to load. Raises Stopped."""
        self.stopping.check()
        position = self._positions.read()
        self._commits.deliver_letters(position)
        self._group.commit(position.loaded)
        end = position.end_before(limit)
        if not between(position.start, end):
            return False
        self._load_and_commit(self._start_spark(spark), position, end)
        return True

    def _load_and_commit(self, context: SparkContext, position: LoadPosition, end: Offsets) -> None:
        planned = plan_round(
            position.start,
            end,
            position.loaded,
            context.defaultParallelism,
            self._settings.max_offsets_per_commit,
        )
        lag = sum(max(0, end[place] - position.start[place]) for place in end)
        if self._reports is not None:
            self._reports.open()
        began, began_at = time.monotonic(), datetime.now(UTC)
        with self._meter.ticking(context, lag) as reports:
            results, schema = self._tasks.run(context, planned.pieces, reports)
        self._positions.check_same_topic(position)
        with self.stopping.uninterrupted():
            done = self._commits.commit_round(position, planned, results, schema)
            self._meter.add(done)
        self._group.commit({each.place: each.end for each in planned.ranges})
        letters = [each for result in results for each in result.letters][:REPORTED_LETTERS]
        self._report(done, letters, began_at, time.monotonic() - began, max(0, lag - done.offsets))

    def _report(self, done: LoadTotals, letters: Sequence[Place], at: datetime, seconds: float, lag: int) -> None:
        """Say in the topic of metrics what a commit has added, and where some of its dead letters are.

        Why they are dead is not said there: reasons quote records, which not everybody may read who reads this topic.
        """
        if self._reports is None:
            return
        metrics = BatchMetrics(
            query=self._settings.pipeline,
            batch=self._meter.committed.commits,
            at=at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            seconds=round(seconds, 3),
            rows=done.records,
            rows_per_second=round(done.records / max(seconds, 0.001), 1),
            lag=lag,
            state_rows=0,
            state_bytes=0,
            watermark=None,
        )
        self._reports.send(
            metrics,
            kind="load",
            topics=[self._settings.topic],
            group=self._settings.group,
            sink=self._table.location,
            format=self._table.format,
            files=done.files,
            dead_letters=done.dead_letters,
            letters=letters,
        )

    def _start_spark(self, spark: Callable[[], SparkContext]) -> SparkContext:
        """Spark's context; before the first commit the caller is told what is waited for."""
        is_first = not self._meter.committed.commits
        if is_first:
            self._on_step("starting Spark")
        with self.stopping.abandonable():
            context = spark()
        self.stopping.check()
        if is_first:
            self._meter.begin()
            self._on_step(f"waiting for Spark to read the first records of {self._settings.topic}")
        return context
