"""The measurement of `barnabas producer-perf`: send records, and count what is acknowledged."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import print_json
from barnabas.cli.common.remedies import with_remedy
from barnabas.cli.perf.properties import open_perf_client
from barnabas.cli.perf.stats import ProducerStats, line_printer
from barnabas.clients.errors import ClientFailed, translated
from barnabas.clients.log_lines import ProducerLog
from barnabas.clients.producer.delivery import delivery_error, writing_error
from barnabas.clients.producer.serving import UNNAMED, FatalFailure, serve
from barnabas.model.permissions import on_transactional_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.model.base_error import BarnabasError

POLL_EVERY = 128
"""Records between two looks at what was acknowledged."""
FLUSH_SECONDS = 60.0
FLUSH_SLICE = 0.1


class ProducerRun:
    """One measurement."""

    def __init__(
        self,
        topic: str,
        properties: dict[str, Any],
        reporting_ms: int,
        warmup: int,
        *,
        metrics: bool,
        as_json: bool,
        stats: ProducerStats | None = None,
    ) -> None:
        """Where the client is one of several, `stats` takes what is counted."""
        from barnabas.clients.config import log
        from barnabas.clients.library import load_kafka

        self._topic = topic
        self._warmup = warmup
        self._transactional_id = str(properties.get("transactional.id", ""))
        self._as_json = as_json
        self._say = line_printer(as_json=as_json)
        self._stats = stats or ProducerStats(reporting_ms, say=self._say)
        self._steady: ProducerStats | None = None
        self._reporting_ms = reporting_ms
        self._error: Any = None
        self._fatal: Any = None
        """The KafkaError after which the producer was of no more use."""
        self._fatal_lines: list[str] = []
        """What librdkafka has logged of that, for an error that comes without its name."""
        self._acknowledged: list[Any] = []
        """Messages that are not counted yet."""
        self._failed = 0
        self._unacknowledged = 0
        """Records that had no outcome when they were waited for no longer."""
        self._counted_at = time.monotonic()
        """When messages were counted last: those that are not have come since."""
        kafka = load_kafka()
        self._failure = kafka.KafkaException
        message = kafka.Message
        self._value_of, self._latency_of = message.value, message.latency
        self._metrics: list[str] = []
        if metrics:
            properties = properties | {"statistics.interval.ms": 1000, "stats_cb": self._metrics.append}
        logger = ProducerLog(log, self._fatal_lines.append)
        own = {"on_delivery": self._delivered, "logger": logger}
        self._producer = open_perf_client("Producer", {**properties, **own})

    def produce(
        self, count: int, payloads: Callable[[int], bytes], throughput: float, transaction_ms: int | None
    ) -> None:
        """Send everything, no faster than asked for. Raises BarnabasError if the producer is of no more use."""
        try:
            self._produce(count, payloads, throughput, transaction_ms)
        except self._failure as failure:
            raise self._reason(failure.args[0]) from failure
        except FatalFailure as failure:
            raise self._reason(failure.error) from failure

    def _produce(
        self, count: int, payloads: Callable[[int], bytes], throughput: float, transaction_ms: int | None
    ) -> None:
        producer = self._producer
        produce, topic = producer.produce, self._topic
        full = BufferError
        if self._transactional_id:
            producer.init_transactions(FLUSH_SECONDS)
        start = time.monotonic()
        committed = start
        in_transaction = False
        for number in range(count):
            if transaction_ms is not None and not in_transaction:
                producer.begin_transaction()
                in_transaction, committed = True, time.monotonic()
            payload = payloads(number)
            while True:
                try:
                    produce(topic, payload)
                    break
                except full:
                    serve(producer.poll, 0.05)
                    self._report()
            if number % POLL_EVERY == 0:
                serve(producer.poll, 0)
                self._report()
            if throughput > 0:
                self._slow_down(start, number + 1, throughput)
            if transaction_ms is not None and (time.monotonic() - committed) * 1000 >= transaction_ms:
                producer.commit_transaction(FLUSH_SECONDS)
                in_transaction = False
        if in_transaction:
            producer.commit_transaction(FLUSH_SECONDS)

    def finish(self) -> None:
        """Wait for the last acknowledgement, and print what came of it. Raises Failed."""
        self.drain()
        if self._as_json:
            self._print_document()
        else:
            self._print_lines()
        self.raise_failures()

    def drain(self) -> None:
        """Wait for the last acknowledgement."""
        deadline = time.monotonic() + FLUSH_SECONDS
        left = self._flush()
        while left and time.monotonic() < deadline:
            self._report()
            left = self._flush()
        self._count()
        self._unacknowledged = left

    def raise_failures(self) -> None:
        """Raise Failed if not every record was stored."""
        if self._unacknowledged:
            raise Failed(f"{self._unacknowledged} records were not acknowledged within {FLUSH_SECONDS:g} s.")
        if self._failed:
            reason = delivery_error(self._error, self._topic, self._fatal)
            unnamed = f" ({self._fatal_lines[0]})" if self._fatal is None and self._fatal_lines else ""
            told = f"{self._failed} records were not stored; the first: {reason}{unnamed}"
            raise Failed(with_remedy(told, reason.remedy))

    def _flush(self) -> int:
        """Wait a moment; how many records have no outcome yet. Each is told of a fatal error, as is noted here."""
        try:
            left: int = serve(self._producer.flush, FLUSH_SLICE)
        except FatalFailure as failure:
            self._fatal = failure.error
            left = len(self._producer)
        return left

    def _reason(self, error: Any) -> BarnabasError:
        """Why the producer is of no more use."""
        if error is None:
            return ClientFailed("_FATAL", self._fatal_lines[0] if self._fatal_lines else UNNAMED)
        if error.code() == error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return translated(error, "", on_transactional_id("use", "Write", self._transactional_id))
        return writing_error(error, self._topic)

    def _print_lines(self) -> None:
        self._stats.print_total()
        if self._steady is not None:
            self._steady.print_total()
        for line in self._metrics[-1:]:
            click.echo(line)

    def _print_document(self) -> None:
        document = {**self._stats.summary(), "failed": self._stats.failed}
        if self._steady is not None:
            document["steadyState"] = self._steady.summary()
        if self._metrics:
            document["metrics"] = json.loads(self._metrics[-1])
        print_json(document)

    def _slow_down(self, start: float, sent: int, throughput: float) -> None:
        ahead = sent / throughput - (time.monotonic() - start)
        while ahead > 0:
            serve(self._producer.poll, min(ahead, 0.1))
            self._report()
            ahead = sent / throughput - (time.monotonic() - start)

    def _report(self) -> None:
        self._count()
        self._stats.report_if_due()
        if self._steady is not None:
            self._steady.report_if_due()

    def _delivered(self, error: Any, message: Any) -> None:
        """One of millions: what can be done for many of them at once is done in `_count`."""
        if error is None:
            self._acknowledged.append(message)
        else:
            self._failed += 1
            self._stats.failed += 1
            self._error = self._error or error

    def _count(self) -> None:
        messages, stats = self._acknowledged, self._stats
        since, self._counted_at = self._counted_at, time.monotonic()
        if not messages:
            return
        self._acknowledged = []
        if self._steady is None and self._warmup:
            cold = self._warmup - stats.total.count
            self._record(messages[:cold], stats)
            if len(messages) < cold:
                return
            self._steady = ProducerStats(self._reporting_ms, steady=True, say=self._say, start=since)
            stats.quiet = True
            messages = messages[cold:]
        self._record(messages, stats)
        if self._steady is not None:
            self._record(messages, self._steady)

    def _record(self, messages: list[Any], stats: ProducerStats) -> None:
        if messages:
            size = sum(map(len, map(self._value_of, messages)))
            stats.record(size, [int(seconds * 1000) for seconds in map(self._latency_of, messages)])
