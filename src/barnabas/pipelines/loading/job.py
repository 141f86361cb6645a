"""The driver of a load: in rounds it reads the position, plans, has Spark run the tasks, and commits.

What is kept where: the table has rows and offsets, in one commit; the dead-letter table gets its files after they were
promised in that commit (`Outbox`), so that the next start makes good a crash between the two; the consumer group gets
the offsets last, for people and tools to see the lag. Only the table decides where to go on.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from barnabas.pipelines.loading.commits import LoadCommits
from barnabas.pipelines.loading.group import LoadGroup
from barnabas.pipelines.loading.plan import plan_round
from barnabas.pipelines.loading.position import PositionReader
from barnabas.pipelines.loading.progress import ProgressMeter
from barnabas.pipelines.loading.row_columns import RowColumns
from barnabas.pipelines.loading.stopping import Stopping
from barnabas.pipelines.loading.tasks.runner import TaskRunner
from barnabas.pipelines.spark.read.offsets import between
from barnabas.pipelines.spark.read.positions import moves

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from barnabas.pipelines.loading.position import LoadPosition
    from barnabas.pipelines.loading.progress import LoadProgress, LoadReport
    from barnabas.pipelines.loading.settings import LoadSettings
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
    ) -> None:
        """Raises InvalidOption if the decoder has no name."""
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

    def run(self, session: Callable[[], SparkSession], every: float | None) -> LoadReport:
        """Load up to the end that the topic has now or, with `every`, for as long as the process runs.

        The session is asked for when there is something to load: a load that finds nothing starts no Spark.
        """
        self._meter.begin()
        limit = None if every is not None else self._positions.topic_ends()
        while True:
            began = time.monotonic()
            while self._run_round(session, limit):
                pass
            if every is None:
                return self._meter.report()
            self.stopping.pause(max(0.0, began + every - time.monotonic()))

    def _run_round(self, session: Callable[[], SparkSession], limit: Offsets | None) -> bool:
        """Load and commit once; whether there was anything to load. Raises Stopped."""
        self.stopping.check()
        position = self._positions.read()
        self._commits.deliver_letters(position)
        self._group.commit(position.loaded)
        end = position.end_before(limit)
        if not between(position.start, end):
            return False
        self._load_and_commit(self._start_spark(session), position, end)
        return True

    def _load_and_commit(self, spark: SparkSession, position: LoadPosition, end: Offsets) -> None:
        planned = plan_round(
            position.start,
            end,
            position.loaded,
            spark.sparkContext.defaultParallelism,
            self._settings.max_offsets_per_commit,
        )
        lag = sum(max(0, end[place] - position.start[place]) for place in end)
        with self._meter.ticking(spark, lag) as reports:
            results, schema = self._tasks.run(spark, planned.pieces, reports)
        self._positions.check_same_topic(position)
        with self.stopping.uninterrupted():
            self._meter.add(self._commits.commit_round(position, planned, results, schema))
        self._group.commit({each.place: each.end for each in planned.ranges})

    def _start_spark(self, session: Callable[[], SparkSession]) -> SparkSession:
        """The session; before the first commit the caller is told what is waited for."""
        is_first = not self._meter.committed.commits
        if is_first:
            self._on_step("starting Spark")
        with self.stopping.abandonable():
            spark = session()
        self.stopping.check()
        if is_first:
            self._meter.begin()
            self._on_step(f"waiting for Spark to read the first records of {self._settings.topic}")
        return spark
