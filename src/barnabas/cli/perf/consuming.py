"""The measurement of `barnabas consumer-perf`: read records, count them, and print Kafka's lines."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.common.output import print_json
from barnabas.cli.perf.properties import open_perf_client
from barnabas.cli.perf.stats import MB, line_printer
from barnabas.clients.errors import translated
from barnabas.model.permissions import read_from

if TYPE_CHECKING:
    from barnabas.cli.perf.dates import JavaDate

BATCH: Final = 10_000
_NEW_FIELDS: Final = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER: Final = f"start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{_NEW_FIELDS}"
DETAILED_HEADER: Final = f"time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{_NEW_FIELDS}"


@dataclass(frozen=True, slots=True)
class Counted:
    """What was read until now, how much of it in the last so many seconds, and how long a rebalance took of these."""

    begin: str
    end: str
    read: int
    records: int
    size: int
    bytes: int
    seconds: float
    joining: float

    @property
    def fetching(self) -> float:
        """The seconds that were left for reading."""
        return max(self.seconds - self.joining, 0.001)

    @property
    def line(self) -> str:
        """Kafka's columns, without those of times."""
        megabytes = self.bytes / MB
        return (
            f"{self.size / MB:.4f}, {megabytes / self.seconds:.4f}, {self.read}, {self.records / self.seconds:.4f}, "
            f"{round(self.joining * 1000)}, {round(self.fetching * 1000)}, {megabytes / self.fetching:.4f}, "
            f"{self.records / self.fetching:.4f}"
        )

    @property
    def document(self) -> dict[str, object]:
        """The same under names."""
        megabytes = self.bytes / MB
        return {
            "megabytes": self.size / MB,
            "megabytesPerSec": megabytes / self.seconds,
            "records": self.read,
            "recordsPerSec": self.records / self.seconds,
            "rebalanceMs": round(self.joining * 1000),
            "fetchMs": round(self.fetching * 1000),
            "fetchMegabytesPerSec": megabytes / self.fetching,
            "fetchRecordsPerSec": self.records / self.fetching,
        }


class ConsumerRun:
    """One measurement."""

    def __init__(
        self,
        topic: str,
        properties: dict[str, Any],
        *,
        dates: JavaDate,
        detailed: bool,
        reporting_ms: int,
        metrics: bool,
        as_json: bool,
    ) -> None:
        from barnabas.clients.library import load_kafka

        self._topic = topic
        self._dates = dates
        self._detailed = detailed
        self._as_json = as_json
        self._windows: list[Counted] = []
        self._interval = reporting_ms / 1000
        self._metrics: list[str] = []
        if metrics:
            properties = properties | {"statistics.interval.ms": 1000, "stats_cb": self._metrics.append}
        self._kafka = load_kafka()
        errors = self._kafka.KafkaError
        self._lasting = (
            errors.UNKNOWN_TOPIC_OR_PART,
            errors.TOPIC_AUTHORIZATION_FAILED,
            errors.GROUP_AUTHORIZATION_FAILED,
        )
        self._group = properties.get("group.id")
        self._consumer = open_perf_client("Consumer", properties)
        self._assigned_partitions = 0
        self._joining = time.monotonic()
        self._join_seconds = 0.0
        self._window_join = 0.0

    def consume(self, count: int, timeout_ms: int) -> None:
        """Read `count` records, or until none came for too long; print what came of it."""
        started, started_at = time.monotonic(), time.time()
        consumer = self._consumer
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        read = size = 0
        window = (started, 0, 0)
        last_record_at = started
        while read < count:
            messages = self._good(consumer.consume(min(BATCH, count - read), 0.05))
            read += len(messages)
            size += self._size(messages)
            now = time.monotonic()
            if messages:
                last_record_at = now
            elif (now - last_record_at) * 1000 > timeout_ms:
                line_printer(as_json=self._as_json)(
                    "WARNING: Exiting before consuming the expected number of records: "
                    f"timeout ({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
                )
                break
            if self._detailed and now - window[0] >= self._interval:
                self._end_window(now, window, read, size)
                window = (now, read, size)
        ended = time.monotonic()
        consumer.close()
        if self._detailed:
            self._end_window(ended, window, read, size)
        total = self._total(started_at, ended - started, read, size)
        if self._as_json:
            self._print_document(total)
            return
        if not self._detailed:
            click.echo(f"{total.begin}, {total.end}, {total.line}")
        for line in self._metrics[-1:]:
            click.echo(line)

    def _good(self, messages: list[Any]) -> list[Any]:
        """Those that are records; an error that does not go away is raised. Without errors, no Python runs for each."""
        errors = list(filter(None, map(self._kafka.Message.error, messages)))
        if not errors:
            return messages
        for error in errors:
            if error.fatal() or error.code() in self._lasting:
                raise translated(error, "", read_from(self._topic, self._group))
        return [message for message in messages if message.error() is None]

    def _size(self, messages: list[Any]) -> int:
        message = self._kafka.Message
        values, keys = map(message.value, messages), map(message.key, messages)
        return sum(map(len, filter(None, values))) + sum(map(len, filter(None, keys)))

    def _assigned(self, consumer: object, partitions: list[Any]) -> None:
        if not self._assigned_partitions:
            took = time.monotonic() - self._joining
            self._join_seconds += took
            self._window_join += took
        self._assigned_partitions += len(partitions)

    def _revoked(self, consumer: object, partitions: list[Any]) -> None:
        self._assigned_partitions -= len(partitions)
        if not self._assigned_partitions:
            self._joining = time.monotonic()

    def _total(self, started_at: float, seconds: float, read: int, size: int) -> Counted:
        return Counted(
            self._time(started_at),
            self._time(started_at + seconds),
            *(read, read, size, size),
            seconds=seconds,
            joining=self._join_seconds,
        )

    def _end_window(self, now: float, window: tuple[float, int, int], read: int, size: int) -> None:
        """An interval is over: print its line, or keep it for the document."""
        begun, read_before, size_before = window
        joining, self._window_join = self._window_join, 0.0
        now_text = self._time(time.time())
        counted = Counted(
            *(now_text, now_text),
            *(read, read - read_before, size, size - size_before),
            seconds=max(now - begun, 0.001),
            joining=joining,
        )
        if self._as_json:
            self._windows.append(counted)
        else:
            click.echo(f"{now_text}, 0, {counted.line}")

    def _print_document(self, total: Counted) -> None:
        document: dict[str, object] = {"startTime": total.begin, "endTime": total.end, **total.document}
        if self._detailed:
            document["intervals"] = [{"time": window.end, **window.document} for window in self._windows]
        if self._metrics:
            document["metrics"] = json.loads(self._metrics[-1])
        print_json(document)

    def _time(self, seconds: float) -> str:
        return self._dates.format(datetime.fromtimestamp(seconds))
