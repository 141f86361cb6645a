"""How a session gets to know the source."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from barnabas.pipelines import session as sessions
from barnabas.pipelines.session import register, spark_session
from barnabas.pipelines.source import BarnabasSource


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
