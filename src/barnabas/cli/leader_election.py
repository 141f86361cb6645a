"""`barnabas leader-election`: kafka-leader-election with its flags and its lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.failures import Failed
from barnabas.cli.files import read_text
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import INT32
from barnabas.cli.output import json_option, print_json, remark

if TYPE_CHECKING:
    from barnabas.clients.errors import RequestRefused
    from barnabas.clients.replicas import Election
    from barnabas.model.ids import TopicPartition

KINDS = ("preferred", "unclean")


@click.command(
    "leader-election",
    cls=Command,
    examples=[
        (
            "give leadership back to the first replicas, after a restart",
            "barnabas leader-election --election-type preferred --all-topic-partitions",
        ),
        (
            "of one partition",
            "barnabas leader-election --election-type preferred --topic orders --partition 0",
        ),
        (
            "let a replica lead that is not in sync, and lose what it does not have",
            "barnabas leader-election --election-type unclean --topic orders --partition 0",
        ),
        (
            "of the partitions in a file",
            "barnabas leader-election --election-type preferred --path-to-json-file partitions.json    "
            '# {"partitions": [{"topic": "orders", "partition": 1}]}',
        ),
    ],
)
@option(
    "--election-type",
    type=click.Choice(KINDS, case_sensitive=False),
    required=True,
    help="preferred: the first replica, if it is in sync and does not lead. unclean: whoever lives, if nobody leads.",
    section="What",
)
@option("--topic", metavar="NAME", help="The topic, with --partition.", section="What")
@option("--partition", type=INT32, metavar="N", help="The partition of the topic.", section="What")
@option(
    "--path-to-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Partitions in a file.",
    section="What",
)
@option("--all-topic-partitions", is_flag=True, help="All partitions that need it.", section="What")
@connection_options
@option(
    "--admin.config",
    "admin_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same, Kafka's old flag.",
    section="Connection",
)
@json_option
def command(
    election_type: str,
    topic: str | None,
    partition: int | None,
    path_to_json_file: Path | None,
    all_topic_partitions: bool,
    bootstrap_server: str,
    command_config: Path | None,
    admin_config: Path | None,
    as_json: bool,
) -> None:
    """Elect leaders of partitions. The flags are those of kafka-leader-election."""
    if sum((topic is not None, path_to_json_file is not None, all_topic_partitions)) != 1:
        raise click.UsageError("Give one of --topic, --path-to-json-file and --all-topic-partitions.")
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition go together.")
    if admin_config is not None:
        if command_config is not None:
            raise click.UsageError("Give --command-config or --admin.config, not both.")
        remark("Option --admin.config is deprecated in Kafka: use --command-config.")
    partitions = None
    if topic is not None and partition is not None:
        from barnabas.model.ids import TopicPartition

        partitions = [TopicPartition(topic, partition)]
    elif path_to_json_file is not None:
        partitions = read_partitions(path_to_json_file)

    from barnabas.cli import connection
    from barnabas.clients.replicas import Election, elect_leaders

    kind = Election[election_type.upper()]
    with connection.open_cluster(bootstrap_server, command_config or admin_config) as cluster:
        results = elect_leaders(cluster, kind, partitions)
    show(kind, results, as_json=as_json)


def read_partitions(file: Path) -> list[TopicPartition]:
    """The partitions of a file; raises UsageError."""
    from barnabas.model.ids import TopicPartition

    try:
        listed = json.loads(read_text(file))["partitions"]
        found = [TopicPartition(str(one["topic"]), int(one["partition"])) for one in listed]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(
            f'{file} is not of the form {{"partitions": [{{"topic": "NAME", "partition": 0}}]}} ({error!r}).'
        ) from error
    repeated = sorted({one for one in found if found.count(one) > 1})
    if repeated:
        raise click.UsageError(f"{file} has {', '.join(map(str, repeated))} more than once.")
    return found


def show(kind: Election, results: dict[TopicPartition, RequestRefused | None], *, as_json: bool) -> None:
    """Kafka's lines; raises Failed when an election failed."""
    from barnabas.model.errors import ErrorCode

    elected = sorted(partition for partition, error in results.items() if error is None)
    needless = {
        partition for partition, error in results.items() if error and error.code == ErrorCode.election_not_needed
    }
    failed = {partition: error for partition, error in sorted(results.items()) if error and partition not in needless}
    if as_json:
        print_json(
            {
                "elected": [_json(partition) for partition in elected],
                "notNeeded": [_json(partition) for partition in sorted(needless)],
                "failed": [{**_json(partition), "error": str(error)} for partition, error in failed.items()],
            }
        )
    else:
        if elected:
            done = ", ".join(map(str, elected))
            click.echo(f"Successfully completed leader election ({kind.name}) for partitions {done}")
        if needless:
            click.echo(f"Valid replica already elected for partitions {', '.join(map(str, sorted(needless)))}")
        for partition, error in failed.items():
            click.echo(f"Error completing leader election ({kind.name}) for partition: {partition}: {error}")
        if not results:
            remark("No partition needs an election.")
    if failed:
        raise Failed(f"{len(failed)} replica(s) could not be elected")


def _json(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}
