"""`barnabas consumer-perf`: kafka-consumer-perf-test, over librdkafka.

What differs, on purpose: reading stops at the very record that was asked for, where Kafka's tool counts its last poll
to the end, and --show-detailed-stats has a last line for what came after the last full interval.
"""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import POSITIVE32, POSITIVE64
from barnabas.cli.output import json_option, print_json
from barnabas.cli.perf.dates import JavaDate
from barnabas.cli.perf.properties import address_option, deprecated, from_files, open_perf_client, pairs, with_address
from barnabas.cli.perf.stats import MB, sayer, without_collector

BATCH: Final = 10_000
_NEW_FIELDS: Final = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER: Final = f"start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{_NEW_FIELDS}"
DETAILED_HEADER: Final = f"time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{_NEW_FIELDS}"
DEFAULTS: Final = {
    "client.id": "perf-consumer-client",
    "isolation.level": "read_uncommitted",
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 1_000_000,
}
"""The isolation is Kafka's default, which is not librdkafka's; the rest keeps librdkafka busy."""


@click.command(
    "consumer-perf",
    cls=Command,
    examples=[
        ("read a million records", "barnabas consumer-perf --topic perf --num-records 1000000"),
        (
            "a line every second, without the header",
            "barnabas consumer-perf --topic perf --num-records 1000000 --show-detailed-stats "
            "--reporting-interval 1000 --hide-header",
        ),
        (
            "in the new group protocol",
            "barnabas consumer-perf --topic perf --num-records 1000000 --command-property group.protocol=consumer",
        ),
    ],
)
@option("--topic", metavar="TOPIC", help="The topic to read.", section="Load")
@option("--include", metavar="PATTERN", help="A regular expression: read all topics that match.", section="Load")
@option("--num-records", type=POSITIVE64, metavar="N", help="How many records to read.", section="Load")
@option("--messages", type=POSITIVE64, metavar="N", help="The same, Kafka's old flag.", section="Load")
@option("--group", metavar="GROUP", help="The group to read as.  [default: a new one]", section="Load")
@option("--from-latest", is_flag=True, help="Begin at the end, where the group has no offsets.", section="Load")
@option(
    "--fetch-size",
    type=POSITIVE32,
    default=1 << 20,
    metavar="BYTES",
    help="The most to fetch of one partition at once.  [default: 1048576]",
    section="Load",
)
@option(
    "--socket-buffer-size",
    type=POSITIVE32,
    default=2 << 20,
    metavar="BYTES",
    help="The receive buffer of sockets.  [default: 2097152]",
    section="Load",
)
@option(
    "--timeout",
    type=POSITIVE64,
    default=10_000,
    metavar="MS",
    help="Give up when no record came for this long.  [default: 10000]",
    section="Load",
)
@option("--show-detailed-stats", is_flag=True, help="Print a line per interval.", section="Report")
@option(
    "--reporting-interval",
    type=POSITIVE64,
    default=5000,
    metavar="MS",
    help="How often, with --show-detailed-stats.  [default: 5000]",
    section="Report",
)
@option(
    "--date-format",
    default="yyyy-MM-dd HH:mm:ss:SSS",
    metavar="FORMAT",
    help="How times are written, in Java's letters.  [default: yyyy-MM-dd HH:mm:ss:SSS]",
    section="Report",
)
@option("--hide-header", is_flag=True, help="Do not print the header.", section="Report")
@option("--print-metrics", is_flag=True, help="Print librdkafka's statistics at the end.", section="Report")
@json_option
@address_option
@option("--broker-list", metavar="HOST:PORT,...", help="The same, Kafka's old flag.", section="Connection")
@option(
    "--command-property", multiple=True, metavar="NAME=VALUE", help="A property of the consumer.", section="Connection"
)
@option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of properties.",
    section="Connection",
)
@option(
    "--consumer.config",
    "consumer_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same, Kafka's old flag.",
    section="Connection",
)
def command(
    topic: str | None,
    include: str | None,
    num_records: int | None,
    messages: int | None,
    group: str | None,
    from_latest: bool,
    fetch_size: int,
    socket_buffer_size: int,
    timeout: int,
    show_detailed_stats: bool,
    reporting_interval: int,
    date_format: str,
    hide_header: bool,
    print_metrics: bool,
    as_json: bool,
    bootstrap_server: str | None,
    broker_list: str | None,
    command_property: tuple[str, ...],
    command_config: Path | None,
    consumer_config: Path | None,
) -> None:
    """Measure how fast records can be consumed. Flags and lines are those of kafka-consumer-perf-test.

    The client is librdkafka, so properties are its own where they differ from Java's.
    """
    if (topic is None) == (include is None):
        raise click.UsageError("Give one of --topic and --include.")
    if (num_records is None) == (messages is None):
        raise click.UsageError("Say how many records to read: --num-records N.")
    if messages is not None:
        deprecated("--messages", "--num-records")
    if broker_list is not None:
        deprecated("--broker-list", "--bootstrap-server")
    chosen: dict[str, Any] = {
        "group.id": group or f"perf-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": "latest" if from_latest else "earliest",
        "max.partition.fetch.bytes": fetch_size,
        "socket.receive.buffer.bytes": socket_buffer_size,
        "check.crcs": "false",
    }
    properties = from_files("--consumer.config", consumer_config, command_config) | pairs(command_property)
    properties = with_address(DEFAULTS | properties | chosen, bootstrap_server or broker_list)
    run = Run(
        whole_names(include) if include is not None else topic or "",
        properties,
        dates=JavaDate(date_format),
        detailed=show_detailed_stats,
        reporting_ms=reporting_interval,
        metrics=print_metrics,
        as_json=as_json,
    )
    if not hide_header and not as_json:
        click.echo(DETAILED_HEADER if show_detailed_stats else HEADER)
    with without_collector():
        run.consume(num_records or messages or 0, timeout)


def whole_names(pattern: str) -> str:
    """A pattern for whole names of topics, as librdkafka reads it; raises UsageError."""
    from barnabas.clients.errors import InvalidClientConfig
    from barnabas.clients.patterns import as_posix

    try:
        return f"^({as_posix(re.compile(pattern))})$"
    except (re.error, InvalidClientConfig) as error:
        raise click.UsageError(f"--include {pattern} is not a pattern for topics: {error}.") from error


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


class Run:
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
        heard = started
        while read < count:
            messages = self._good(consumer.consume(min(BATCH, count - read), 0.05))
            read += len(messages)
            size += self._size(messages)
            now = time.monotonic()
            if messages:
                heard = now
            elif (now - heard) * 1000 > timeout_ms:
                sayer(as_json=self._as_json)(
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
        """Those that are records; an error that does not go away is Failed. Without errors, no Python runs for each."""
        errors = list(filter(None, map(self._kafka.Message.error, messages)))
        if not errors:
            return messages
        for error in errors:
            if error.fatal() or error.code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Failed(f"{error.str()}.")
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
        told = self._time(time.time())
        counted = Counted(
            *(told, told),
            *(read, read - read_before, size, size - size_before),
            seconds=max(now - begun, 0.001),
            joining=joining,
        )
        if self._as_json:
            self._windows.append(counted)
        else:
            click.echo(f"{told}, 0, {counted.line}")

    def _print_document(self, total: Counted) -> None:
        document: dict[str, object] = {"startTime": total.begin, "endTime": total.end, **total.document}
        if self._detailed:
            document["intervals"] = [{"time": window.end, **window.document} for window in self._windows]
        if self._metrics:
            document["metrics"] = json.loads(self._metrics[-1])
        print_json(document)

    def _time(self, seconds: float) -> str:
        return self._dates.format(datetime.fromtimestamp(seconds))
