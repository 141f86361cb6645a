"""Spark Declarative Pipelines over a topic: the example's project, run by Spark's own program."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from examples.declarative.project import copy, run

from barnabas.testing.broker import Broker
from barnabas.testing.kafka import Kafka
from tests.support.spark import SHORT_LIVED

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

QUICK = ("--conf", f"spark.driver.extraJavaOptions={SHORT_LIVED}", "--conf", "spark.ui.enabled=false")


@pytest.mark.timeout(400)
def test_a_topic_becomes_a_table_and_the_next_run_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    spent: defaultdict[int, float] = defaultdict(float)
    with Broker() as broker, Kafka(broker) as kafka:
        kafka.admin.create_topic("orders", 2)
        kafka.send("orders", "this is no order")
        copy(tmp_path, broker.bootstrap_servers)
        for numbers in (range(20), range(20, 30)):
            for number in numbers:
                kafka.send("orders", {"id": number, "customer": number % 3, "amount": number / 4})
                spent[number % 3] += number / 4
            run(tmp_path, *QUICK)
            assert sorted(rows(tmp_path, "orders").column("id").to_pylist()) == list(range(numbers.stop))
            found = rows(tmp_path, "spent").to_pylist()
            assert {row["customer"]: row["spent"] for row in found} == spent


def rows(folder: Path, table: str) -> pa.Table:
    return ds.dataset(folder / "spark-warehouse" / table).to_table()
