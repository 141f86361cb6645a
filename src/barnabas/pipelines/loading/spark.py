"""Spark as a load uses it: that of the caller, or one that starts with the first records and stops with the load.

A load has no SQL in it, so what it starts itself is a context and no session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from barnabas.pipelines.spark.quiet import QUIET, SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SPARK: Final[Mapping[str, object]] = {
    **QUIET,
    "spark.driver.extraJavaOptions": f"{QUIET['spark.driver.extraJavaOptions']} {SHORT_LIVED}",
    "spark.ui.enabled": False,
    "spark.driver.memory": "512m",
}
"""Spark's settings for a load: rows never reach the JVM, so it needs little memory and has little to do."""
ALONE: Final[Mapping[str, object]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": False,
}
"""Spark's settings for a session on this machine, which no other machine has to reach: Spark's UI would listen on all
addresses."""
MASTER: Final = "local[*,3]"


class LoadSpark:
    """Spark for a load. That of a given session is left running; another one is started by `get`, and stopped."""

    def __init__(
        self,
        given: SparkSession | None,
        pipeline: str,
        *,
        master: str | None,
        config: Mapping[str, object] | None,
        verbose: bool,
    ) -> None:
        self._context = None if given is None else given.sparkContext
        self._is_given = given is not None
        self._pipeline = pipeline
        self._master = master or MASTER
        self._config = config or {}
        self._verbose = verbose

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._context is not None and not self._is_given:
            from barnabas.pipelines.spark.context import stop_spark

            stop_spark(self._context)

    def get(self) -> SparkContext:
        """Spark's context; the first call starts Spark, unless a session was given."""
        if self._context is None:
            self._context = self._start()
        return self._context

    def cancel_tasks(self) -> None:
        """Cancel the tasks that run now."""
        if self._context is not None:
            self._context.cancelAllJobs()

    def _start(self) -> SparkContext:
        from barnabas.pipelines.spark.context import spark_context

        alone = ALONE if self._master.startswith("local") else {}
        config = {**SPARK, **alone, **self._config}
        return spark_context(self._pipeline, master=self._master, config=config, verbose=self._verbose)
