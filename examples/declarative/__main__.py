"""Orders in a topic, Spark's own `spark-pipelines` over them, and what it made, with a broker of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.dataset as ds

from barnabas import Producer
from barnabas.testing.broker import Broker
from examples.declarative.project import copy, run
from examples.orders.day import orders

CUSTOMERS = {1: "PT", 2: "NL", 3: "IN", 4: "BR"}


def main() -> None:
    """Produce, run, show."""
    with tempfile.TemporaryDirectory() as scratch, Broker() as broker:
        folder = Path(scratch)
        with Producer(broker.bootstrap_servers) as producer:
            for value in orders(1_000, CUSTOMERS):
                producer.send("orders", value)
        copy(folder, broker.bootstrap_servers)
        run(folder)
        spent = ds.dataset(folder / "spark-warehouse" / "spent").to_table().sort_by("customer").to_pylist()
    for row in spent:
        print(f"customer {row['customer']} spent {row['spent']:.2f}")


if __name__ == "__main__":
    main()
