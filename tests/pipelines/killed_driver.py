"""A driver to be killed: one topic into a table of every format and into another topic, in one Spark session.

python -m tests.pipelines.killed_driver BOOTSTRAP SOURCE TARGET FOLDER MASTER

It goes on for as long as it lives. A load that failed ends it; the query into the topic is looked after as in
`barnabas pipeline run`. Consumer groups, named after the targets, show how far each of them is.
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
from barnabas.pipelines.spec import Pipeline, TopicSink, TopicSource
from barnabas.pipelines.tables.opening import FORMATS
from tests.support.spark import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 3000
"""Offsets in a commit at most, so that a kill finds one under way."""
EVERY = 1.0
"""Seconds between looks of a load: without a pause, three of them leave nothing of two cores for the query."""
QUIET: dict[str, object] = {"spark.ui.showConsoleProgress": False}


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
            every=EVERY,
            max_offsets_per_commit=BATCH,
            spark=spark,
        )
        for kind in FORMATS
    ]
    jobs.append(partial(run_pipelines, [copying(bootstrap, source, target, Path(folder))], spark=spark))
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


def or_exit(job: Callable[[], object]) -> None:
    """Run a job; if it fails, the whole driver does, and whoever watches it starts another."""
    try:
        job()
    except Exception:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
