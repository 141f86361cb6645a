"""One Spark process that does one job whenever it is told to, and says how long it took. Run by `bench.clients.spark`.

Words: who (connector or barnabas), bootstrap servers, topic, what (count, latency, parquet, delta, iceberg), decode
(bytes or json), folder, jars. Each line of standard input is a run, answered by a line of JSON. Whatever was written is
counted after the clock has stopped, by the library that tables of this format are read with.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

DDL = "id BIGINT, city STRING, price DOUBLE, paid BOOLEAN, note STRING"
MASTER = "local[2]"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}
WARM_TRIGGERS = 20
TRIGGERS = 60
"""Triggers that are counted, after those that only warm a new query up; Spark remembers a hundred."""
TRIGGER_PAUSE = 0.2
"""Between two records, so that each has a trigger of its own."""
TRIGGERS_DEADLINE = 300
COLUMNS = ("topic", "partition", "offset", "timestamp", "key")


def main(who: str, servers: str, topic: str, what: str, decode: str, folder: str, jars: str) -> None:
    """Start Spark, say `ready`, then run on request."""
    spark = our_session() if who == "barnabas" else plain_session(jars)
    print("ready", flush=True)
    for _ in sys.stdin:
        Path(folder).mkdir()
        place = f"{folder}/table"
        records: int | None
        started = time.perf_counter()
        if what == "latency":
            records, seconds = TRIGGERS, trigger_seconds(spark, who, servers, topic, folder)
        else:
            records = run(spark, who, servers, topic, what, decode, place)
            seconds = time.perf_counter() - started
        if records is None:
            records = rows_of(spark, "parquet" if who == "connector" else what, Path(place))
        shutil.rmtree(folder)  # at once, so that the other's turn does not pay for writing it to the disk
        print(json.dumps({"seconds": seconds, "records": records}), flush=True)
    spark.stop()


def our_session() -> Any:
    """A session as the documentation has it made."""
    from barnabas.pipelines import spark_session

    return spark_session(master=MASTER, config=SETTINGS)


def plain_session(jars: str) -> Any:
    """Spark's own, with the connector."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(MASTER)
    for name, value in (SETTINGS | {"spark.jars": jars}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def trigger_seconds(spark: Any, who: str, servers: str, topic: str, folder: str) -> float:
    """The median of what a stream without a pause takes from a trigger to its commit, with a record for each."""
    from confluent_kafka import Producer

    reader = spark.readStream.format("barnabas" if who == "barnabas" else "kafka")
    rows = reader.option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        producer = Producer({"bootstrap.servers": servers})
        deadline = time.monotonic() + TRIGGERS_DEADLINE
        while len(taken := busy_triggers(query)) < WARM_TRIGGERS + TRIGGERS:
            if time.monotonic() > deadline or query.exception() is not None:
                raise RuntimeError(f"{len(taken)} triggers had a record: {query.exception()}")
            producer.produce(topic, b"x" * 100)
            producer.flush()
            time.sleep(TRIGGER_PAUSE)
    finally:
        query.stop()
    return statistics.median(taken[-TRIGGERS:]) / 1000


def busy_triggers(query: Any) -> list[float]:
    """The milliseconds of each trigger that had records, of the last hundred."""
    return [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]


def run(spark: Any, who: str, servers: str, topic: str, what: str, decode: str, place: str) -> int | None:
    """Do the job once; how many records were counted, None if they are in a table now."""
    if who == "barnabas" and what != "count":
        from barnabas.pipelines import load

        load(
            topic,
            place,
            format=what,
            bootstrap_servers=servers,
            decode=decode,
            schema=DDL if decode == "json" else None,
            spark=spark,
        )
        return None
    reader = spark.read.format("barnabas" if who == "barnabas" else "kafka")
    rows = reader.option("kafka.bootstrap.servers", servers).option("subscribe", topic).load()
    if what == "count":
        counted = rows.selectExpr("count(1) AS records", "sum(length(value)) AS size").first()
        return int(counted["records"])
    if decode == "json":
        rows = rows.selectExpr(*COLUMNS, f"from_json(CAST(value AS STRING), '{DDL}') AS v").select(*COLUMNS, "v.*")
    else:
        rows = rows.select(*COLUMNS, "value")
    rows.write.parquet(place)
    return None


def rows_of(spark: Any, what: str, place: Path) -> int:
    """How many rows a new table has."""
    if what == "delta":
        from deltalake import DeltaTable

        return DeltaTable(place).count()
    if what == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{place.parent / 'iceberg.db'}")
        return catalog.load_table(("default", place.name)).scan().count()
    return int(spark.read.parquet(str(place)).count())


if __name__ == "__main__":
    main(*sys.argv[1:])
