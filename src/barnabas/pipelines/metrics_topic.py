"""The topic in which pipelines and loads report: a JSON record for every batch, keyed by the query.

It has a name by default, so that the console finds reports without anything being configured, and is made with a week
of retention when it is not there. A report that cannot be sent is no reason to stop: the log says so once.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.admin.admin import Admin
from barnabas.clients.producer.producer import Producer
from barnabas.model.base_error import BarnabasError
from barnabas.model.internal_topics import PIPELINE_METRICS
from barnabas.pipelines.spark.cluster import CLIENT_ONLY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.pipelines.runner.metrics import BatchMetrics

DEFAULT: Final = PIPELINE_METRICS
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
ADMIN_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 10.0

log = logging.getLogger("barnabas.pipelines.metrics")


class MetricsTopic:
    """Reports of one query; nothing is opened before the first. Without a topic there are none."""

    def __init__(self, kafka: Mapping[str, object], topic: str | None) -> None:
        self._topic = topic or None
        self._config = {name: value for name, value in kafka.items() if name not in CLIENT_ONLY}
        self._servers = str(self._config.pop("bootstrap.servers", ""))
        self._producer: Producer[Any, Any] | None = None

    def send(self, metrics: BatchMetrics, **about: Any) -> None:
        """Report a batch; `about` says more of the query than its figures."""
        if self._topic is None:
            return
        try:
            if self._producer is None:
                self._producer = self._open(self._topic)
            report = {**{name: getattr(metrics, name) for name in metrics.__slots__}, **about}
            self._producer.send(self._topic, json.dumps(report), key=metrics.query)
        except BarnabasError as error:
            log.warning("The metrics of batch %s were not sent to the topic %s: %s", metrics.batch, self._topic, error)
            if self._topic == DEFAULT and self._producer is None:
                self._topic = None  # nobody has asked for it, so it is not told again

    def close(self) -> None:
        """Send what waits; what cannot be sent is in the log."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.close(CLOSE_SECONDS)
        except BarnabasError as error:
            log.warning("The last metrics were not sent to the topic %s: %s", self._topic, error)

    def _open(self, topic: str) -> Producer[Any, Any]:
        if topic == DEFAULT:
            with Admin(self._servers, timeout=ADMIN_SECONDS, config=self._config) as admin:
                admin.create_topic(topic, 1, configs={"retention.ms": str(RETENTION_MS)}, exist_ok=True)
        return Producer(self._servers, when_full="discard", config=self._config)
