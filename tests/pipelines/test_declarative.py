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


@pytest.mark.timeout(400)
def test_a_topic_becomes_a_table_and_a_view_of_it(tmp_path: Path) -> None:
    spent: defaultdict[int, float] = defaultdict(float)
    with Broker() as broker, Kafka(broker) as kafka:
        kafka.admin.create_topic("orders", 2)
        kafka.send("orders", "this is no order")
        for number in range(20):
            kafka.send("orders", {"id": number, "customer": number % 3, "amount": number / 4})
            spent[number % 3] += number / 4
        copy(tmp_path, broker.bootstrap_servers)
        quick = f"spark.driver.extraJavaOptions={SHORT_LIVED}"
        run(tmp_path, "--conf", quick, "--conf", "spark.ui.enabled=false")
    tables = tmp_path / "spark-warehouse"
    assert sorted(ds.dataset(tables / "orders").to_table().column("id").to_pylist()) == list(range(20))
    found = ds.dataset(tables / "spent").to_table().to_pylist()
    assert {row["customer"]: row["spent"] for row in found} == spent
