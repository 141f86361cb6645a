"""`load()`, the public function: opens the cluster and the tables, and has a job load in a thread of its own."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from barnabas.model.internal_topics import PIPELINE_METRICS
from barnabas.pipelines.loading.job import LoadJob
from barnabas.pipelines.loading.plan import MAX_OFFSETS_PER_COMMIT
from barnabas.pipelines.loading.settings import LoadOptions
from barnabas.pipelines.loading.spark import LoadSpark
from barnabas.pipelines.loading.stopping import run_beside
from barnabas.pipelines.metrics_topic import MetricsTopic
from barnabas.pipelines.spark.cluster import ClusterView
from barnabas.pipelines.tables.targets import DEFAULT_CATALOG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.loading.progress import LoadProgress, LoadReport

NAME_SECONDS: Final = 10.0
"""How long a load that is to come back waits for a name that no host has: the host may be starting, or be misspelt."""


def load(
    topic: str,
    to: str,
    *,
    format: str | None = None,
    bootstrap_servers: str = "localhost:9092",
    name: str | None = None,
    decode: str | Decoder = "bytes",
    schema: str | None = None,
    framing: str = "auto",
    mark_tombstones: bool = False,
    partition_by: Sequence[str] = (),
    starting_offsets: str = "earliest",
    every: float | None = None,
    group: str | None = None,
    max_offsets_per_commit: int = MAX_OFFSETS_PER_COMMIT,
    fail_on_data_loss: bool = True,
    spark: SparkSession | None = None,
    master: str | None = None,
    spark_config: Mapping[str, object] | None = None,
    client: Mapping[str, object] | None = None,
    catalog: str = DEFAULT_CATALOG,
    options: Mapping[str, str] | None = None,
    keep_snapshots: int | None = None,
    metrics: str | None = PIPELINE_METRICS,
    on_progress: Callable[[LoadProgress], None] | None = None,
    on_step: Callable[[str], None] | None = None,
    verbose: bool = True,
) -> LoadReport:
    """Load a topic into a table, from the offsets that the table holds to the end that the topic has now.

    `to`, `format`, `partition_by`, `catalog`, `options` and `keep_snapshots` name the table
    (`tables.opening.open_table`): without a format it is that of the existing table, and plain Parquet for a new one.
    `decode`, `schema` and `framing` say how values become columns (`decode.choosing.choose_decoder`); `decode` may be a
    decoder of your own. `mark_tombstones` adds a column that is true where a record has no value.

    With `every` the load does not return: it looks for new records at this interval (seconds) until it is interrupted.
    `name` is the pipeline that owns the table, by default `load-TOPIC`. The consumer group `group`, by default of the
    same name, shows the progress, and the topic `metrics` gets a report of every commit. `starting_offsets` counts only
    for a table that does not exist yet.

    `spark` is an existing session. Without it Spark is started for `master` with `spark_config`, and the output of its
    Java process on standard error is shown if `verbose`. `client` has Kafka's client properties. `on_progress` is
    called while records are read, and `on_step` with what the load waits for before the first progress.

    Raises PipelineError, above all its TableErrors, before anything is written or with nothing half-written; and
    KeyboardInterrupt between two commits if it is interrupted.
    """
    return run_load(LoadOptions(**locals()))


def run_load(options: LoadOptions) -> LoadReport:
    """Do what `load` says."""
    options.check()
    settings = options.settings()
    with ExitStack() as stack:
        name_timeout = NAME_SECONDS if options.every is None else math.inf
        view = stack.enter_context(ClusterView(settings.client, name_timeout=name_timeout))
        view.topic_ids([options.topic])  # before the table is opened: a topic that is missing is the first error
        table = stack.enter_context(options.open_table())
        dead = stack.enter_context(options.open_dead_letters(table.format))
        reports = MetricsTopic(settings.client, options.metrics)
        stack.callback(reports.close)
        job = LoadJob(settings, view, table, dead, options.on_progress, options.on_step, reports)
        job.begin()
        spark = LoadSpark(
            options.spark,
            settings.pipeline,
            master=options.master,
            config=options.spark_config,
            verbose=options.verbose,
        )

        def run() -> LoadReport:
            with spark:
                return job.run(spark.get, options.every)

        return run_beside(run, job.stopping, spark.cancel_tasks)
