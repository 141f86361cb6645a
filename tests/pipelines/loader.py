"""A driver to be killed: loads one topic into a table of every format, in one Spark session, for as long as it lives.

python -m tests.pipelines.loader BOOTSTRAP TOPIC FOLDER MASTER now|on
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path

from barnabas.pipelines import load, spark_session
from barnabas.pipelines.tables.opening import FORMATS
from tests.support.spark import SETTINGS


def main(bootstrap: str, topic: str, folder: str, master: str, when: str) -> None:
    spark = spark_session("loader", master=master, config=SETTINGS | {"spark.ui.showConsoleProgress": False})

    def one(kind: str) -> None:
        try:
            report = load(
                topic,
                str(Path(folder) / f"numbers_{kind}"),
                format=kind,
                bootstrap_servers=bootstrap,
                decode="json",
                every=0.2 if when == "on" else None,
                max_offsets_per_commit=3000 if when == "on" else 4_000_000,
                spark=spark,
                on_progress=lambda _: None,
            )
        except Exception:
            traceback.print_exc()
            os._exit(1)
        print("loaded", kind, report.records, flush=True)

    jobs = [threading.Thread(target=one, args=(kind,)) for kind in FORMATS]
    for job in jobs:
        job.start()
    print("loading", flush=True)
    for job in jobs:
        job.join()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
