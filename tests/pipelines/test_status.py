"""What a query reports arrives in the topic of metrics, and `status` finds it there, and the lag in its group."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.runner.listener import MetricsListener
from barnabas.pipelines.runner.status import QueryStatus, statuses
from barnabas.pipelines.spec import Pipeline, TableSink, TopicSource
from tests.unit.pipelines.runner.test_metrics import METRICS, PROGRESS

if TYPE_CHECKING:
    from barnabas.testing.kafka import KafkaForTest


def progress(**changes: Any) -> Any:
    """The event that Spark would give to a listener."""
    return cast("Any", SimpleNamespace(progress=SimpleNamespace(json=json.dumps({**PROGRESS, **changes}))))


def test_a_query_that_was_reported_is_found_with_its_lag_and_its_last_batch(kafka: KafkaForTest) -> None:
    topic, metrics = kafka.topic(partitions=2), kafka.topic()
    pipeline = Pipeline(
        name="orders",
        kafka={"bootstrap.servers": kafka.bootstrap_servers},
        metrics=metrics,
        sources=[TopicSource(name="orders", topics=[topic])],
        sinks=[
            TableSink(name="revenue", reads="orders", table="tables/revenue"),
            TableSink(name="others", reads="orders", table="tables/others"),
        ],
    )
    assert statuses(pipeline) == [QueryStatus("orders.revenue", None, None), QueryStatus("orders.others", None, None)]

    kafka.send(topic, *(str(number) for number in range(10)), partition=1)
    kafka.admin.commit_group_offsets("orders.revenue", {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 7})
    kafka.send(metrics, "this is no report")
    listener = MetricsListener(pipeline.kafka, metrics)
    listener.onQueryProgress(progress(batchId=2, timestamp="2026-01-31T09:59:00.000Z"))
    listener.onQueryProgress(progress())
    listener.close()
    assert statuses(pipeline) == [QueryStatus("orders.revenue", 3, METRICS), QueryStatus("orders.others", None, None)]
