"""`barnabas producer-perf`: kafka-producer-perf-test, over librdkafka."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.failures import Failed
from barnabas.cli.files import read_text
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import INT64, POSITIVE32, POSITIVE64, Decimal
from barnabas.cli.output import json_option, print_json
from barnabas.cli.perf.properties import address_option, deprecated, from_files, open_perf_client, pairs, with_address
from barnabas.cli.perf.stats import ProducerStats, sayer, without_collector

if TYPE_CHECKING:
    from collections.abc import Callable

LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))
"""The letter that stands for each byte."""
POOL = 4 << 20
"""Letters that random payloads are cut from."""
POLL_EVERY = 128
"""Records between two looks at what was acknowledged."""
FLUSH_SECONDS = 60.0


@click.command(
    "producer-perf",
    cls=Command,
    examples=[
        (
            "a million records of 1 KB, as fast as it goes",
            "barnabas producer-perf --topic perf --num-records 1000000 --record-size 1024 --throughput -1",
        ),
        (
            "steady 10,000 a second, acknowledged by all replicas, and the latency of that",
            "barnabas producer-perf --topic perf --num-records 100000 --record-size 100 --throughput 10000 "
            "--command-property acks=all",
        ),
        (
            "the result as JSON, for a script",
            "barnabas producer-perf --topic perf --num-records 100000 --record-size 100 --throughput -1 --json",
        ),
        (
            "the lines of a file as payloads",
            "barnabas producer-perf --topic perf --num-records 5000 --payload-file orders.json --throughput -1",
        ),
    ],
)
@option("--topic", metavar="TOPIC", help="Produce records to this topic.", section="Load")
@option("--num-records", required=True, type=POSITIVE64, metavar="N", help="How many records.", section="Load")
@option("--record-size", type=POSITIVE32, metavar="BYTES", help="The size of each record.", section="Load")
@option(
    "--payload-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take payloads from this UTF-8 file, at random, instead of making them.",
    section="Load",
)
@option(
    "--payload-delimiter",
    default="\\n",
    metavar="TEXT",
    help="What separates payloads in the file.  [default: new line]",
    section="Load",
)
@option("--payload-monotonic", is_flag=True, help="Payloads are the numbers 0, 1, 2, ...", section="Load")
@option(
    "--throughput",
    required=True,
    type=Decimal(),
    metavar="N",
    help="About so many records a second; -1 for as many as it goes.",
    section="Load",
)
@option(
    "--warmup-records",
    type=INT64,
    default=0,
    metavar="N",
    help="Records at the beginning that the steady-state line leaves out.",
    section="Load",
)
@option("--transactional-id", metavar="ID", help="Produce in transactions.", section="Transactions")
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
@address_option
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
    help="The same, Kafka's old flag.",
    section="Connection",
)
@option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of properties.",
    section="Connection",
)
@option(
    "--producer.config",
    "producer_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same, Kafka's old flag.",
    section="Connection",
)
@click.argument("more", nargs=-1, metavar="[NAME=VALUE ...]")
def command(
    topic: str | None,
    num_records: int,
    record_size: int | None,
    payload_file: Path | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    throughput: float,
    warmup_records: int,
    transactional_id: str | None,
    transaction_duration_ms: int | None,
    reporting_interval: int,
    print_metrics: bool,
    as_json: bool,
    bootstrap_server: str | None,
    command_property: tuple[str, ...],
    producer_props: tuple[str, ...],
    command_config: Path | None,
    producer_config: Path | None,
    more: tuple[str, ...],
) -> None:
    """Measure how fast records can be produced. Flags and lines are those of kafka-producer-perf-test.

    The client is librdkafka, so properties are its own where they differ from Java's.
    """
    if topic is None:
        raise click.UsageError("Say which topic: --topic TOPIC.")
    if sum((record_size is not None, payload_file is not None, payload_monotonic)) != 1:
        raise click.UsageError("Give one of --record-size, --payload-file and --payload-monotonic.")
    if warmup_records >= num_records:
        raise click.UsageError(f"--warmup-records {warmup_records} leaves nothing of --num-records {num_records}.")
    if producer_props:
        if command_property:
            raise click.UsageError("Give --command-property or --producer-props, not both.")
        deprecated("--producer-props", "--command-property")
    elif more and not command_property:
        raise click.UsageError(f"What is {more[0]!r}? A property goes behind --command-property.")
    properties = {"client.id": "perf-producer-client"} | from_files(
        "--producer.config", producer_config, command_config
    )
    properties = with_address(properties | pairs((*producer_props, *command_property, *more)), bootstrap_server)
    say = sayer(as_json=as_json)
    payloads = make_payloads(record_size, payload_file, payload_delimiter, payload_monotonic, say)
    if transactional_id is not None:
        properties["transactional.id"] = transactional_id
    transaction_ms = transaction_duration_ms or (3000 if "transactional.id" in properties else None)
    if transaction_duration_ms is not None and "transactional.id" not in properties:
        properties["transactional.id"] = f"performance-producer-{random.getrandbits(64):016x}"
    run = Run(topic, properties, reporting_interval, warmup_records, metrics=print_metrics, as_json=as_json)
    if warmup_records:
        say(f"Warmup first {warmup_records} records. Steady state results will print after the complete test summary.")
    with without_collector():
        run.produce(num_records, payloads, throughput, transaction_ms)
        run.finish()


def make_payloads(
    size: int | None, path: Path | None, delimiter: str, monotonic: bool, say: Callable[[str], None] = click.echo
) -> Callable[[int], bytes]:
    """The payload of each record, by its number."""
    if monotonic:
        return lambda number: str(number).encode()
    if path is not None:
        return _from_file(path, delimiter, say)
    return _random_letters(size or 1)


def _from_file(path: Path, delimiter: str, say: Callable[[str], None]) -> Callable[[int], bytes]:
    say(f"Reading payloads from: {path.absolute()}")
    separator = "\n" if delimiter == "\\n" else delimiter
    lines = [line.encode() for line in read_text(path).split(separator) if line]
    if not lines:
        raise click.UsageError(f"{path} holds no payloads.")
    say(f"Number of records read: {len(lines)}")
    return lambda number: random.choice(lines)


def _random_letters(size: int) -> Callable[[int], bytes]:
    """Payloads that do not repeat for megabytes, so that compression finds in them what it would in Kafka's."""
    pool = random.randbytes(max(POOL, size)).translate(LETTERS)
    count = len(pool) // size

    def payload(number: int) -> bytes:
        start = number % count * size
        return pool[start : start + size]

    return payload


class Run:
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
    ) -> None:
        self._topic = topic
        self._warmup = warmup
        self._transactional = "transactional.id" in properties
        self._as_json = as_json
        self._say = sayer(as_json=as_json)
        self._stats = ProducerStats(reporting_ms, say=self._say)
        self._steady: ProducerStats | None = None
        self._reporting_ms = reporting_ms
        self._error: Any = None
        self._metrics: list[str] = []
        if metrics:
            properties = properties | {"statistics.interval.ms": 1000, "stats_cb": self._metrics.append}
        self._producer = open_perf_client("Producer", {**properties, "on_delivery": self._delivered})

    def produce(
        self, count: int, payloads: Callable[[int], bytes], throughput: float, transaction_ms: int | None
    ) -> None:
        """Send everything, no faster than asked for."""
        producer = self._producer
        produce, poll, topic = producer.produce, producer.poll, self._topic
        full = BufferError
        if self._transactional:
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
                    poll(0.05)
                    self._report()
            if number % POLL_EVERY == 0:
                poll(0)
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
        deadline = time.monotonic() + FLUSH_SECONDS
        left = self._producer.flush(0.1)
        while left and time.monotonic() < deadline:
            self._report()
            left = self._producer.flush(0.1)
        if self._as_json:
            self._print_document()
        else:
            self._print_lines()
        if left:
            raise Failed(f"{left} records were not acknowledged within {FLUSH_SECONDS:g} s.")
        if self._stats.failed:
            raise Failed(f"{self._stats.failed} records were not stored; the first: {self._error}")

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
            self._producer.poll(min(ahead, 0.1))
            self._report()
            ahead = sent / throughput - (time.monotonic() - start)

    def _report(self) -> None:
        self._stats.report_if_due()
        if self._steady is not None:
            self._steady.report_if_due()

    def _delivered(self, error: Any, message: Any) -> None:
        stats = self._stats
        if error is not None:
            stats.failed += 1
            self._error = self._error or error
            return
        size, latency_ms = len(message.value()), int(message.latency() * 1000)
        stats.record(size, latency_ms)
        if self._steady is not None:
            self._steady.record(size, latency_ms)
        elif self._warmup and stats.total.count >= self._warmup:
            self._steady = ProducerStats(self._reporting_ms, steady=True, say=self._say)
            stats.quiet = True
