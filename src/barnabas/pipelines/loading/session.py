"""The Spark session of a load: the caller's, or one that starts with the first records and stops with the load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from barnabas.pipelines.spark.quiet import QUIET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

SPARK: Final[Mapping[str, object]] = {
    **QUIET,
    "spark.ui.enabled": False,
    "spark.driver.memory": "512m",
}
"""Spark's settings for a session of a load: rows never reach the JVM, so it needs little memory."""
ALONE: Final[Mapping[str, object]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": False,
}
"""Spark's settings for a session on this machine, which no other machine has to reach: Spark's UI would listen on all
addresses."""
MASTER: Final = "local[*,3]"


class LoadSession:
    """The session of a load. One that is given is left running; another one is started by `get`, and stopped."""

    def __init__(
        self,
        given: SparkSession | None,
        pipeline: str,
        *,
        master: str | None,
        config: Mapping[str, object] | None,
        verbose: bool,
    ) -> None:
        self._spark = given
        self._is_given = given is not None
        self._pipeline = pipeline
        self._master = master or MASTER
        self._config = config or {}
        self._verbose = verbose

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None and not self._is_given:
            self._spark.stop()

    def get(self) -> SparkSession:
        """The session; the first call starts Spark, unless a session was given."""
        if self._spark is None:
            self._spark = self._start()
        return self._spark

    def cancel_tasks(self) -> None:
        """Cancel the tasks that run now."""
        if self._spark is not None:
            self._spark.sparkContext.cancelAllJobs()

    def _start(self) -> SparkSession:
        from barnabas.pipelines.spark.session import spark_session

        alone = ALONE if self._master.startswith("local") else {}
        config = {**SPARK, **alone, **self._config}
        return spark_session(self._pipeline, master=self._master, config=config, verbose=self._verbose)
