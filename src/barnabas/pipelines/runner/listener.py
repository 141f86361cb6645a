"""Reports every batch: a line in the log, a JSON record in the topic of metrics, how far it came in a consumer group.

Spark tells of a batch as soon as it is done, so the group has the last one too, however a run ends. What cannot be sent
is no reason to stop: a warning says so, and the log has the figures.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.clients.producer.producer import Producer
from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.runner.metrics import batch_metrics
from barnabas.pipelines.spark.cluster import CLIENT_ONLY
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

    def __init__(self, kafka: Mapping[str, str], topic: str | None, cluster: ClusterView, group: str) -> None:
        self._topic = topic
        self._progress = GroupProgress(group, lambda: cluster)
        self._ended = threading.Event()
        self._producer: Producer[Any, Any] | None = None
        if topic is not None:
            unwanted = ("bootstrap.servers", *CLIENT_ONLY)
            config = {name: value for name, value in kafka.items() if name not in unwanted}
            self._producer = Producer(kafka["bootstrap.servers"], when_full="discard", config=config)

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
        if self._producer is None or self._topic is None:
            return
        try:
            self._producer.send(self._topic, json.dumps(asdict(metrics)), key=metrics.query)
        except BarnabasError as error:
            log.warning("The metrics of batch %s were not sent to the topic %s: %s", metrics.batch, self._topic, error)

    def wait_for_last(self) -> None:
        """Wait until the last batch of a query that has ended was reported: Spark tells of it a little later."""
        self._ended.wait(LAST_SECONDS)

    def close(self) -> None:
        """Send what waits; what cannot be sent is in the log."""
        self._progress.retry(LAST_SECONDS)
        if self._producer is None:
            return
        try:
            self._producer.close()
        except BarnabasError as error:
            log.warning("The last metrics were not sent to the topic %s: %s", self._topic, error)
