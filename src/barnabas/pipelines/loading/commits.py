"""Commits a round of a load: rows and offsets to the table, then the dead letters that the commit promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.loading.dead_letters import deliver, promise
from barnabas.pipelines.loading.progress import LoadTotals
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.contract import CommitOutcome
from barnabas.pipelines.tables.errors import Fenced, SchemaConflict

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from barnabas.pipelines.loading.plan import Round
    from barnabas.pipelines.loading.position import LoadPosition
    from barnabas.pipelines.loading.settings import LoadSettings
    from barnabas.pipelines.loading.tasks.task import TaskResult
    from barnabas.pipelines.tables.table import Table


class LoadCommits:
    """Adds rounds to the tables of a load."""

    def __init__(self, settings: LoadSettings, table: Table, dead: Table) -> None:
        self._pipeline = settings.pipeline
        self._decoder = settings.decoder
        self._table = table
        self._dead = dead

    def commit_start(self, position: LoadPosition, schema: pa.Schema) -> None:
        """Create the table without rows, where a load begins at the end of its topic.

        A second start would look for the end again, and find a later one.
        """
        ranges = [OffsetRange(*place, offset, offset) for place, offset in sorted(position.start.items())]
        ids = position.topic_ids
        try:
            self._table.commit(self._pipeline, ranges, ids, [], schema, decoder=self._decoder.kind, after=0)
        except SchemaConflict as error:
            raise InvalidOption(
                f"a load that begins at the end creates its table before the first record, and {error}. Give a "
                "schema, or offsets to begin at."
            ) from error

    def commit_round(
        self, position: LoadPosition, planned: Round, results: Sequence[TaskResult], schema: pa.Schema
    ) -> LoadTotals:
        """Add what tasks have written; what was added. Raises Fenced and other TableErrors."""
        self._table.evolve(schema)
        files = [file for result in results for file in result.files]
        dead_files = [file for result in results for file in result.dead_files]
        outcome = self._table.commit(
            self._pipeline,
            planned.ranges,
            position.topic_ids,
            files,
            schema,
            outbox=promise(self._dead, self._pipeline, planned.ranges, dead_files),
            decoder=self._decoder.kind,
            after=position.version,
        )
        if outcome is CommitOutcome.ALREADY:
            raise Fenced.by_twin(self._table.location, self._pipeline)
        self.deliver_letters(position)
        return LoadTotals(
            records=sum(result.records for result in results),
            size=sum(result.size for result in results),
            offsets=sum(each.size for each in planned.ranges),
            dead_letters=sum(file.rows for file in dead_files),
            commits=1,
            files=len(files),
        )

    def deliver_letters(self, position: LoadPosition) -> None:
        """Give the dead-letter table what the last commit promised it, unless it has it."""
        deliver(self._table.outbox(self._pipeline), self._dead, self._pipeline, position.topic_ids)
