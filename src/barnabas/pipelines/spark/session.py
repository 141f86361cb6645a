"""A Spark session that knows Barnabas: with the right Python for its workers, and with the source registered.

Spark's workers run `python3` of the system unless they are told otherwise; where that is another Python, all that Spark
says is that a worker failed to connect back. On this machine they start faster and smaller by `worker_python`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from barnabas.pipelines.errors import SparkNotStarted
from barnabas.pipelines.spark.error_texts import java_error
from barnabas.pipelines.spark.progress_listener import listen
from barnabas.pipelines.spark.worker_python import worker_python

if TYPE_CHECKING:
    from collections.abc import Mapping

PYTHON: Final = "spark.pyspark.python"
"""The setting that names a Python for workers. Only spark-submit heeds it: PySpark itself asks the environment."""


def spark_session(
    name: str = "barnabas",
    *,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    verbose: bool = True,
) -> SparkSession:
    """The session of this process, made if there is none; `spark.read.format("barnabas")` works in it.

    `master` and `config` are Spark's; without a master it is the one that spark-submit gave, or `local[*]`. Without
    `verbose`, what Spark's Java process writes to standard error is kept, and told if it does not start. Raises
    SparkNotStarted.
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
    try:
        spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
        register(spark)  # the first thing that looks at the settings of SQL
    except (Py4JJavaError, CapturedException) as error:
        raise SparkNotStarted.refused(java_error(str(error))) from error
    return spark


def _is_local(master: str | None) -> bool:
    """Whether workers will run on this machine; spark-submit, which leaves a gateway, may have been told otherwise."""
    return "PYSPARK_GATEWAY_PORT" not in os.environ if master is None else master.startswith("local")


def register(spark: SparkSession) -> None:
    """Make `format("barnabas")` known to a session that was made elsewhere, by `newSession()` too.

    Spark looks in the active session whether the name is taken, whichever session it registers for: so this one is
    made the active one meanwhile. A session of Spark Connect has no such neighbours, nor a plan that can be looked at:
    there, streams commit their progress themselves.
    """
    from barnabas.pipelines.spark.source import BarnabasSource, ListenedSource

    if not hasattr(spark, "_jsparkSession"):
        spark.dataSource.register(BarnabasSource)
        return
    listen(spark)
    sessions = spark.sparkContext._jvm.org.apache.spark.sql.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        spark.dataSource.register(ListenedSource)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
