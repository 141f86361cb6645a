"""`barnabas produce`: kafka-console-producer with its flags, and more ways to write a record.

What differs from kafka-console-producer, on purpose: --bootstrap-server has a default, records are sent within
milliseconds and not after a second (--timeout), retries go on until a record's time is over, and a record that did not
arrive makes the exit code 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import INT32, INT64, POSITIVE32, POSITIVE64
from barnabas.cli.output import remark
from barnabas.cli.progress import progress
from barnabas.cli.records import lines as reading
from barnabas.cli.records.formats import choose
from barnabas.cli.records.lines import JsonReader, LineReader, Outgoing
from barnabas.cli.records.options import check_properties, format_options, old_and_new, one_file, reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

READERS = (
    "LineMessageReader",
    "org.apache.kafka.tools.LineMessageReader",
    "kafka.tools.ConsoleProducer$LineMessageReader",
)

PROPERTIES = {
    "timeout": "linger.ms",
    "request_required_acks": "acks",
    "request_timeout_ms": "request.timeout.ms",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "socket_buffer_size": "send.buffer.bytes",
    "max_memory_bytes": "buffer.memory",
    "batch_size": "batch.size",
    "max_partition_memory_bytes": "batch.size",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "max_block_ms": "max.block.ms",
    "compression_codec": "compression.type",
}
"""Options that stand for a property of the producer."""


class Reader(Protocol):
    """Makes a record of a line."""

    def read(self, line: str, number: int) -> Outgoing:
        """The record; raises Failed with the line's number."""
        ...


@click.command(
    cls=Command,
    examples=[
        ("type records, a line each; Ctrl-D ends", "barnabas produce --topic greetings"),
        ("lines of a file", "barnabas produce --topic greetings lines.txt"),
        (
            "with a key before a colon",
            "echo 'customer-7:hello' | barnabas produce --topic orders "
            "--reader-property parse.key=true --reader-property key.separator=:",
        ),
        (
            "JSON lines with key and headers",
            """echo '{"key": "k", "value": {"id": 7}, "headers": {"trace": "a1"}}' | """
            "barnabas produce --topic orders --json",
        ),
        (
            "copy a topic, as it is",
            "barnabas consume --topic orders --from-beginning --until-end --json | "
            "barnabas produce --topic copy --json --keep-partitions",
        ),
        ("JSON as Avro", "barnabas produce --topic orders --value-schema order.avsc orders.jsonl"),
        (
            "bytes in hexadecimal",
            "echo 00ff | barnabas produce --topic raw --value-format hex",
        ),
    ],
)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option("--topic", metavar="NAME", required=True, help="The topic to send to.", section="What")
@option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each line is a JSON object: value, and if wanted key, headers, partition, timestamp.",
    section="What",
)
@option(
    "--keep-partitions",
    is_flag=True,
    help="With --json: send to the partition that a line says.",
    section="What",
)
@option(
    "--reader-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="How lines are read: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab), "
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
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same in a file.",
    section="What",
)
@option("--line-reader", metavar="CLASS", default=READERS[0], help="Kafka's LineMessageReader only.", section="What")
@format_options
@option("--sync", is_flag=True, help="Wait for each record before the next is sent.", section="Sending")
@option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    metavar="[CODEC]",
    help="none, gzip, snappy, lz4 or zstd; gzip if only the flag is given.",
    section="Sending",
)
@option("--request-required-acks", metavar="ACKS", help="all, 1 or 0.  [default: all]", section="Sending")
@option("--timeout", type=INT32, metavar="MS", help="How long a batch waits for more.", section="Sending")
@option("--batch-size", type=POSITIVE32, metavar="BYTES", help="When a batch is full.", section="Sending")
@option("--max-partition-memory-bytes", type=POSITIVE32, metavar="BYTES", help="The same.", section="Sending")
@option("--max-memory-bytes", type=POSITIVE64, metavar="BYTES", help="How much may wait.", section="Sending")
@option("--max-block-ms", type=INT64, metavar="MS", help="How long to wait for room.", section="Sending")
@option("--message-send-max-retries", type=INT32, metavar="N", help="Retries.", section="Sending")
@option("--retry-backoff-ms", type=POSITIVE64, metavar="MS", help="Time between retries.", section="Sending")
@option("--request-timeout-ms", type=POSITIVE32, metavar="MS", help="Time for an answer.", section="Sending")
@option("--metadata-expiry-ms", type=POSITIVE64, metavar="MS", help="Age of metadata.", section="Sending")
@option("--socket-buffer-size", type=INT32, metavar="BYTES", help="Of TCP.", section="Sending")
@option(
    "--command-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="A property of the producer; repeatable.",
    section="Connection",
)
@option(
    "--producer-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="Older name of --command-property.",
    section="Connection",
)
@option(
    "--producer.config",
    "producer_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Older name of --command-config.",
    section="Connection",
)
@option("--broker-list", metavar="HOST:PORT,...", hidden=True)
@connection_options
def command(**options: Any) -> None:
    """Send lines of files or of standard input to a topic. The flags are those of kafka-console-producer."""
    if options["line_reader"] not in READERS:
        raise click.UsageError(
            f"--line-reader {options['line_reader']}: a Java class cannot be loaded here; see --json."
        )
    if options["keep_partitions"] and not options["as_json"]:
        raise click.UsageError("--keep-partitions goes with --json.")
    reader = choose_reader(options)
    properties = producer_properties(options)
    address = options["bootstrap_server"]
    if options["broker_list"]:
        remark("--broker-list is from older Kafkas: use --bootstrap-server.")
        address = options["broker_list"]

    from barnabas.clients.producer import Producer

    reach(address)
    count = 0
    with Producer(address, config=properties) as producer:
        for number, line in enumerate(lines(options["files"]), 1):
            record = reader.read(line, number)
            delivery = producer.send(
                options["topic"],
                record.value,
                record.key,
                headers=record.headers or None,
                partition=record.partition,
                timestamp=record.timestamp,
            )
            count = number
            if options["sync"]:
                delivery.result()
    if sys.stderr.isatty():
        remark(f"Sent {count} {'record' if count == 1 else 'records'} to {options['topic']}.")


def choose_reader(options: dict[str, Any]) -> Reader:
    """What makes records of lines."""
    key = choose(options["key_format"], options["key_schema"])
    value = choose(options["value_format"], options["value_schema"])
    properties = one_file(options["reader_config"], None, "--reader-config", "")
    properties |= old_and_new(options["reader_property"], options["old_property"], "--reader-property", "--property")
    if not options["as_json"]:
        check_properties(properties, reading.PROPERTIES, reading.SWITCHES, "--reader-property")
        return LineReader(properties, key, value)
    if properties:
        raise click.UsageError("--reader-property is about lines that are not JSON: leave it out, or --json.")
    return JsonReader(key, value, keep_partition=options["keep_partitions"])


def producer_properties(options: dict[str, Any]) -> dict[str, Any]:
    """Properties of the producer: a file, then pairs, then flags."""
    found: dict[str, Any] = {"client.id": "console-producer"}
    found |= one_file(options["command_config"], options["producer_config"], "--command-config", "--producer.config")
    found |= old_and_new(
        options["command_property"], options["producer_property"], "--command-property", "--producer-property"
    )
    found |= {name: options[flag] for flag, name in PROPERTIES.items() if options[flag] is not None}
    for name in ("bootstrap.servers", "key.serializer", "value.serializer"):
        found.pop(name, None)
    return found


def lines(files: tuple[Path, ...]) -> Iterator[str]:
    """Lines without their ends, of the files or of standard input; a person at a terminal gets a prompt, or a bar."""
    if not files:
        prompt = sys.stdin.isatty() and sys.stdout.isatty()
        yield from _lines(sys.stdin.buffer, prompt=prompt)
        return
    size = sum(file.stat().st_size for file in files)
    with progress("Sending", size, of_bytes=True) as watched:
        for file in files:
            with file.open("rb") as source:
                yield from _lines(source, watched)


def _lines(source: BinaryIO, watched: Callable[[int], None] | None = None, *, prompt: bool = False) -> Iterator[str]:
    while True:
        if prompt:
            click.echo(">", nl=False)
        line = source.readline()
        if not line:
            return
        if watched is not None:
            watched(len(line))
        yield line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
