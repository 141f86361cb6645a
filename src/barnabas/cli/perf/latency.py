"""`barnabas latency`: kafka-e2e-latency. How long a record takes from a producer to a consumer, one at a time."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import INT32, MAX_INT32, POSITIVE32, Whole
from barnabas.cli.output import json_option, print_json, remark
from barnabas.cli.perf.properties import address_option, from_files, open_perf_client, with_address
from barnabas.cli.perf.stats import percent, percentiles, sayer

EVERY: Final = 1000
"""Records between two lines."""
PERCENTILES: Final = (0.5, 0.99, 0.999)
PATIENCE: Final = 60.0
"""Seconds that one record may take."""


@click.command(
    "latency",
    cls=Command,
    examples=[
        (
            "ten thousand records of 100 bytes, one after the other",
            "barnabas latency --topic probe --num-records 10000",
        ),
        (
            "as far as all replicas, and in microseconds",
            "barnabas latency --topic probe --num-records 10000 --producer-acks all --microseconds",
        ),
    ],
)
@option("--topic", required=True, metavar="TOPIC", help="The topic; it is made if need be.", section="Load")
@option("--num-records", required=True, type=POSITIVE32, metavar="N", help="How many records.", section="Load")
@option(
    "--producer-acks",
    type=click.Choice(["1", "all"]),
    default="1",
    show_default=True,
    help="What the producer waits for.",
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
    help="The size of its key.",
    section="Load",
)
@option("--num-headers", type=INT32, default=0, metavar="N", help="How many headers it has.", section="Load")
@option(
    "--record-header-key-size",
    type=INT32,
    default=0,
    metavar="BYTES",
    help="The size of their keys.",
    section="Load",
)
@option(
    "--record-header-size",
    type=Whole(-1, MAX_INT32),
    default=0,
    metavar="BYTES",
    help="The size of their values; -1 for null.",
    section="Load",
)
@option("--microseconds", is_flag=True, help="Print percentiles in microseconds.", section="Report")
@json_option
@address_option
@option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of properties.",
    section="Connection",
)
def command(
    topic: str,
    num_records: int,
    producer_acks: str,
    record_size: int,
    record_key_size: int,
    num_headers: int,
    record_header_key_size: int,
    record_header_size: int,
    microseconds: bool,
    as_json: bool,
    bootstrap_server: str | None,
    command_config: Path | None,
) -> None:
    """Measure the way from producer to consumer, record by record. Flags and lines are those of kafka-e2e-latency."""
    properties = with_address(from_files("", None, command_config), bootstrap_server)
    message = {
        "value": random.randbytes(record_size),
        "key": random.randbytes(record_key_size) if record_key_size else None,
        "headers": [
            (
                random.randbytes(record_header_key_size).hex()[:record_header_key_size],
                random.randbytes(record_header_size) if record_header_size >= 0 else None,
            )
            for _ in range(num_headers)
        ],
    }
    say = sayer(as_json=as_json)
    probe = Probe(topic, properties, producer_acks)
    times: Counter[int] = Counter()
    total = 0.0
    for number in range(num_records):
        taken = probe.send(message)
        if number % EVERY == 0:
            say(f"{number}\t{taken * 1000}")
        total += taken
        times[int(taken * (1_000_000 if microseconds else 1000))] += 1
    probe.close()
    average, found = total / num_records * 1000, percentiles(times, PERCENTILES)
    if as_json:
        unit = "Us" if microseconds else "Ms"
        names = map(percent, PERCENTILES)
        print_json(
            {
                "records": num_records,
                "averageLatencyMs": average,
                f"latencyPercentiles{unit}": dict(zip(names, found, strict=True)),
            }
        )
    else:
        click.echo(f"Avg latency: {average:.4f} ms")
        click.echo("Percentiles: 50th = {}, 99th = {}, 99.9th = {}".format(*found))


class Probe:
    """A producer and a consumer at the end of a topic."""

    def __init__(self, topic: str, properties: dict[str, Any], acks: str) -> None:
        from barnabas.clients.library import load_kafka

        kafka = self._kafka = load_kafka()
        self._topic = topic
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
        """Send a record and wait until it is read; the seconds that took. Raises Failed."""
        begun = time.perf_counter()
        self._producer.produce(self._topic, **message)
        self._producer.flush(PATIENCE)
        found = self._consumer.poll(PATIENCE)
        taken = time.perf_counter() - begun
        if found is None:
            raise Failed(f"A record did not come back within {PATIENCE:g} s.")
        if found.error() is not None:
            raise Failed(f"{found.error().str()}.")
        if found.value() != message["value"]:
            raise Failed("Another record came back than the one that was sent: does someone else write to the topic?")
        return taken

    def close(self) -> None:
        """Let go of the cluster."""
        self._consumer.close()

    def _partitions(self, properties: dict[str, Any]) -> list[int]:
        """All partitions of the topic, which is made with one if it is not there."""
        from barnabas.clients.admin import Admin

        with Admin(properties["bootstrap.servers"], config=properties) as admin:
            if self._topic not in admin.topic_names():
                remark(f"Topic {self._topic} is not there: making it with one partition and one replica.")
                admin.create_topic(self._topic, 1, 1, exist_ok=True)
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self._producer.list_topics(self._topic, PATIENCE).topics[self._topic]
            if found.error is None:
                return sorted(found.partitions)
            if time.monotonic() > deadline:
                raise Failed(f"{found.error.str()}.")
            time.sleep(0.05)
