"""One Spark session for all tests of a process: it takes seconds to start, a `newSession()` of it a fraction of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines import register, spark_session
from tests.support.spark import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process, with two threads for tasks."""
    folder = tmp_path_factory.mktemp("spark")
    spark = spark_session("tests", master="local[2,3]", config=SETTINGS | {"spark.sql.warehouse.dir": folder})
    yield spark
    spark.stop()


@pytest.fixture
def spark(spark_process: SparkSession) -> SparkSession:
    """A session of this test's own: its settings and its tables are seen by no other."""
    session = spark_process.newSession()
    register(session)
    return session
