"""`barnabas producer-perf`: kafka-producer-perf-test, over librdkafka.

`--command-property` and `--producer-props` take any number of pairs after them, as in Kafka. Click gives an option one
value, so the pairs after the first arrive as arguments of the command.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.combinations import exactly_one
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option, print_json
from barnabas.cli.common.values.files import FILE
from barnabas.cli.common.values.numbers import INT64, POSITIVE32, POSITIVE64, Decimal
from barnabas.cli.common.values.pairs import parse_pairs
from barnabas.cli.perf.payloads import make_payloads
from barnabas.cli.perf.producing import ProducerRun
from barnabas.cli.perf.properties import PerfOptions, check_processes, perf_options, processes_option
from barnabas.cli.perf.stats import ProducerStats, SentStats, line_printer, without_collector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.cli.perf.stats import CountedRecords

DEFAULT_TRANSACTION_MS = 3000


@dataclass(frozen=True, kw_only=True)
class Options(PerfOptions):
    """The options of `barnabas producer-perf`."""

    topic: str | None
    num_records: int
    record_size: int | None
    payload_file: Path | None
    payload_delimiter: str
    payload_monotonic: bool
    throughput: float
    warmup_records: int
    processes: int
    transactional_id: str | None
    transaction_duration_ms: int | None
    reporting_interval: int
    print_metrics: bool
    command_property: tuple[str, ...]
    producer_props: tuple[str, ...]
    producer_config: Path | None
    more: tuple[str, ...]

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        if self.topic is None:
            raise click.UsageError("Say which topic: --topic TOPIC.")
        exactly_one(self, "record_size", "payload_file", "payload_monotonic")
        if self.warmup_records >= self.num_records:
            raise click.UsageError(
                f"--warmup-records {self.warmup_records} leaves nothing of --num-records {self.num_records}."
            )
        check_processes(self.processes, self.num_records, self.print_metrics)
        if self.processes > 1 and self.warmup_records:
            raise click.UsageError("--warmup-records is for one process; leave --processes out.")
        if self.more and not (self.producer_props or self.command_property):
            raise click.UsageError(f"{self.more[0]!r} is no option. A property goes behind --command-property.")

    def producer_properties(self) -> dict[str, Any]:
        """Properties of the producer: a file, then pairs, then flags."""
        found = {"client.id": "perf-producer-client"} | self.client_properties(
            ["command_config", "producer_config"], ["command_property", "producer_props"]
        )
        found |= parse_pairs(self.more, "--command-property")
        if self.bootstrap_server is not None:
            found["bootstrap.servers"] = self.bootstrap_server
        if self.transactional_id is not None:
            found["transactional.id"] = self.transactional_id
        if self.transaction_duration_ms is not None and "transactional.id" not in found:
            found["transactional.id"] = f"performance-producer-{random.getrandbits(64):016x}"
        return found

    def make_payloads(self, say: Callable[[str], None], first: int = 0) -> Callable[[int], bytes]:
        """The payload of each record, by its number."""
        return make_payloads(
            self.record_size, self.payload_file, self.payload_delimiter, self.payload_monotonic, say, first
        )

    def shares(self) -> list[tuple[Options, dict[str, Any], int, int]]:
        """What each of several processes does: its properties, the number of its first record, and of how many."""
        shares = []
        first = 0
        shared = self.producer_properties()
        for number in range(self.processes):
            count = (self.num_records - first) // (self.processes - number)
            own = (
                {"transactional.id": f"{shared['transactional.id']}-{number + 1}"}
                if "transactional.id" in shared
                else {}
            )
            shares.append((self, shared | own, first, count))
            first += count
        return shares


@click.command(
    "producer-perf",
    cls=Command,
    examples=[
        (
            "send a million records of 1 KB, as fast as possible",
            "barnabas producer-perf --topic perf --num-records 1000000 --record-size 1024 --throughput -1",
        ),
        (
            "send 10,000 records per second, acknowledged by all replicas",
            "barnabas producer-perf --topic perf --num-records 100000 --record-size 100 --throughput 10000 "
            "--command-property acks=all",
        ),
        (
            "send from two processes, where one is not enough to keep the brokers busy",
            "barnabas producer-perf --topic perf --num-records 5000000 --record-size 100 --throughput -1 --processes 2",
        ),
        (
            "print the result as JSON for a script",
            "barnabas producer-perf --topic perf --num-records 100000 --record-size 100 --throughput -1 --json",
        ),
        (
            "send lines of a file",
            "barnabas producer-perf --topic perf --num-records 5000 --payload-file orders.json --throughput -1",
        ),
    ],
)
@option("--topic", metavar="TOPIC", help="Produce records to this topic.", section="Load")
@option(
    "--num-records", required=True, type=POSITIVE64, metavar="N", help="The number of records to send.", section="Load"
)
@option("--record-size", type=POSITIVE32, metavar="BYTES", help="The size of each record's value.", section="Load")
@option(
    "--payload-file",
    type=FILE,
    help="Send random payloads of this UTF-8 file.",
    section="Load",
)
@option(
    "--payload-delimiter",
    default="\\n",
    metavar="TEXT",
    help="The text between two payloads in the file.  [default: new line]",
    section="Load",
)
@option("--payload-monotonic", is_flag=True, help="Send the numbers 0, 1, 2, ... as payloads.", section="Load")
@option(
    "--throughput",
    required=True,
    type=Decimal(),
    metavar="N",
    help="The records to send per second; -1 for no limit.",
    section="Load",
)
@option(
    "--warmup-records",
    type=INT64,
    default=0,
    metavar="N",
    help="The number of records at the start that the steady-state line leaves out.",
    section="Load",
)
@processes_option("Send from this many processes at once, each with a producer of its own.  [default: 1]")
@option(
    "--transactional-id", metavar="ID", help="Send in transactions with this transactional id.", section="Transactions"
)
@option(
    "--transaction-duration-ms",
    type=POSITIVE64,
    metavar="MS",
    help="Commit a transaction after this time.  [default: 3000]",
    section="Transactions",
)
@option(
    "--reporting-interval",
    type=POSITIVE64,
    default=5000,
    metavar="MS",
    help="How often to print a line.  [default: 5000]",
    section="Report",
)
@option("--print-metrics", is_flag=True, help="Print librdkafka's statistics at the end.", section="Report")
@json_option
@perf_options
@option(
    "--command-property",
    multiple=True,
    metavar="NAME=VALUE ...",
    help="Properties of the producer.",
    section="Connection",
)
@option(
    "--producer-props",
    multiple=True,
    metavar="NAME=VALUE ...",
    help="Older name of --command-property.",
    section="Connection",
)
@option(
    "--producer.config",
    "producer_config",
    type=FILE,
    help="Older name of --command-config.",
    section="Connection",
)
@click.argument("more", nargs=-1, metavar="[NAME=VALUE ...]")
@takes(Options)
def command(options: Options) -> None:
    """Measure how fast records can be produced. Flags and lines are those of kafka-producer-perf-test.

    The client is librdkafka, so properties are its own where they differ from Java's.
    """
    if options.processes > 1:
        _produce_together(options)
    else:
        _produce_alone(options)


def _produce_alone(options: Options) -> None:
    properties = options.producer_properties()
    say = line_printer(as_json=options.as_json)
    payloads = options.make_payloads(say)
    run = _open(options, properties)
    if options.warmup_records:
        say(
            f"Warmup first {options.warmup_records} records. Steady state results will print after the complete test "
            "summary."
        )
    with without_collector():
        run.produce(options.num_records, payloads, options.throughput, _transaction_ms(options, properties))
        run.finish()


def _produce_together(options: Options) -> None:
    """Start processes, and add up what they count."""
    from barnabas.cli.perf.processes import run_together

    say = line_printer(as_json=options.as_json)
    options.make_payloads(say)  # a file that cannot be used is refused here, once
    stats = ProducerStats(options.reporting_interval, say=say)

    def take(counted: CountedRecords) -> None:
        stats.record_counted(counted)
        stats.report_if_due()

    def tell() -> None:
        if options.as_json:
            print_json({**stats.summary(), "failed": stats.failed})
        else:
            stats.print_total()

    try:
        run_together(_produce_share, options.shares(), take, begin=stats.begin, end=tell)
    except Failed:
        if stats.total.count or stats.failed:
            tell()
        raise


def _produce_share(
    wait_for_all: Callable[[], None],
    send: Callable[[CountedRecords], None],
    options: Options,
    properties: dict[str, Any],
    first: int,
    count: int,
) -> None:
    """What one process of several does."""
    payloads = options.make_payloads(lambda line: None, first)
    stats = SentStats(send)
    run = _open(options, properties, stats)
    wait_for_all()
    with without_collector():
        limit = options.throughput / options.processes
        run.produce(count, payloads, limit, _transaction_ms(options, properties))
        run.drain()
        stats.send_rest()
        run.raise_failures()


def _open(options: Options, properties: dict[str, Any], stats: ProducerStats | None = None) -> ProducerRun:
    assert options.topic is not None
    return ProducerRun(
        options.topic,
        properties,
        options.reporting_interval,
        options.warmup_records,
        metrics=options.print_metrics,
        as_json=options.as_json,
        stats=stats,
    )


def _transaction_ms(options: Options, properties: dict[str, Any]) -> int | None:
    return options.transaction_duration_ms or (DEFAULT_TRANSACTION_MS if "transactional.id" in properties else None)
