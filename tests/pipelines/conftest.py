"""One Spark session for all tests of a process: it takes seconds to start, a `newSession()` of it a fraction of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines import register, spark_session
from tests.support.jars import newest_spark_connector
from tests.support.spark import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """A broker that compacts within moments."""
    return {"log.cleaner.backoff.ms": 100}


@pytest.fixture(scope="session")
def spark_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process, with two threads for tasks; Spark's own Kafka source is in it for comparison."""
    folder = tmp_path_factory.mktemp("spark")
    jars = ",".join(map(str, newest_spark_connector().glob("*.jar")))
    own = {"spark.sql.warehouse.dir": folder, "spark.jars": jars}
    spark = spark_session("tests", master="local[2,3]", config=SETTINGS | own)
    yield spark
    spark.stop()


@pytest.fixture
def spark(spark_process: SparkSession) -> SparkSession:
    """A session of this test's own: its settings and its tables are seen by no other."""
    session = spark_process.newSession()
    register(session)
    return session
