"""Spark for tests: settings that are small, quiet and on this machine alone, and streams that tests wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from barnabas.testing.kafka import KafkaForTest

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What a JVM is told that lives for a minute: code that is compiled once, quickly, and one thread for the garbage."""

SETTINGS: Final[dict[str, object]] = {
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
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


SLOW_START: Final = "Python worker failed to connect back"
"""Spark gives each Python process ten seconds to start, and no setting changes that; a busy machine takes more."""


class Running:
    """A stream that is started again, from its checkpoint, while Spark could not start Python in time."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self.query = start()

    def finish(self, seconds: float = 100) -> None:
        """Wait until the stream has ended by itself; raises what it failed with."""
        wait_until(self._ended, "the end of the stream", seconds, every=0.1)

    def check(self) -> None:
        """Raise what the stream failed with, if it did."""
        error = self.query.exception()
        if error is not None:
            if SLOW_START not in str(error):
                raise error
            self.query = self._start()

    def _ended(self) -> bool:
        query, ended = self.query, not self.query.isActive
        self.check()
        return ended and self.query is query


class Collected:
    """A stream whose rows are kept in this process, batch by batch; ends with the block."""

    def __init__(self, frame: DataFrame, checkpoint: Path, **trigger: Any) -> None:
        self.batches: list[tuple[int, list[Any]]] = []
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(checkpoint))
        self._running = Running((writer.trigger(**trigger) if trigger else writer).start)
        self.finish = self._running.finish

    def __enter__(self) -> Collected:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.query.stop()

    def _keep(self, frame: DataFrame, number: int) -> None:
        self.batches.append((number, frame.collect()))

    @property
    def values(self) -> list[bytes]:
        """The values of all rows, in the order of batches."""
        return [bytes(row.value) for _, rows in self.batches for row in rows]

    def wait_for_batch(self) -> None:
        """Wait until a batch has come, whatever is in it."""
        wait_until(self._has_batch, "a batch", 100)

    def wait_for(self, *values: bytes) -> None:
        """Wait until exactly these values have come, in any order."""
        wait_until(lambda: self._has(values), f"{values}", 100)

    def _has_batch(self) -> bool:
        self._running.check()
        return bool(self.batches)

    def _has(self, values: tuple[bytes, ...]) -> bool:
        self._running.check()
        return sorted(self.values) == sorted(values)
