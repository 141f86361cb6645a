"""`barnabas delete-records`: kafka-delete-records, which lets partitions begin later."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table
from barnabas.cli.common.remedies import with_remedy_of
from barnabas.cli.common.values.files import FILE_OR_INPUT, read_input
from barnabas.clients.errors import RequestRefused
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas delete-records`."""

    offset_json_file: Path
    as_json: bool


@click.command(
    cls=Command,
    examples=[
        (
            "delete all records before offset 100 of orders-0, and all records of orders-1",
            "cat > offsets.json <<'END'\n"
            '  {"partitions": [{"topic": "orders", "partition": 0, "offset": 100},\n'
            '                  {"topic": "orders", "partition": 1, "offset": -1}],\n'
            '   "version": 1}\n'
            "  END\n"
            "  barnabas delete-records --offset-json-file offsets.json",
        ),
        ("show where the topic begins now", "barnabas get-offsets --topic orders --time earliest"),
    ],
)
@option(
    "--offset-json-file",
    type=FILE_OR_INPUT,
    required=True,
    metavar="FILE",
    help="A JSON file with an offset for each partition: that of the first record to keep, or -1 to keep none. - is "
    "standard input.",
    section="What",
)
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Delete the oldest records of partitions, up to an offset. The flags are those of kafka-delete-records."""
    wanted = parse_offsets(*read_input(options.offset_json_file))
    with options.connect() as cluster:
        results = dict(sorted(cluster.offsets.delete_before(wanted).items()))
    show(results, as_json=options.as_json)
    refused = {partition: result for partition, result in results.items() if isinstance(result, RequestRefused)}
    if refused:
        raise Failed(with_remedy_of(f"Nothing was deleted from {', '.join(map(str, refused))}.", refused.values()))


def show(results: dict[TopicPartition, int | RequestRefused], *, as_json: bool) -> None:
    """Where each partition begins now."""
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json(
                [
                    {
                        "topic": partition.topic,
                        "partition": partition.partition,
                        "lowWatermark": None if isinstance(result, RequestRefused) else result,
                        "error": str(result) if isinstance(result, RequestRefused) else None,
                    }
                    for partition, result in results.items()
                ]
            )
        case Style.PLAIN:
            click.echo("Executing records delete operation")
            click.echo("Records delete operation completed:")
            for partition, result in results.items():
                name = "error" if isinstance(result, RequestRefused) else "low_watermark"
                click.echo(f"partition: {partition}\t{name}: {result}")
        case Style.TABLE:
            print_table(("Topic", "Partition", "Begins at"), ((*one, result) for one, result in results.items()))


def parse_offsets(text: str, file: str) -> dict[TopicPartition, int]:
    """The file's offsets; anything that is not one is an error that says where."""
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise Failed(f"{file} is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise Failed(f'{file} has no "partitions": see the example in --help.')
    if document.get("version", 1) != 1:
        raise Failed(f"{file} is of version {document['version']}; only version 1 is known.")
    offsets: dict[TopicPartition, int] = {}
    for entry in document["partitions"]:
        match entry:
            case {"topic": str(topic), "partition": int(number), "offset": int(offset)}:
                partition = TopicPartition(topic, number)
            case _:
                raise Failed(
                    f'{file}: {json.dumps(entry)} is not of the form {{"topic": ..., "partition": ..., "offset": ...}}.'
                )
        if partition in offsets:
            raise Failed(f"{file} has {partition} twice.")
        offsets[partition] = offset
    return offsets
