"""Runs the pipelines of files: one Spark application, a query for each sink."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.loading.spark import ALONE
from barnabas.pipelines.loading.stopping import Stopping, run_beside
from barnabas.pipelines.runner.failures import classify_failure
from barnabas.pipelines.runner.queries.query import SinkQuery
from barnabas.pipelines.runner.queries.table_query import table_of
from barnabas.pipelines.runner.supervisor import QueryFailed, supervise
from barnabas.pipelines.spark.context import stop_spark
from barnabas.pipelines.spark.quiet import QUIET
from barnabas.pipelines.spark.session import spark_session
from barnabas.pipelines.spec.model import TableSink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from barnabas.pipelines.spec.model import Pipeline

log = logging.getLogger("barnabas.pipelines")

REMIND_SECONDS: Final = 10.0
"""How often the log tells what is still waited for."""


def run_pipelines(
    pipelines: Sequence[Pipeline],
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    by_signals: bool = False,
    verbose: bool = True,
) -> None:
    """Run pipelines that were checked until all have read everything. Raises QueryFailed.

    Without a session one is made, with `master` and `config`, and ended with the run; what its Java process writes to
    standard error is shown if `verbose`. With `by_signals`, SIGTERM and SIGINT stop the queries between batches.
    """
    check_tables(pipelines)
    session = spark or _own_session(pipelines, master, config or {}, verbose=verbose)
    try:
        queries = [SinkQuery(session, pipeline, sink) for pipeline in pipelines for sink in pipeline.sinks]
        with stopped_by_signals() if by_signals else nullcontext(threading.Event()) as stop:
            supervise(queries, stop)
    finally:
        # Whoever is interrupted in the middle of a batch ends at once, and the session with the process.
        if spark is None and not isinstance(sys.exception(), KeyboardInterrupt):
            stop_spark(session)


def _own_session(
    pipelines: Sequence[Pipeline], master: str | None, config: Mapping[str, object], *, verbose: bool
) -> SparkSession:
    name = "-".join(each.name for each in pipelines)
    settings = {**QUIET, **_local_defaults(master), **config}
    stopping = Stopping()

    def start() -> SparkSession:
        with stopping.abandonable():
            return spark_session(name, master=master, config=settings, verbose=verbose)

    with _log_waiting_for("Spark is starting"):
        return run_beside(start, stopping, lambda: None)


@contextmanager
def _log_waiting_for(what: str) -> Iterator[None]:
    """Log what is waited for at once, and again as long as it takes: on a busy machine Spark takes minutes."""
    began = time.monotonic()
    over = threading.Event()

    def remind() -> None:
        while not over.wait(REMIND_SECONDS):
            log.info("%s (for %.0f s)", what, time.monotonic() - began)

    log.info("%s", what)
    reminder = threading.Thread(target=remind, daemon=True)
    reminder.start()
    try:
        yield
    finally:
        over.set()
        reminder.join()


def check_tables(pipelines: Sequence[Pipeline]) -> None:
    """Raise QueryFailed if a table refuses, as one of another pipeline does: to find that out takes no Spark.

    A failure that may pass, as that of a store, is left to the query, which is started again.
    """
    for pipeline in pipelines:
        for sink in pipeline.sinks:
            if not isinstance(sink, TableSink):
                continue
            try:
                with table_of(pipeline, sink) as table:
                    table.position(pipeline.name)
            except Exception as error:
                failure = classify_failure(error)
                if not failure.passes:
                    raise QueryFailed(f"{pipeline.query(sink)}: {failure.text}").with_remedy(failure.remedy) from error
                log.warning("query=%s: the table cannot be checked yet: %s", pipeline.query(sink), failure.text)


def _local_defaults(master: str | None) -> dict[str, object]:
    """On one machine nobody else has to reach Spark, and its 200 tasks for an aggregation take longer than the work."""
    if master is not None and not master.startswith("local"):
        return {}
    return {**ALONE, "spark.sql.shuffle.partitions": max(2, os.cpu_count() or 2)}


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set. A second SIGINT ends what does not look at it, as a wait for a broker."""
    event = threading.Event()

    def stop(number: int, _: object) -> None:
        if number == signal.SIGINT and event.is_set():
            raise KeyboardInterrupt
        log.info("%s received: queries stop after their current batch", signal.Signals(number).name)
        event.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
