"""The command line of `barnabas produce`.

What differs from kafka-console-producer, on purpose: --bootstrap-server has a default, records are sent within
milliseconds and not after a second (--timeout), retries go on until a record's time is over, and a record that did not
arrive makes the exit code 1.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.client_properties import client_options
from barnabas.cli.common.connection import connection_options
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import remark
from barnabas.cli.common.records.formats import choose
from barnabas.cli.common.records.options import check_properties, format_options
from barnabas.cli.common.values.files import FILE
from barnabas.cli.common.values.numbers import INT32, INT64, POSITIVE32, POSITIVE64
from barnabas.cli.produce import lines
from barnabas.cli.produce.input import read_lines
from barnabas.cli.produce.options import READERS, Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from logging import Logger


@click.command(
    cls=Command,
    examples=[
        ("type records, one in each line; Ctrl-D ends", "barnabas produce --topic greetings"),
        ("send the lines of a file", "barnabas produce --topic greetings lines.txt"),
        (
            "send a record with a key before a colon",
            "echo 'customer-7:hello' | barnabas produce --topic orders "
            "--reader-property parse.key=true --reader-property key.separator=:",
        ),
        (
            "send JSON with key and headers",
            """echo '{"key": "k", "value": {"id": 7}, "headers": {"trace": "a1"}}' | """
            "barnabas produce --topic orders --json",
        ),
        (
            "copy a topic, partition by partition",
            "barnabas consume --topic orders --from-beginning --until-end --json | "
            "barnabas produce --topic copy --json --keep-partitions",
        ),
        ("send JSON as Avro", "barnabas produce --topic orders --value-schema order.avsc orders.jsonl"),
        (
            "send bytes in hexadecimal",
            "echo 00ff | barnabas produce --topic raw --value-format hex",
        ),
    ],
)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=FILE)
@option("--topic", metavar="NAME", required=True, help="The topic to send to.", section="What")
@option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each line is a JSON object with a value and, if wanted, key, headers, partition and timestamp.",
    section="What",
)
@option(
    "--keep-partitions",
    is_flag=True,
    help="Send each record to the partition that its line names (--json).",
    section="What",
)
@option(
    "--reader-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="How to read lines: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab), "
    "headers.separator (,), headers.key.separator (:), null.marker, ignore.error; repeatable.",
    section="What",
)
@option(
    "--property",
    "old_property",
    metavar="NAME=VALUE",
    multiple=True,
    help="Older name of --reader-property.",
    section="What",
)
@option(
    "--reader-config",
    type=FILE,
    help="A file with reader properties.",
    section="What",
)
@option(
    "--line-reader",
    metavar="CLASS",
    default=READERS[0],
    help="Accepted for compatibility with Kafka; only LineMessageReader works.",
    section="What",
)
@format_options
@option(
    "--sync", is_flag=True, help="Wait until each record is acknowledged before sending the next.", section="Sending"
)
@option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    metavar="[CODEC]",
    help="Compress batches: none, gzip, snappy, lz4 or zstd; gzip if no codec is given.",
    section="Sending",
)
@option(
    "--request-required-acks",
    metavar="ACKS",
    help="Which replicas must acknowledge a record: all, 1 (the leader) or 0 (none).  [default: all]",
    section="Sending",
)
@option(
    "--timeout",
    type=INT32,
    metavar="MS",
    help="How long a batch waits for more records (linger.ms).",
    section="Sending",
)
@option(
    "--batch-size",
    type=POSITIVE32,
    metavar="BYTES",
    help="The largest size of a batch (batch.size).",
    section="Sending",
)
@option(
    "--max-partition-memory-bytes",
    type=POSITIVE32,
    metavar="BYTES",
    help="Other name of --batch-size.",
    section="Sending",
)
@option(
    "--max-memory-bytes",
    type=POSITIVE64,
    metavar="BYTES",
    help="The memory for records that are not sent yet (buffer.memory).",
    section="Sending",
)
@option(
    "--max-block-ms",
    type=INT64,
    metavar="MS",
    help="How long to wait for free memory (max.block.ms).",
    section="Sending",
)
@option(
    "--message-send-max-retries",
    type=INT32,
    metavar="N",
    help="How often to send a record again (retries).",
    section="Sending",
)
@option(
    "--retry-backoff-ms",
    type=POSITIVE64,
    metavar="MS",
    help="The time between two attempts (retry.backoff.ms).",
    section="Sending",
)
@option(
    "--request-timeout-ms",
    type=POSITIVE32,
    metavar="MS",
    help="How long to wait for a response (request.timeout.ms).",
    section="Sending",
)
@option(
    "--metadata-expiry-ms",
    type=POSITIVE64,
    metavar="MS",
    help="How long metadata is used before it is refreshed (metadata.max.age.ms).",
    section="Sending",
)
@option(
    "--socket-buffer-size",
    type=INT32,
    metavar="BYTES",
    help="The send buffer of the TCP socket (send.buffer.bytes).",
    section="Sending",
)
@client_options("producer")
@option("--broker-list", metavar="HOST:PORT,...", hidden=True)
@connection_options
@takes(Options)
def command(options: Options) -> None:
    """Send lines of files or of standard input to a topic. The flags are those of kafka-console-producer."""
    reader = choose_reader(options)
    properties = options.producer_properties()
    address = options.address
    if options.broker_list:
        remark("--broker-list is deprecated in Kafka: use --bootstrap-server.")
        address = options.broker_list

    from barnabas.clients.logins import require_login
    from barnabas.clients.producer.delivery import fatal_log
    from barnabas.clients.producer.producer import Producer

    require_login(address, properties)
    count = 0
    with _silenced(fatal_log), Producer(address, config=properties) as producer:
        for number, line in enumerate(read_lines(options.files), 1):
            record = reader.read(line, number)
            delivery = producer.send(
                options.topic,
                record.value,
                record.key,
                headers=record.headers or None,
                partition=record.partition,
                timestamp=record.timestamp,
            )
            count = number
            if options.sync:
                delivery.result()
    if sys.stderr.isatty():
        remark(f"Sent {count} {'record' if count == 1 else 'records'} to {options.topic}.")


@contextmanager
def _silenced(log: Logger) -> Iterator[None]:
    """Without these lines, which say what the command ends with."""
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = False


def choose_reader(options: Options) -> lines.JsonReader | lines.LineReader:
    """What makes records of lines."""
    key = choose(options.key_format, options.key_schema)
    value = choose(options.value_format, options.value_schema)
    properties = options.reader_properties()
    if options.as_json:
        return lines.JsonReader(key, value, keep_partition=options.keep_partitions)
    check_properties(properties, lines.PROPERTIES, lines.SWITCHES, "--reader-property")
    return lines.LineReader(properties, key, value)
