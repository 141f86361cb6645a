"""The measurement of `barnabas consumer-perf`: read records, count them, and print Kafka's lines.

One consumer or several, each in a process of its own (`processes`), make one measurement: they share a tally, and what
each of them has read is added up at the end. Several are dealt the partitions beforehand: as members of a group the
first of them would read alone until it hears of the others, with its next heartbeat.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.common.output import print_json
from barnabas.cli.perf.properties import open_perf_client
from barnabas.cli.perf.stats import MB, line_printer
from barnabas.clients.errors import translated
from barnabas.model.permissions import read_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.perf.dates import JavaDate
    from barnabas.cli.perf.tally import Tally

BATCH: Final = 10_000
LIST_SECONDS: Final = 60.0
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


@dataclass(frozen=True, slots=True)
class Reading:
    """What one consumer has read."""

    started_at: float
    ended_at: float
    """In seconds since 1970."""
    joining: float
    """The seconds that it waited for its first partitions, or for others after it had lost all."""
    records: int
    bytes: int
    number: int
    """Of the consumer, if there are several."""
    windows: tuple[Counted, ...]
    metrics: str | None


class ConsumerRun:
    """One consumer."""

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
        number: int = 0,
        partitions: Sequence[tuple[str, int]] | None = None,
        echo: Callable[[str], None] = click.echo,
    ) -> None:
        """One of several reads these `partitions`, and its `number` stands in its lines, as a thread's in Kafka's."""
        from barnabas.clients.library import load_kafka

        self._topic = topic
        self._dates = dates
        self._detailed = detailed
        self._as_json = as_json
        self._number = number
        self._partitions = partitions
        self._echo = echo
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
        self._joining = 0.0
        self._join_seconds = 0.0
        self._window_join = 0.0

    def consume(self, count: int, timeout_ms: int, tally: Tally) -> Reading:
        """Read until all consumers together have read `count` records, or none came for too long."""
        started, started_at = time.monotonic(), time.time()
        self._joining = started
        consumer = self._consumer
        if self._partitions is None:
            consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        else:
            self._assign(self._partitions)
        read = size = before = 0
        window = (started, 0, 0)
        ended = last_record_at = time.monotonic()
        while (total := tally.total) < count:
            messages = self._good(consumer.consume(min(BATCH, count - total), 0.05))
            read += len(messages)
            size += self._size(messages)
            total = tally.add(len(messages))
            now = time.monotonic()
            if messages:
                ended = now
            if total > before:
                before, last_record_at = total, now
            elif (now - last_record_at) * 1000 > timeout_ms:
                ended = now
                self._warn(timeout_ms)
                break
            if self._detailed and now - window[0] >= self._interval:
                self._end_window(now, window, read, size)
                window = (now, read, size)
        consumer.close()
        if self._detailed:
            self._end_window(ended, window, read, size)
        return Reading(
            *(started_at, started_at + ended - started, self._join_seconds, read, size),
            number=self._number,
            windows=tuple(self._windows),
            metrics=self._metrics[-1] if self._metrics else None,
        )

    def _assign(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Begin to read these where the group was. To learn that is what joining a group is for other consumers."""
        wanted = [self._kafka.TopicPartition(*each) for each in partitions]
        try:
            positions = self._consumer.committed(wanted, LIST_SECONDS)
        except self._kafka.KafkaException as failure:
            raise translated(failure.args[0], "", read_from(self._topic, self._group)) from failure
        self._consumer.assign(positions)
        self._join_seconds = self._window_join = time.monotonic() - self._joining

    def list_partitions(self, is_read: Callable[[str], object]) -> list[tuple[str, int]]:
        """All partitions of topics with a name that is read; the consumer is closed then. Raises BarnabasError."""
        try:
            found = self._consumer.list_topics(timeout=LIST_SECONDS).topics
        except self._kafka.KafkaException as failure:
            raise translated(failure.args[0], "", read_from(self._topic, self._group)) from failure
        finally:
            self._consumer.close()
        partitions = [
            (name, partition) for name in sorted(found) if is_read(name) for partition in sorted(found[name].partitions)
        ]
        if not partitions:
            raise translated(self._kafka.KafkaError(self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART), self._topic)
        return partitions

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

    def _end_window(self, now: float, window: tuple[float, int, int], read: int, size: int) -> None:
        """An interval is over: print its line, or keep it for the document."""
        begun, read_before, size_before = window
        joining, self._window_join = self._window_join, 0.0
        now_text = self._dates.of(time.time())
        counted = Counted(
            *(now_text, now_text),
            *(read, read - read_before, size, size - size_before),
            seconds=max(now - begun, 0.001),
            joining=joining,
        )
        if self._as_json:
            self._windows.append(counted)
        else:
            self._echo(f"{now_text}, {self._number}, {counted.line}")

    def _warn(self, timeout_ms: int) -> None:
        """No consumer had a record for too long, and they all end now; one of them says so."""
        if self._number == 0:
            (line_printer(as_json=True) if self._as_json else self._echo)(
                "WARNING: Exiting before consuming the expected number of records: "
                f"timeout ({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
            )


def report(readings: Sequence[Reading], dates: JavaDate, *, detailed: bool, as_json: bool) -> None:
    """Print what came of one consumer, or of several together."""
    started_at = min(reading.started_at for reading in readings)
    ended_at = max(reading.ended_at for reading in readings)
    read, size = (sum(reading.records for reading in readings), sum(reading.bytes for reading in readings))
    total = Counted(
        dates.of(started_at),
        dates.of(ended_at),
        *(read, read, size, size),
        seconds=ended_at - started_at,
        joining=min((reading.joining for reading in readings if reading.records), default=readings[0].joining),
    )
    metrics = [reading.metrics for reading in readings if reading.metrics is not None]
    if as_json:
        document: dict[str, object] = {"startTime": total.begin, "endTime": total.end, **total.document}
        if detailed:
            document["intervals"] = [
                {"time": window.end, "threadId": reading.number, **window.document}
                for reading in readings
                for window in reading.windows
            ]
        for each in metrics:
            document["metrics"] = json.loads(each)
        print_json(document)
        return
    if not detailed:
        click.echo(f"{total.begin}, {total.end}, {total.line}")
    for each in metrics:
        click.echo(each)
