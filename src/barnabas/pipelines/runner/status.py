"""How far queries are, asked of the broker alone: lag from their consumer groups, figures from the topic of metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.consumer.consumer import Consumer
from barnabas.pipelines.errors import TopicMissing
from barnabas.pipelines.runner.metrics import BatchMetrics
from barnabas.pipelines.spark.cluster import CLIENT_ONLY, ClusterView
from barnabas.pipelines.spark.read.offsets import between
from barnabas.pipelines.spark.read.selection import Selection
from barnabas.pipelines.spec.flows import flow_to, selection_of

if TYPE_CHECKING:
    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.spec.flows import Flow
    from barnabas.pipelines.spec.model import Pipeline

LOOK_BACK: Final = 1_000
"""How many of the newest metrics of each partition are looked at."""
TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """What is known of a query."""

    query: str
    lag: int | None
    """How many offsets are there that it has not read; None if it has never read any."""
    last: BatchMetrics | None
    """Its last batch; None if there is no topic of metrics, or nothing in it."""


def statuses(pipeline: Pipeline) -> list[QueryStatus]:
    """The status of every sink of a pipeline. Raises BrokerUnreachable."""
    with ClusterView(pipeline.kafka, timeout=TIMEOUT_SECONDS) as cluster:
        last = _last_metrics(pipeline, cluster)
        return [
            QueryStatus(query, _lag(query, flow_to(pipeline, sink), cluster), last.get(query))
            for sink in pipeline.sinks
            for query in [pipeline.query(sink)]
        ]


def _lag(group: str, flow: Flow, cluster: ClusterView) -> int | None:
    committed = cluster.committed(group)
    try:
        partitions = [each for source in flow.topics for each in cluster.partitions(selection_of(source))]
        latest = cluster.latest(dict.fromkeys(partitions))
    except TopicMissing:
        return None
    return sum(each.size for each in between(committed, latest)) if committed else None


def _last_metrics(pipeline: Pipeline, cluster: ClusterView) -> dict[str, BatchMetrics]:
    """The last figures by query. Records of other kinds in the topic are passed over."""
    if not pipeline.metrics:
        return {}
    try:
        partitions = cluster.partitions(Selection(topics=(pipeline.metrics,)))
    except TopicMissing:
        return {}
    first, end = cluster.earliest(partitions), cluster.latest(partitions)
    begin = {each: max(first[each], end[each] - LOOK_BACK) for each in partitions}
    found: dict[str, BatchMetrics] = {}
    for value in _values(pipeline, begin):
        try:
            metrics = _read(json.loads(value))
        except (ValueError, TypeError, AttributeError):
            continue
        if metrics.query not in found or metrics.at >= found[metrics.query].at:
            found[metrics.query] = metrics
    return found


def _read(report: dict[str, Any]) -> BatchMetrics:
    """The figures of a report, which may say more than them."""
    return BatchMetrics(**{name: value for name, value in report.items() if name in BatchMetrics.__slots__})


def _values(pipeline: Pipeline, begin: dict[TopicPartition, int]) -> list[bytes]:
    servers = pipeline.kafka["bootstrap.servers"]
    config = {name: value for name, value in pipeline.kafka.items() if name not in ("bootstrap.servers", *CLIENT_ONLY)}
    with Consumer(servers, config=config) as consumer:
        consumer.assign(begin)
        return [record.value for record in consumer.until_end() if record.value is not None]
