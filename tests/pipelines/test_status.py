"""What a query reports of a batch arrives in the topic of metrics and in its group, and `status` finds it there."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from barnabas.pipelines.runner.listener import BatchListener
from barnabas.pipelines.runner.status import QueryStatus, statuses
from barnabas.pipelines.spark.cluster import ClusterView
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
    kafka.send(metrics, "this is no report")
    with ClusterView(pipeline.kafka) as cluster:
        listener = BatchListener(pipeline.kafka, metrics, cluster, "orders.revenue")
        for batch, minute, end in ((2, 59, 4), (3, 60, 7)):
            at = (datetime(2026, 1, 31, 9, tzinfo=UTC) + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            source = {"endOffset": {topic: {"0": 0, "1": end}}, "latestOffset": {topic: {"0": 0, "1": end + 50}}}
            listener.onQueryProgress(progress(batchId=batch, timestamp=at, sources=[source]))
        listener.close()
    assert statuses(pipeline) == [QueryStatus("orders.revenue", 3, METRICS), QueryStatus("orders.others", None, None)]
