"""`barnabas consumer-perf`: kafka-consumer-perf-test, over librdkafka.

What differs, on purpose: reading stops at the very record that was asked for, where Kafka's tool counts its last poll
to the end (with --processes each of them does), and --show-detailed-stats has a last line for what came after the last
full interval. And since the client is librdkafka, the group has no committed offset for a partition of which nothing
was read, where Java's commits the position that it began with.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.common.combinations import exactly_one, renamed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.common.values.numbers import POSITIVE32, POSITIVE64
from barnabas.cli.perf.consuming import DETAILED_HEADER, HEADER, ConsumerRun, Reading, report
from barnabas.cli.perf.dates import JavaDate
from barnabas.cli.perf.properties import (
    PerfOptions,
    check_processes,
    consumer_config_option,
    perf_options,
    processes_option,
    report_options,
)
from barnabas.cli.perf.stats import without_collector
from barnabas.cli.perf.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEFAULTS: Final = {
    "client.id": "perf-consumer-client",
    "isolation.level": "read_uncommitted",
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 1_000_000,
}
"""The isolation is Kafka's default, which is not librdkafka's; the rest keeps librdkafka busy."""


@dataclass(frozen=True, kw_only=True)
class Options(PerfOptions):
    """The options of `barnabas consumer-perf`."""

    topic: str | None
    include: str | None
    num_records: int | None
    processes: int
    messages: int | None
    group: str | None
    from_latest: bool
    fetch_size: int
    socket_buffer_size: int
    timeout: int
    show_detailed_stats: bool
    reporting_interval: int
    date_format: str
    hide_header: bool
    print_metrics: bool
    broker_list: str | None
    command_property: tuple[str, ...]
    consumer_config: Path | None

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        exactly_one(self, "topic", "include")
        renamed(self, "num_records", "messages")
        renamed(self, "bootstrap_server", "broker_list")
        if not self.count:
            raise click.UsageError("Say how many records to read: --num-records N.")
        check_processes(self.processes, self.count, self.print_metrics)

    @property
    def count(self) -> int:
        """The number of records to read."""
        return self.num_records or self.messages or 0

    @property
    def subscription(self) -> str:
        """The topic, or a pattern for topics, as librdkafka takes it."""
        return whole_names(self.include) if self.include is not None else self.topic or ""

    def is_read(self, name: str) -> bool:
        """Whether this topic is to be read."""
        return name == self.topic if self.include is None else bool(re.fullmatch(self.include, name))

    def consumer_properties(self) -> dict[str, Any]:
        """Properties of the consumer: our defaults, then a file and pairs, then flags."""
        found = DEFAULTS | self.client_properties(["command_config", "consumer_config"], ["command_property"])
        if self.broker_list is not None:
            found["bootstrap.servers"] = self.broker_list
        return found | {
            "group.id": self.group or f"perf-consumer-{random.randrange(100_000)}",
            "auto.offset.reset": "latest" if self.from_latest else "earliest",
            "max.partition.fetch.bytes": self.fetch_size,
            "socket.receive.buffer.bytes": self.socket_buffer_size,
            "check.crcs": "false",
        }


@click.command(
    "consumer-perf",
    cls=Command,
    examples=[
        ("read a million records", "barnabas consumer-perf --topic perf --num-records 1000000"),
        (
            "print a line every second, without the header",
            "barnabas consumer-perf --topic perf --num-records 1000000 --show-detailed-stats "
            "--reporting-interval 1000 --hide-header",
        ),
        (
            "read in two processes, where one is not enough to keep the brokers busy",
            "barnabas consumer-perf --topic perf --num-records 5000000 --processes 2",
        ),
        (
            "read with the consumer group protocol",
            "barnabas consumer-perf --topic perf --num-records 1000000 --command-property group.protocol=consumer",
        ),
    ],
)
@option("--topic", metavar="TOPIC", help="The topic to read.", section="Load")
@option(
    "--include", metavar="PATTERN", help="The topics to read: a regular expression for whole names.", section="Load"
)
@option("--num-records", type=POSITIVE64, metavar="N", help="The number of records to read.", section="Load")
@option("--messages", type=POSITIVE64, metavar="N", help="Older name of --num-records.", section="Load")
@processes_option("Read in this many processes at once, each a part of the partitions.  [default: 1]")
@option("--group", metavar="GROUP", help="The consumer group.  [default: a new one]", section="Load")
@option(
    "--from-latest",
    is_flag=True,
    help="Start at the end of the log, unless the group has committed an offset.",
    section="Load",
)
@option(
    "--fetch-size",
    type=POSITIVE32,
    default=1 << 20,
    metavar="BYTES",
    help="The most bytes to fetch from one partition in a response.  [default: 1048576]",
    section="Load",
)
@option(
    "--socket-buffer-size",
    type=POSITIVE32,
    default=2 << 20,
    metavar="BYTES",
    help="The receive buffer of TCP sockets.  [default: 2097152]",
    section="Load",
)
@option(
    "--timeout",
    type=POSITIVE64,
    default=10_000,
    metavar="MS",
    help="Stop if no record arrives for this time.  [default: 10000]",
    section="Load",
)
@option("--show-detailed-stats", is_flag=True, help="Print a line for each interval.", section="Report")
@report_options
@option("--print-metrics", is_flag=True, help="Print librdkafka's statistics at the end.", section="Report")
@json_option
@perf_options
@option("--broker-list", metavar="HOST:PORT,...", help="Older name of --bootstrap-server.", section="Connection")
@option(
    "--command-property", multiple=True, metavar="NAME=VALUE", help="A property of the consumer.", section="Connection"
)
@consumer_config_option
@takes(Options)
def command(options: Options) -> None:
    """Measure how fast records can be consumed. Flags and lines are those of kafka-consumer-perf-test.

    The client is librdkafka, so properties are its own where they differ from Java's.
    """
    dates = JavaDate(options.date_format)
    readings = _read_together(options) if options.processes > 1 else [_read_alone(options)]
    report(readings, dates, detailed=options.show_detailed_stats, as_json=options.as_json)


def _read_together(options: Options) -> list[Reading]:
    """Start processes, each of which reads its part of the partitions."""
    from barnabas.cli.perf.processes import SharedTally, run_together

    readings: list[Reading] = []
    tally, properties, count = SharedTally(), options.consumer_properties(), options.processes
    partitions = _open(options, properties).list_partitions(options.is_read)
    _print_header(options)
    shares = [(options, properties, tally, number, partitions[number::count]) for number in range(count)]

    def take(message: Reading | str) -> None:
        if isinstance(message, str):
            click.echo(message)
        else:
            readings.append(message)

    run_together(_read_share, shares, take)
    return sorted(readings, key=lambda reading: reading.number)


def _read_share(
    wait_for_all: Callable[[], None],
    send: Callable[[Reading | str], None],
    options: Options,
    properties: dict[str, Any],
    tally: Tally,
    number: int,
    partitions: list[tuple[str, int]],
) -> None:
    """What one process of several does."""
    run = _open(options, properties, number, partitions, echo=send)
    wait_for_all()
    with without_collector():
        send(run.consume(options.count, options.timeout, tally))


def _read_alone(options: Options) -> Reading:
    run = _open(options, options.consumer_properties())
    _print_header(options)
    with without_collector():
        return run.consume(options.count, options.timeout, Tally())


def _print_header(options: Options) -> None:
    """The first line, once there is a client that can read."""
    if not options.hide_header and not options.as_json:
        click.echo(DETAILED_HEADER if options.show_detailed_stats else HEADER)


def _open(
    options: Options,
    properties: dict[str, Any],
    number: int = 0,
    partitions: list[tuple[str, int]] | None = None,
    echo: Callable[[str], None] = click.echo,
) -> ConsumerRun:
    return ConsumerRun(
        options.subscription,
        properties,
        dates=JavaDate(options.date_format),
        detailed=options.show_detailed_stats,
        reporting_ms=options.reporting_interval,
        metrics=options.print_metrics,
        as_json=options.as_json,
        number=number,
        partitions=partitions,
        echo=echo,
    )


def whole_names(pattern: str) -> str:
    """A pattern for whole names of topics, as librdkafka reads it; raises UsageError."""
    from barnabas.clients.consumer.patterns import as_posix
    from barnabas.clients.errors import InvalidClientConfig

    try:
        return f"^({as_posix(re.compile(pattern))})$"
    except (re.error, InvalidClientConfig) as error:
        raise click.UsageError(f"--include {pattern} is not a pattern for topics: {error}.") from error
