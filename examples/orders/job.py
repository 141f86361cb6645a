"""The parts of the demo: customers, orders in a topic, the pipelines to run."""

from __future__ import annotations

import csv
import shutil
from typing import TYPE_CHECKING, Final

from barnabas import Producer
from barnabas.cli.pipeline.init import EXAMPLE_FILES
from barnabas.clients import Admin, NewTopic
from barnabas.pipelines.spec import Pipeline, load_pipelines
from barnabas.pipelines.spec.model import AVAILABLE_NOW, with_changes
from examples.orders.day import orders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TABLE: Final = "tables/revenue"
PICTURE: Final = "revenue.png"
TOPIC: Final = "orders"
PARTITIONS: Final = 1
"""One, so that the orders come nearly in order of time: with more, a watermark would have to wait for the slowest."""

MARK: Final = ".demo"
"""A file by which a folder is known as one of a demo."""
MADE: Final = frozenset({*EXAMPLE_FILES, MARK, PICTURE, "checkpoints", "tables"})


def clear(folder: Path) -> None:
    """Make the folder, empty: what an earlier demo left is removed, and whatever else is there is left alone."""
    there = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if there and (MARK not in there or not there <= MADE):
        raise SystemExit(f"{folder} holds what no demo made, so it is left as it is: name another folder.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def load_customers(folder: Path) -> dict[int, str]:
    """The country of every customer that is known."""
    with (folder / "customers.csv").open(encoding="utf-8") as file:
        return {int(row["id"]): row["country"] for row in csv.DictReader(file)}


def produce(servers: str, count: int, countries: Mapping[int, str]) -> None:
    """Make the topic, and send a day of orders to it; one of them is unreadable."""
    with Admin(servers) as admin:
        admin.create_topic(NewTopic(name=TOPIC, partitions=PARTITIONS))
    with Producer(servers) as producer:
        producer.send(TOPIC, "this is no order")
        for value in orders(count, countries):
            producer.send(TOPIC, value)


def pipelines(folder: Path, servers: str) -> list[Pipeline]:
    """The pipelines of the folder, to run once against a broker."""
    found = load_pipelines([folder / "pipeline.toml"])
    return [with_changes(each, trigger=AVAILABLE_NOW, kafka={"bootstrap.servers": servers}) for each in found]
