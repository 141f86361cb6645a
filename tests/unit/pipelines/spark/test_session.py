"""How a session gets to know the source."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from barnabas.pipelines.errors import SparkNotStarted
from barnabas.pipelines.spark import session as sessions
from barnabas.pipelines.spark.quiet import QUIET
from barnabas.pipelines.spark.session import register, spark_session
from barnabas.pipelines.spark.source import BarnabasSource


def test_a_session_without_a_jvm_is_told_of_the_source() -> None:
    """As one of Spark Connect, which has neither a context nor a JVM in this process."""
    known: list[object] = []
    session: Any = SimpleNamespace(dataSource=SimpleNamespace(register=known.append))
    register(session)
    assert known == [BarnabasSource]


@pytest.mark.parametrize(
    ("config", "before", "python"),
    [
        ({}, None, sys.executable),
        ({}, "/opt/python", "/opt/python"),
        ({"spark.pyspark.python": "./env/bin/python"}, None, "./env/bin/python"),
        ({"spark.pyspark.python": "./env/bin/python"}, "/opt/python", "./env/bin/python"),
    ],
)
def test_workers_of_a_cluster_run_the_python_that_was_named_or_this_one(
    config: dict[str, object], before: str | None, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", before or "")
    if before is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(sessions, "SparkSession", MagicMock())
    monkeypatch.setattr(sessions, "register", MagicMock())
    spark_session(master="yarn", config=config)
    assert os.environ["PYSPARK_PYTHON"] == python


class JavaError(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """What py4j raises where Java has thrown, without a Java process to ask."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        return (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": org.apache.spark.SparkIllegalArgumentException: Executor memory 1 must be at least 471859200.\n"
            "\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:511)\n"
        )


class SqlError(CapturedException):
    """What PySpark makes of an error of Spark's SQL."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        return (
            "[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'many' in the config \"spark.sql.shuffle.partitions\" is "
            "invalid. It should be a/an 'int' value. SQLSTATE: 22022\n\nJVM stacktrace:\n\tat org.apache.spark..."
        )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (JavaError(), "org.apache.spark.SparkIllegalArgumentException: Executor memory 1 must be at least 471859200"),
        (
            SqlError(),
            "[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'many' in the config \"spark.sql.shuffle.partitions\" is "
            "invalid. It should be a/an 'int' value. SQLSTATE: 22022",
        ),
    ],
)
@pytest.mark.parametrize("when", ["the session is made", "the source is registered"])
def test_settings_that_spark_refuses_are_told_in_one_line(
    error: Exception, reason: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    spark, registering = MagicMock(), MagicMock()
    failing = spark.builder.config.return_value.getOrCreate if when == "the session is made" else registering
    failing.side_effect = error
    monkeypatch.setattr(sessions, "SparkSession", spark)
    monkeypatch.setattr(sessions, "register", registering)
    with pytest.raises(SparkNotStarted) as told:
        spark_session(master="yarn", config={"spark.executor.memory": 1})
    assert str(told.value) == (f"Spark could not start: {reason}. Check the master and the settings that it was given.")


def test_the_file_is_there_that_keeps_spark_quiet() -> None:
    """Java says nothing of one that is missing but that it has none, and Spark then writes its own lines."""
    named = str(QUIET["spark.driver.extraJavaOptions"]).removeprefix("-Dlog4j2.configurationFile=")
    assert "rootLogger.level = error" in Path(named).read_text()
