"""What an older Spark does with topics, by our source and by its own connector. Run by `test_old_spark`.

Words: bootstrap servers, the topic to read, a folder, settings by which Spark finds the connector (JSON), and topics to
write: by our sink, by the connector as a batch, by the connector as a stream. The last line of the output is JSON with
what was found.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.errors import PySparkException

from barnabas.pipelines import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": False,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": 1,
    "spark.log.level": "ERROR",
}


def main(servers: str, source: str, folder: str, connector: str, ours: str, theirs: str, streamed: str) -> None:
    """Read and write in all ways."""
    spark = spark_session("old", master="local[2]", config=SETTINGS | json.loads(connector))
    broker = {"kafka.bootstrap.servers": servers}
    given = {**broker, "subscribe": source, "includeHeaders": "true", "startingOffsets": "earliest"}
    by_us = spark.read.format("barnabas").options(**given).load()
    by_them = spark.read.format("kafka").options(**given).load()
    order = ("partition", "offset")
    rows = by_us.orderBy(*order).collect()
    found = {
        "version": pyspark.__version__,
        "rows": len(rows),
        "same schema": by_us.schema == by_them.schema,
        "same rows": rows == by_them.orderBy(*order).collect(),
        "stream": refusal(spark, given, folder),
    }
    by_us.select("key", "value").write.format("barnabas").options(**broker, topic=ours).mode("append").save()
    by_them.select("key", "value").write.format("kafka").options(**broker, topic=theirs).save()
    stream = spark.readStream.format("kafka").options(**given).load().select("key", "value", "headers")
    copied = stream.writeStream.format("kafka").options(**broker, topic=streamed, checkpointLocation=f"{folder}/copied")
    copied.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps(found))
    spark.stop()


def refusal(spark: SparkSession, given: dict[str, Any], folder: str) -> str:
    """What a stream of ours is told, which takes a newer Spark."""
    writer = spark.readStream.format("barnabas").options(**given).load().writeStream.format("noop")
    try:
        writer.option("checkpointLocation", f"{folder}/refused").trigger(availableNow=True).start().awaitTermination()
    except PySparkException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
