"""A job in processes of its own, for tests that kill them: numbers from one topic to another, exactly once.

A query that failed is started again from its checkpoint, as a supervisor would; only a dead driver stays dead.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from barnabas.pipelines import spark_session
from tests.support.spark import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(servers: str, source: str, target: str, checkpoint: str) -> None:
    """Copy for ever."""
    spark = spark_session("sink", master="local[2]", config=SETTINGS)
    print("running", flush=True)
    while True:
        try:
            copy(spark, servers, source, target, checkpoint)
        except Exception as error:
            print(f"failed: {str(error)[:1500]}", flush=True)


def copy(spark: SparkSession, servers: str, source: str, target: str, checkpoint: str) -> None:
    """Copy until something fails. Two tasks at a time, so that a kill may find one done and the other not."""
    frame = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
