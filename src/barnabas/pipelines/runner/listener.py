"""Reports every batch: a line in the log, a JSON record in the topic of metrics, how far it came in a consumer group.

Spark tells of a batch as soon as it is done, so the group has the last one too, however a run ends. What cannot be sent
is no reason to stop: a warning says so, and the log has the figures.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.pipelines.metrics_topic import MetricsTopic
from barnabas.pipelines.runner.metrics import batch_metrics
from barnabas.pipelines.spark.group_progress import GroupProgress, read_upto

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from barnabas.pipelines.spark.cluster import ClusterView

LAST_SECONDS: Final = 10.0

log = logging.getLogger("barnabas.pipelines.metrics")


class BatchListener(StreamingQueryListener):
    """Reports the batches of one query."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str | None,
        cluster: ClusterView,
        group: str,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """`about` says in reports what the query reads and writes."""
        self._topic = MetricsTopic(kafka, topic)
        self._about = dict(about or {})
        self._progress = GroupProgress(group, lambda: cluster)
        self._ended = threading.Event()
        self._notes: dict[int, Mapping[str, Any]] = {}

    def note(self, batch: int, more: Mapping[str, Any]) -> None:
        """What the report of a batch has beside Spark's figures; told before Spark tells of the batch."""
        self._notes = {batch: more}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to report: there was no batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Know that no batch will follow."""
        self._ended.set()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report a batch."""
        progress = json.loads(event.progress.json)
        metrics = batch_metrics(progress)
        log.info("batch %s", metrics.line())
        self._progress.show(read_upto(progress["sources"]))
        self._topic.send(metrics, **self._about, **self._notes.pop(metrics.batch, {}))

    def wait_for_last(self) -> None:
        """Wait until the last batch of a query that has ended was reported: Spark tells of it a little later."""
        self._ended.wait(LAST_SECONDS)

    def close(self) -> None:
        """Send what waits; what cannot be sent is in the log."""
        self._progress.retry(LAST_SECONDS)
        self._topic.close()
