"""`barnabas log-dirs`: kafka-log-dirs, which shows how much each partition takes on disk, and where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options, find_brokers
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table
from barnabas.cli.common.values.pairs import parse_numbers
from barnabas.cli.common.values.sizes import size_text
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.clients.admin.log_dirs import LogDir

STORAGE_EXCEPTION = "org.apache.kafka.common.errors.KafkaStorageException"
"""What kafka-log-dirs calls a directory that failed."""


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas log-dirs`."""

    describe: bool
    topic_list: str
    broker_list: str
    as_json: bool


@click.command(
    cls=Command,
    examples=[
        ("all brokers and topics", "barnabas log-dirs --describe"),
        ("two topics on one broker", "barnabas log-dirs --describe --topic-list orders,payments --broker-list 1"),
        (
            "the ten largest partitions",
            "barnabas log-dirs --describe --json "
            "| jq -r '.brokers[].logDirs[].partitions[] | [.size, .partition] | @tsv' | sort -rn | head",
        ),
    ],
)
@option("--describe", is_flag=True, required=True, help="Show log directories.", section="Actions")
@option("--topic-list", metavar="TOPIC,...", default="", help="Only these topics.", section="What")
@option("--broker-list", metavar="0,1,...", default="", help="Only these brokers.", section="What")
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Show the sizes of partitions in the log directories of brokers. The flags are those of kafka-log-dirs."""
    topics = frozenset(filter(None, options.topic_list.split(",")))
    wanted = parse_numbers(options.broker_list, "--broker-list")
    with options.connect() as cluster:
        brokers = find_brokers(cluster, wanted)
        found = {broker: cluster.log_dirs.describe(node) for broker, node in brokers.items()}
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json(document(found, topics))
        case Style.PLAIN:
            click.echo("Querying brokers for log directories information")
            click.echo(f"Received log directory information from brokers {','.join(map(str, found))}")
            click.echo(json.dumps(document(found, topics), separators=(",", ":")))
        case Style.TABLE:
            print_tables(found, topics)


def document(found: Mapping[int, list[LogDir]], topics: frozenset[str]) -> dict[str, object]:
    """What kafka-log-dirs prints."""
    return {
        "version": 1,
        "brokers": [
            {
                "broker": broker,
                "logDirs": [
                    {
                        "logDir": directory.path,
                        "error": None if directory.error == ErrorCode.none else STORAGE_EXCEPTION,
                        "partitions": [
                            {
                                "partition": str(replica.partition),
                                "size": replica.size,
                                "offsetLag": replica.offset_lag,
                                "isFuture": replica.is_future,
                            }
                            for replica in directory.replicas
                            if not topics or replica.partition.topic in topics
                        ],
                    }
                    for directory in directories
                ],
            }
            for broker, directories in found.items()
        ],
    }


def print_tables(found: Mapping[int, list[LogDir]], topics: frozenset[str]) -> None:
    """A heading per directory, and what is in it, the largest first."""
    for broker, directories in found.items():
        for directory in directories:
            replicas = [one for one in directory.replicas if not topics or one.partition.topic in topics]
            taken = size_text(sum(replica.size for replica in replicas))
            room = "" if directory.usable_bytes is None else f", {size_text(directory.usable_bytes)} free on its disk"
            failed = "" if directory.error == ErrorCode.none else ", which FAILED"
            heading = click.style(f"broker {broker}  {directory.path}", bold=True)
            count = f"{len(replicas)} partition{'' if len(replicas) == 1 else 's'}"
            click.echo(f"{heading}{failed}\n{count}, {taken}{room}")
            if replicas:
                print_table(
                    ("Topic", "Partition", "Size", "Lag", ""),
                    (
                        (*one.partition, size_text(one.size), one.offset_lag, "moving here" if one.is_future else "")
                        for one in sorted(replicas, key=lambda replica: -replica.size)
                    ),
                )
