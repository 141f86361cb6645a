"""A driver to be killed: one topic into a table of every format, into another topic, and into tables of a pipeline.

python -m tests.pipelines.killed_driver BOOTSTRAP SOURCE TARGET FOLDER MASTER

All of it is in one Spark session, and goes on for as long as that lives. A load that failed ends it; queries are looked
after as in `barnabas pipeline run`. Consumer groups, named after the targets, show how far each of them is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.pipelines import load, spark_session
from barnabas.pipelines.runner.running import run_pipelines
from barnabas.pipelines.spec import Pipeline, SqlStep, TableSink, TopicSink, TopicSource, Watermark
from barnabas.pipelines.tables.formats import FORMATS
from tests.support.spark import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 2000
"""Offsets in a commit at most, so that a kill finds one under way."""
EVERY = 2.0
"""Seconds between looks of a load: without a pause, three of them leave nothing of two cores for the queries."""
GROUPS = (*(f"load.{kind}" for kind in FORMATS), "copy.topic", "tables.each", "tables.windows")
PARTITION_BY = {"iceberg": ("_partition",)}
KEEP_SNAPSHOTS = {"iceberg": 10}
WINDOW = 500
"""How many numbers are counted together."""
UNPLACED_EVERY = 499
"""Of so many numbers, the table of the pipeline has no place for the first; of four windows, none for the second."""
LATENESS = 1000
"""How far a number may be behind others and still be counted."""
QUIET: dict[str, object] = {"spark.ui.showConsoleProgress": False, "spark.sql.shuffle.partitions": 1}


def main(bootstrap: str, source: str, target: str, folder: str, master: str) -> None:
    """Load and copy for ever."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("barnabas").setLevel(logging.INFO)
    spark = spark_session("numbers", master=master, config=SETTINGS | QUIET)
    jobs: list[Callable[[], object]] = [
        partial(
            load,
            source,
            str(Path(folder) / f"numbers_{kind}"),
            name=f"load.{kind}",
            format=kind,
            bootstrap_servers=bootstrap,
            decode="json",
            partition_by=PARTITION_BY.get(kind, ()),
            keep_snapshots=KEEP_SNAPSHOTS.get(kind),
            every=EVERY,
            max_offsets_per_commit=BATCH,
            spark=spark,
        )
        for kind in FORMATS
    ]
    pipelines = [copying(bootstrap, source, target, Path(folder)), counting(bootstrap, source, Path(folder))]
    jobs.append(partial(run_pipelines, pipelines, spark=spark))
    threads = [threading.Thread(target=or_exit, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    print("running", flush=True)
    for thread in threads:
        thread.join()


def copying(bootstrap: str, source: str, target: str, folder: Path) -> Pipeline:
    """Records of one topic to another, each to the partition that it has, so that several tasks write at once."""
    return Pipeline(
        name="copy",
        kafka={"bootstrap.servers": bootstrap},
        trigger="200ms",
        checkpoints=str(folder / "checkpoints"),
        sources=[TopicSource(name="numbers", topics=[source], options={"maxOffsetsPerTrigger": str(BATCH)})],
        sinks=[TopicSink(name="topic", reads="numbers", topic=target, encode="raw")],
    )


def counting(bootstrap: str, source: str, folder: Path) -> Pipeline:
    """Numbers into a table that is kept by offsets, and counts of them into one that is kept by batches, with state.

    Neither has a place for all: they are partitioned by what is too long now and then for the name of a folder.
    """
    place = "repeat('x', if({}, 300, 1)) AS place"
    count = f"""
        SELECT unix_seconds(window.start) AS first, count(*) AS count, sum(n) AS sum,
            {place.format(f"unix_seconds(window.start) % {4 * WINDOW} = {WINDOW}")}
        FROM timed GROUP BY window(at, '{WINDOW} seconds')
    """
    lateness = Watermark(column="at", delay=f"{LATENESS} seconds")
    return Pipeline(
        name="tables",
        kafka={"bootstrap.servers": bootstrap},
        trigger="1s",
        checkpoints=str(folder / "checkpoints"),
        sources=[
            TopicSource(
                name="numbers",
                topics=[source],
                decode="json",
                schema="n BIGINT",
                bad="drop",
                options={"maxOffsetsPerTrigger": str(BATCH)},
            )
        ],
        steps=[
            SqlStep(name="placed", sql=f"SELECT n, {place.format(f'n % {UNPLACED_EVERY} = 0')} FROM numbers"),
            SqlStep(name="timed", sql="SELECT n, timestamp_seconds(n) AS at FROM numbers", watermark=lateness),
            SqlStep(name="counted", sql=count),
        ],
        sinks=[
            TableSink(name=name, reads=view, table=str(folder / name), format=kind, partition_by=["place"])
            for name, view, kind in (("each", "placed", "parquet"), ("windows", "counted", "delta"))
        ],
    )


def or_exit(job: Callable[[], object]) -> None:
    """Run a job; if it fails, the whole driver does, and whoever watches it starts another."""
    try:
        job()
    except Exception:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
