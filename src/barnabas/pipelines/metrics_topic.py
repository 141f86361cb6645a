"""The topic in which pipelines and loads report: a JSON record for every batch, keyed by the query.

It has a name by default, so that the console finds reports without anything being configured, and is made with a week
of retention when it is not there. A report that cannot be sent is no reason to stop: the log says so, and not again
while the reason stays the same.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.admin.admin import Admin
from barnabas.clients.producer.producer import Producer
from barnabas.model.base_error import BarnabasError
from barnabas.model.internal_topics import PIPELINE_METRICS
from barnabas.pipelines.spark.cluster import CLIENT_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.pipelines.runner.metrics import BatchMetrics

DEFAULT: Final = PIPELINE_METRICS
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
ADMIN_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 10.0

log = logging.getLogger("barnabas.pipelines.metrics")


class MetricsTopic:
    """Reports of one query; nothing is opened before the first is due. Without a topic there are none."""

    def __init__(self, kafka: Mapping[str, object], topic: str | None) -> None:
        self._topic = topic or None
        self._config = {name: value for name, value in kafka.items() if name not in CLIENT_ONLY}
        self._servers = str(self._config.pop("bootstrap.servers", ""))
        self._producer: Producer[Any, Any] | None = None
        self._reason: str | None = None
        """Why the last report could not be sent."""

    def open(self) -> None:
        """Open a producer for the first batch, while that is still worked on.

        librdkafka often takes half a second to get its first producer id, and `close` waits for the report.
        """
        with self._warning_of("The next metrics"):
            self._opened_producer()

    def send(self, metrics: BatchMetrics, **about: Any) -> None:
        """Report a batch; `about` says more of the query than its figures."""
        with self._warning_of(f"The metrics of batch {metrics.batch}"):
            producer = self._opened_producer()
            if producer is not None and self._topic is not None:
                report = {**{name: getattr(metrics, name) for name in metrics.__slots__}, **about}
                producer.send(self._topic, json.dumps(report), key=metrics.query)

    def close(self) -> None:
        """Send what waits; what cannot be sent is in the log."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.close(CLOSE_SECONDS)
        except BarnabasError as error:
            log.warning("The last metrics were not sent to the topic %s: %s", self._topic, error)

    @contextmanager
    def _warning_of(self, what: str) -> Iterator[None]:
        """Log what the block cannot send. A topic that nobody has named is not tried again."""
        try:
            yield
            self._reason = None
        except BarnabasError as error:
            before, self._reason = self._reason, str(error)
            level = logging.DEBUG if self._reason == before else logging.WARNING
            log.log(level, "%s cannot be sent to the topic %s: %s", what, self._topic, error)
            if self._topic == DEFAULT and self._producer is None:
                self._topic = None

    def _opened_producer(self) -> Producer[Any, Any] | None:
        """The producer, opened if it is not; None without a topic."""
        if self._producer is None and self._topic is not None:
            self._producer = self._open(self._topic)
        return self._producer

    def _open(self, topic: str) -> Producer[Any, Any]:
        if topic == DEFAULT:
            with Admin(self._servers, timeout=ADMIN_SECONDS, config=self._config) as admin:
                admin.create_topic(topic, 1, configs={"retention.ms": str(RETENTION_MS)}, exist_ok=True)
        return Producer(self._servers, when_full="discard", config=self._config)
