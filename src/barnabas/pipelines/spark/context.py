"""Starts Spark in this process: with the right Python for its workers, and quietly where that is wanted.

Spark's workers run `python3` of the system unless they are told otherwise; where that is another Python, all that Spark
says is that a worker failed to connect back. On this machine they start faster and smaller by `worker_python`.

A job whose tasks are plain Python needs a context only. A session (`session.spark_session`) is one with Spark SQL
beside it, whose catalog, functions and listeners take as long to start as all the rest.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors.exceptions.captured import CapturedException

from barnabas.pipelines.errors import SparkNotStarted
from barnabas.pipelines.spark.error_texts import java_error
from barnabas.pipelines.spark.worker_python import worker_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

PYTHON: Final = "spark.pyspark.python"
"""The setting that names a Python for workers. Only spark-submit heeds it: PySpark itself asks the environment."""


def spark_context(
    name: str, *, master: str, config: Mapping[str, object] | None = None, verbose: bool = True
) -> SparkContext:
    """The context of this process, made if there is none.

    `master` and `config` are Spark's. Without `verbose`, what Spark's Java process writes to standard error is kept,
    and told if it does not start. Raises SparkNotStarted.
    """
    settings = prepare_start(name, master, config, verbose=verbose)
    with refusals_in_one_line():
        return SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))


def stop_spark(spark: SparkContext | SparkSession) -> None:
    """Stop Spark, and leave it to a thread to end PySpark's server of accumulators.

    That server looks once a second whether it is to end, and PySpark's own `stop` waits for it. It ends after Spark, as
    there, so that what the last tasks report still has a receiver; nobody misses what comes when Java is gone. One with
    a socket in the file system is waited for: this process may end at once, and the file would stay.
    """
    context = spark if isinstance(spark, SparkContext) else spark.sparkContext
    server = context._accumulatorServer
    if server is None or server.address_family == socket.AF_UNIX:
        spark.stop()
        return
    context._accumulatorServer = None  # type: ignore[assignment]
    try:
        spark.stop()
    finally:
        server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        threading.Thread(target=server.shutdown, name="spark-accumulators-end", daemon=True).start()


def prepare_start(
    name: str, master: str | None, config: Mapping[str, object] | None, *, verbose: bool
) -> dict[str, str]:
    """The settings for Spark. The Python of workers is chosen, and Java started if it is to be quiet.

    Raises SparkNotStarted.
    """
    if (named := (config or {}).get(PYTHON)) is not None:
        os.environ["PYSPARK_PYTHON"] = str(named)
    python = worker_python() if _is_local(master) else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    settings: dict[str, str] = {
        "spark.app.name": name,
        **({} if master is None else {"spark.master": master}),
        **{key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()},
    }
    if not verbose:
        from barnabas.pipelines.spark.java import launch_quietly

        launch_quietly(settings)
    return settings


@contextmanager
def refusals_in_one_line() -> Iterator[None]:
    """Raise SparkNotStarted where Java is there, and Spark refuses to start in it."""
    try:
        yield
    except (Py4JJavaError, CapturedException) as error:
        raise SparkNotStarted.refused(java_error(str(error))) from error


def _is_local(master: str | None) -> bool:
    """Whether workers will run on this machine; spark-submit, which leaves a gateway, may have been told otherwise."""
    return "PYSPARK_GATEWAY_PORT" not in os.environ if master is None else master.startswith("local")
