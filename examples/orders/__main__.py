"""`make demo`: a day of orders from a topic to a picture, with a broker of its own. Needs Java 17+ beside pip."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import Final

from barnabas.cli.pipeline.init import write_example
from barnabas.pipelines.runner.running import run_pipelines
from barnabas.testing.broker import Broker
from examples.orders.job import PICTURE, TABLE, clear, load_customers, pipelines, produce
from examples.orders.picture import draw

QUIET: Final = {
    "spark.ui.enabled": False,
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": False,
    "spark.sql.session.timeZone": "UTC",
}


def main() -> None:
    """Produce, run the pipeline, draw, and say what was done."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where everything goes (./demo)")
    parser.add_argument("--orders", type=int, default=50_000, help="how many orders (50,000)")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    clear(folder)
    write_example(folder)
    print(f"1. the pipeline is in {folder / 'pipeline.toml'}")
    with Broker() as broker:
        began = time.monotonic()
        produce(broker.bootstrap_servers, arguments.orders, load_customers(folder))
        print(f"2. {arguments.orders:,} orders in a topic of {broker.bootstrap_servers}, {since(began)}")
        began = time.monotonic()
        run_pipelines(
            pipelines(folder, broker.bootstrap_servers),
            master="local[2,3]",
            config=QUIET,
        )
        print(f"3. joined, summed up by hour and loaded to Delta in {folder / 'tables'}, {since(began)}")
    draw(folder / TABLE, folder / PICTURE)
    print(f"4. the picture: {folder / PICTURE}")


def since(began: float) -> str:
    """How long something took."""
    return f"{time.monotonic() - began:.1f} s"


if __name__ == "__main__":
    main()
