"""`barnabas consumer-perf`: kafka-consumer-perf-test, over librdkafka.

What differs, on purpose: reading stops at the very record that was asked for, where Kafka's tool counts its last poll
to the end, and --show-detailed-stats has a last line for what came after the last full interval.
"""

from __future__ import annotations

import random
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, option
from barnabas.cli.perf.dates import JavaDate
from barnabas.cli.perf.properties import deprecated, from_files, open_perf_client, pairs, with_address
from barnabas.cli.perf.stats import MB, without_collector

BATCH: Final = 10_000
_NEW_FIELDS: Final = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER: Final = f"start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{_NEW_FIELDS}"
DETAILED_HEADER: Final = f"time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{_NEW_FIELDS}"
DEFAULTS: Final = {"client.id": "perf-consumer-client", "fetch.queue.backoff.ms": 5, "queued.min.messages": 1_000_000}


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
@option("--num-records", type=click.IntRange(min=1), metavar="N", help="How many records to read.", section="Load")
@option("--messages", type=click.IntRange(min=1), metavar="N", help="The same, Kafka's old flag.", section="Load")
@option("--group", metavar="GROUP", help="The group to read as.  [default: a new one]", section="Load")
@option("--from-latest", is_flag=True, help="Begin at the end, where the group has no offsets.", section="Load")
@option(
    "--fetch-size",
    type=click.IntRange(min=1),
    default=1 << 20,
    metavar="BYTES",
    help="The most to fetch of one partition at once.  [default: 1048576]",
    section="Load",
)
@option(
    "--socket-buffer-size",
    type=click.IntRange(min=1),
    default=2 << 20,
    metavar="BYTES",
    help="The receive buffer of sockets.  [default: 2097152]",
    section="Load",
)
@option(
    "--timeout",
    type=click.IntRange(min=1),
    default=10_000,
    metavar="MS",
    help="Give up when no record came for this long.  [default: 10000]",
    section="Load",
)
@option("--show-detailed-stats", is_flag=True, help="Print a line per interval.", section="Report")
@option(
    "--reporting-interval",
    type=click.IntRange(min=1),
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
@option("--bootstrap-server", metavar="HOST:PORT,...", help="Where the cluster is.", section="Connection")
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
        f"^{include}" if include is not None else topic or "",
        properties,
        dates=JavaDate(date_format),
        detailed=show_detailed_stats,
        reporting_ms=reporting_interval,
        metrics=print_metrics,
    )
    if not hide_header:
        click.echo(DETAILED_HEADER if show_detailed_stats else HEADER)
    with without_collector():
        run.consume(num_records or messages or 0, timeout)


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
    ) -> None:
        from barnabas.clients.library import load_kafka

        self._topic = topic
        self._dates = dates
        self._detailed = detailed
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
                click.echo(
                    "WARNING: Exiting before consuming the expected number of records: "
                    f"timeout ({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
                )
                break
            if self._detailed and now - window[0] >= self._interval:
                self._print_window(now, window, read, size)
                window = (now, read, size)
        ended = time.monotonic()
        consumer.close()
        if self._detailed:
            self._print_window(ended, window, read, size)
        else:
            self._print_total(started_at, ended - started, read, size)
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

    def _print_total(self, started_at: float, seconds: float, read: int, size: int) -> None:
        megabytes = size / MB
        fetching = max(seconds - self._join_seconds, 0.001)
        click.echo(
            f"{self._time(started_at)}, {self._time(started_at + seconds)}, {megabytes:.4f}, "
            f"{megabytes / seconds:.4f}, {read}, {read / seconds:.4f}, {round(self._join_seconds * 1000)}, "
            f"{round(fetching * 1000)}, {megabytes / fetching:.4f}, {read / fetching:.4f}"
        )

    def _print_window(self, now: float, window: tuple[float, int, int], read: int, size: int) -> None:
        begun, read_before, size_before = window
        seconds = max(now - begun, 0.001)
        joining, self._window_join = self._window_join, 0.0
        fetching = max(seconds - joining, 0.001)
        records, megabytes = read - read_before, (size - size_before) / MB
        click.echo(
            f"{self._time(time.time())}, 0, {size / MB:.4f}, {megabytes / seconds:.4f}, {read}, "
            f"{records / seconds:.4f}, {round(joining * 1000)}, {round(fetching * 1000)}, "
            f"{megabytes / fetching:.4f}, {records / fetching:.4f}"
        )

    def _time(self, seconds: float) -> str:
        return self._dates.format(datetime.fromtimestamp(seconds))
