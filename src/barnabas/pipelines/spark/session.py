"""A Spark session that knows Barnabas: with the source registered, and started as `context` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from barnabas.pipelines.spark.context import prepare_start, refusals_in_one_line
from barnabas.pipelines.spark.progress_listener import listen

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    settings = prepare_start(name, master, config, verbose=verbose)
    with refusals_in_one_line():
        spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
        register(spark)  # the first thing that looks at the settings of SQL
    return spark


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
