"""Spark for tests: settings that are small, quiet and on this machine alone, and streams that tests wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from barnabas.testing.kafka import KafkaForTest

SETTINGS: Final[dict[str, object]] = {
    "spark.ui.enabled": False,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}


def texts(options: dict[str, object]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def read_batch(spark: SparkSession, kafka: KafkaForTest, **options: object) -> DataFrame:
    """What `spark.read` gives with these options."""
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.options(**texts(options)).load()


def read_stream(spark: SparkSession, kafka: KafkaForTest, **options: object) -> DataFrame:
    """What `spark.readStream` gives with these options."""
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.options(**texts(options)).load()


class Collected:
    """A stream whose rows are kept in this process, batch by batch; ends with the block."""

    def __init__(self, frame: DataFrame, checkpoint: Path, **trigger: Any) -> None:
        self.batches: list[tuple[int, list[Any]]] = []
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = writer.trigger(**trigger).start() if trigger else writer.start()

    def __enter__(self) -> Collected:
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()

    def _keep(self, frame: DataFrame, number: int) -> None:
        self.batches.append((number, frame.collect()))

    @property
    def values(self) -> list[bytes]:
        """The values of all rows, in the order of batches."""
        return [bytes(row.value) for _, rows in self.batches for row in rows]

    def wait_for(self, *values: bytes) -> None:
        """Wait until exactly these values have come, in any order."""
        wait_until(lambda: self._failure() or sorted(self.values) == sorted(values), f"{values}", 60)
        assert self._failure() is None, self._failure()

    def finish(self) -> None:
        """Wait until the stream has ended by itself."""
        assert self.query.awaitTermination(100), "the stream did not end"

    def _failure(self) -> object:
        return self.query.exception()
