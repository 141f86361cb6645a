"""Runs the tasks of a round on Spark, and has tasks that inferred different schemas agree on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.loading.tasks.agreement import agree
from barnabas.pipelines.loading.tasks.reports import TaskCounts, TaskReporter, key
from barnabas.pipelines.loading.tasks.task import TaskResult, TaskSettings, run_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark import SparkContext

    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.loading.row_columns import RowColumns
    from barnabas.pipelines.loading.settings import LoadSettings
    from barnabas.pipelines.loading.tasks.reports import TaskReports
    from barnabas.pipelines.spark.read.offsets import Piece
    from barnabas.pipelines.tables.table import Table


class TaskRunner:
    """Runs tasks for the pieces of a round."""

    def __init__(self, settings: LoadSettings, columns: RowColumns, table: Table, dead: Table) -> None:
        self._settings = settings
        self._columns = columns
        self._table = table
        self._dead = dead

    def run(
        self, context: SparkContext, pieces: Sequence[Piece], reports: TaskReports
    ) -> tuple[list[TaskResult], pa.Schema]:
        """Results whose rows all have one schema, and the table's columns for them. Raises PipelineError."""
        decoder = self._columns.decoder_for(self._table.schema())
        results = self._run_tasks(context, pieces, decoder, reports)
        if not self._columns.decoder.evolves:
            return results, self._columns.of_decoder()

        def again(misfits: Sequence[Piece], agreed: pa.Schema) -> list[TaskResult]:
            self._columns.check_records_have_partition_columns(agreed)
            return self._run_tasks(context, misfits, self._columns.decoder_for(agreed), reports)

        results, schema = agree(self._columns.of_rows(self._table.schema()), results, again)
        self._columns.check_records_have_partition_columns(schema)
        return results, self._columns.of_table(schema)

    def _run_tasks(
        self, context: SparkContext, pieces: Sequence[Piece], decoder: Decoder, reports: TaskReports
    ) -> list[TaskResult]:
        shared = context.broadcast(
            TaskSettings(
                self._settings.client,
                decoder,
                self._table.destination(),
                self._dead.destination(),
                self._settings.fail_on_data_loss,
            )
        )
        line, finished, round = reports.line, reports.finished, reports.round

        def task(piece: Piece) -> TaskResult:
            with TaskReporter(piece, line) as reporter:
                result = run_task(piece, shared.value, reporter.report)
            counted = TaskCounts(result.records, result.size, sum(each.size for each in piece))
            finished.add({(round, key(piece)): counted})
            return result

        try:
            results = context.parallelize(pieces, len(pieces)).map(task).collect()
        finally:
            shared.destroy()  # with its file, in which the client's properties are
        for result in results:
            if result.failure is not None:
                raise PipelineError(result.failure.text).with_remedy(result.failure.remedy)
        return results
