"""Tables and a checkpoint of Spark that an earlier tree wrote are gone on with: every record once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from barnabas.pipelines import load
from tests.support.brokers import Barnabas
from tests.support.earlier import KEEPING, committed, unpack
from tests.support.spark import Running
from tests.support.tables import content

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

NEW = [json.dumps({"codec": "none", "number": number, "partition": 0}) for number in (10, 11, 12)]


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[Barnabas]:
    """The broker of before with three more orders."""
    unpack(tmp_path)
    broker = Barnabas(tmp_path, KEEPING)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in NEW:
        producer.produce("orders", value, partition=0)
    assert producer.flush(30) == 0
    yield broker
    broker.stop()


def test_a_stream_goes_on_from_the_checkpoint_of_an_earlier_tree(
    earlier: Barnabas, spark: SparkSession, tmp_path: Path
) -> None:
    known = json.loads((tmp_path / "known.json").read_text())
    where = {"kafka.bootstrap.servers": earlier.bootstrap}
    rows = spark.readStream.format("barnabas").options(**where, subscribe="orders", startingOffsets="earliest").load()
    writer = rows.select("value").writeStream.format("barnabas").options(**where, topic="copies")
    writer = writer.option("deliveryGuarantee", "exactly-once").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    running = Running(writer.trigger(availableNow=True).start)
    running.finish()
    assert str(running.query.id) == known["query"]
    assert sorted(values(earlier, "copies")) == sorted([*known["orders"][0], *known["orders"][1], *NEW])


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_load_goes_on_where_a_table_of_an_earlier_tree_ends(
    form: str, earlier: Barnabas, spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / form)
    report = load("orders", table, bootstrap_servers=earlier.bootstrap, name="earlier", decode="json", spark=spark)
    assert report.records == len(NEW)
    found = content(form, table).to_pylist()
    assert len(found) == 103
    assert {(row["codec"], row["number"], row["partition"]) for row in found} == {
        (order["codec"], order["number"], order["partition"])
        for order in map(json.loads, [*values(earlier, "orders"), *values(earlier, "orders", 1)])
    }


def values(broker: Barnabas, topic: str, partition: int = 0) -> list[str]:
    return [str(value) for _, value in committed(broker.bootstrap, topic, partition)]
