"""`barnabas log-dirs`: kafka-log-dirs, which shows how much each partition takes on disk, and where."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.help import Command, option
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from barnabas.clients.log_dirs import LogDir

STORAGE_EXCEPTION = "org.apache.kafka.common.errors.KafkaStorageException"
"""What kafka-log-dirs calls a directory that failed."""


@click.command(
    cls=Command,
    examples=[
        ("everything", "barnabas log-dirs --describe"),
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
def command(
    describe: bool,
    topic_list: str,
    broker_list: str,
    bootstrap_server: str,
    command_config: Path | None,
    as_json: bool,
) -> None:
    """Show the sizes of partitions in the log directories of brokers. The flags are those of kafka-log-dirs."""
    topics = frozenset(filter(None, topic_list.split(",")))
    try:
        wanted = {int(broker) for broker in filter(None, broker_list.split(","))}
    except ValueError as error:
        raise click.UsageError(f"--broker-list {broker_list} is not a list of numbers.") from error

    from barnabas.cli import connection
    from barnabas.clients.log_dirs import describe_log_dirs

    with connection.open_cluster(bootstrap_server, command_config) as cluster:
        brokers = connection.find_brokers(cluster, wanted)
        found = {broker: describe_log_dirs(cluster, node) for broker, node in brokers.items()}
    match choose_style(as_json=as_json):
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


def size_text(size: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
