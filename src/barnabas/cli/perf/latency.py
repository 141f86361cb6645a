"""`barnabas latency`: kafka-e2e-latency. How long a record takes from a producer to a consumer, one at a time."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import click

from barnabas.cli.common import connection
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option, print_json, remark
from barnabas.cli.common.values.numbers import INT32, POSITIVE32, Whole
from barnabas.cli.perf.properties import PerfOptions, open_perf_client, perf_options
from barnabas.cli.perf.stats import line_printer, percent, percentiles
from barnabas.clients.errors import translated
from barnabas.clients.producer.delivery import writing_error
from barnabas.model.numbers import MAX_INT32
from barnabas.model.permissions import on_topic, read_from

EVERY: Final = 1000
"""Records between two lines."""
PERCENTILES: Final = (0.5, 0.99, 0.999)
TIMEOUT_SECONDS: Final = 60.0
"""Seconds that one record may take."""


@dataclass(frozen=True, kw_only=True)
class Options(PerfOptions):
    """The options of `barnabas latency`."""

    topic: str
    num_records: int
    producer_acks: str
    record_size: int
    record_key_size: int
    num_headers: int
    record_header_key_size: int
    record_header_size: int
    microseconds: bool


@click.command(
    "latency",
    cls=Command,
    examples=[
        (
            "send ten thousand records of 100 bytes, one after the other",
            "barnabas latency --topic probe --num-records 10000",
        ),
        (
            "wait for all replicas, and print microseconds",
            "barnabas latency --topic probe --num-records 10000 --producer-acks all --microseconds",
        ),
    ],
)
@option(
    "--topic", required=True, metavar="TOPIC", help="The topic. If it does not exist, it is created.", section="Load"
)
@option(
    "--num-records", required=True, type=POSITIVE32, metavar="N", help="The number of records to send.", section="Load"
)
@option(
    "--producer-acks",
    type=click.Choice(["1", "all"]),
    default="1",
    show_default=True,
    help="Which replicas must acknowledge a record.",
    section="Load",
)
@option(
    "--record-size",
    type=POSITIVE32,
    default=100,
    show_default=True,
    metavar="BYTES",
    help="The size of a record's value.",
    section="Load",
)
@option(
    "--record-key-size",
    type=INT32,
    default=0,
    metavar="BYTES",
    help="The size of a record's key.",
    section="Load",
)
@option("--num-headers", type=INT32, default=0, metavar="N", help="The number of headers of a record.", section="Load")
@option(
    "--record-header-key-size",
    type=INT32,
    default=0,
    metavar="BYTES",
    help="The size of each header's key.",
    section="Load",
)
@option(
    "--record-header-size",
    type=Whole(-1, MAX_INT32),
    default=0,
    metavar="BYTES",
    help="The size of each header's value; -1 for null.",
    section="Load",
)
@option("--microseconds", is_flag=True, help="Print percentiles in microseconds.", section="Report")
@json_option
@perf_options
@takes(Options)
def command(options: Options) -> None:
    """Measure the time from producer to consumer, record by record. Flags and lines are those of kafka-e2e-latency."""
    message = random_message(options)
    say = line_printer(as_json=options.as_json)
    probe = Probe(options.topic, options.client_properties(["command_config"]), options.producer_acks)
    times: Counter[int] = Counter()
    total = 0.0
    for number in range(options.num_records):
        taken = probe.send(message)
        if number % EVERY == 0:
            say(f"{number}\t{taken * 1000}")
        total += taken
        times[int(taken * (1_000_000 if options.microseconds else 1000))] += 1
    probe.close()
    show(options, total / options.num_records * 1000, percentiles(times, PERCENTILES))


def random_message(options: Options) -> dict[str, Any]:
    """A record of the sizes that are wanted."""
    key_size, header_size = options.record_header_key_size, options.record_header_size
    return {
        "value": random.randbytes(options.record_size),
        "key": random.randbytes(options.record_key_size) if options.record_key_size else None,
        "headers": [
            (random.randbytes(key_size).hex()[:key_size], random.randbytes(header_size) if header_size >= 0 else None)
            for _ in range(options.num_headers)
        ],
    }


def show(options: Options, average_ms: float, found: list[int]) -> None:
    """Kafka's lines, or one document."""
    if options.as_json:
        unit = "Us" if options.microseconds else "Ms"
        print_json(
            {
                "records": options.num_records,
                "averageLatencyMs": average_ms,
                f"latencyPercentiles{unit}": dict(zip(map(percent, PERCENTILES), found, strict=True)),
            }
        )
        return
    click.echo(f"Avg latency: {average_ms:.4f} ms")
    click.echo("Percentiles: 50th = {}, 99th = {}, 99.9th = {}".format(*found))


class Probe:
    """A producer and a consumer at the end of a topic."""

    def __init__(self, topic: str, properties: dict[str, Any], acks: str) -> None:
        from barnabas.clients.library import load_kafka

        kafka = self._kafka = load_kafka()
        self._topic = topic
        self._failure: Any = None
        """Why the last record was not stored."""
        self._producer = open_perf_client(
            "Producer", {"linger.ms": 0, "enable.idempotence": "false", "acks": acks} | properties
        )
        self._consumer = open_perf_client(
            "Consumer",
            {
                "group.id": f"latency-{random.getrandbits(64):016x}",
                "enable.auto.commit": "false",
                "fetch.wait.max.ms": 500,
            }
            | properties,
        )
        self._consumer.assign(
            [
                kafka.TopicPartition(
                    topic, index, self._consumer.get_watermark_offsets(kafka.TopicPartition(topic, index))[1]
                )
                for index in self._partitions(properties)
            ]
        )

    def send(self, message: dict[str, Any]) -> float:
        """Send a record and wait until it is read; the seconds that took. Raises Failed, BarnabasError."""
        begun = time.perf_counter()
        self._producer.produce(self._topic, **message, on_delivery=self._delivered)
        self._producer.flush(TIMEOUT_SECONDS)
        found = self._read()
        taken = time.perf_counter() - begun
        if found is None:
            raise Failed(f"A record did not come back within {TIMEOUT_SECONDS:g} s.")
        if found.error() is not None:
            raise translated(found.error(), "", read_from(self._topic, None))
        if found.value() != message["value"]:
            raise Failed(
                "The consumer read another record than the one that was sent. Does another producer write to the topic?"
            )
        return taken

    def _delivered(self, error: Any, _: Any) -> None:
        self._failure = error

    def _read(self) -> Any:
        """What comes next. That the group is forbidden does not matter: it is joined by nobody."""
        if self._failure is not None:
            raise writing_error(self._failure, self._topic)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            found = self._consumer.poll(max(0.0, deadline - time.monotonic()))
            if found is None or found.error() is None:
                return found
            if found.error().code() != self._kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
                return found

    def close(self) -> None:
        """Let go of the cluster."""
        self._consumer.close()

    def _partitions(self, properties: dict[str, Any]) -> list[int]:
        """All partitions of the topic, which is made with one if it is not there."""
        others = {name: value for name, value in properties.items() if name != "bootstrap.servers"}
        with connection.open_cluster(properties["bootstrap.servers"], others) as cluster:
            if self._topic not in cluster.topics.topic_names():
                remark(f"There is no topic {self._topic}: creating it with one partition and one replica.")
                cluster.topics.create_topic(self._topic, 1, 1, exist_ok=True)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            found = self._producer.list_topics(self._topic, TIMEOUT_SECONDS).topics[self._topic]
            if found.error is None:
                return sorted(found.partitions)
            if time.monotonic() > deadline:
                raise translated(found.error, "", on_topic("describe", "Describe", self._topic))
            time.sleep(0.05)
