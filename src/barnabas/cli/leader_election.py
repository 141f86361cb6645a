"""`barnabas leader-election`: kafka-leader-election with its flags and its lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.combinations import exactly_one, renamed
from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option, print_json, remark
from barnabas.cli.common.values.files import FILE, read_properties, read_text
from barnabas.cli.common.values.numbers import INT32

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.clients.admin.replicas import Election
    from barnabas.clients.errors import RequestRefused
    from barnabas.model.ids import TopicPartition

KINDS = ("preferred", "unclean")


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas leader-election`."""

    election_type: str
    topic: str | None
    partition: int | None
    path_to_json_file: Path | None
    all_topic_partitions: bool
    admin_config: Path | None
    as_json: bool

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        exactly_one(self, "topic", "path_to_json_file", "all_topic_partitions")
        if (self.topic is None) != (self.partition is None):
            raise click.UsageError("--topic and --partition go together.")

    @cached_property
    def given_properties(self) -> dict[str, str]:
        """What the file of --command-config or --admin.config says."""
        file: Path | None = getattr(self, renamed(self, "command_config", "admin_config"))
        return {} if file is None else read_properties(file)

    def partitions(self) -> list[TopicPartition] | None:
        """The partitions that are meant; None for all that need an election."""
        from barnabas.model.ids import TopicPartition

        if self.topic is not None and self.partition is not None:
            return [TopicPartition(self.topic, self.partition)]
        return None if self.path_to_json_file is None else read_partitions(self.path_to_json_file)


@click.command(
    "leader-election",
    cls=Command,
    examples=[
        (
            "give leadership back to the preferred replicas after a restart",
            "barnabas leader-election --election-type preferred --all-topic-partitions",
        ),
        (
            "for one partition",
            "barnabas leader-election --election-type preferred --topic orders --partition 0",
        ),
        (
            "elect a replica that is not in sync, and lose the records that it does not have",
            "barnabas leader-election --election-type unclean --topic orders --partition 0",
        ),
        (
            "for the partitions of a file",
            "barnabas leader-election --election-type preferred --path-to-json-file partitions.json    "
            '# {"partitions": [{"topic": "orders", "partition": 1}]}',
        ),
    ],
)
@option(
    "--election-type",
    type=click.Choice(KINDS, case_sensitive=False),
    required=True,
    help="preferred: elect the first replica, if it is in sync. unclean: elect any live replica, if there is no "
    "leader.",
    section="What",
)
@option("--topic", metavar="NAME", help="The topic, with --partition.", section="What")
@option("--partition", type=INT32, metavar="N", help="The partition of the topic.", section="What")
@option(
    "--path-to-json-file",
    type=FILE,
    metavar="FILE",
    help="A JSON file with partitions.",
    section="What",
)
@option("--all-topic-partitions", is_flag=True, help="All partitions that need an election.", section="What")
@connection_options
@option(
    "--admin.config",
    "admin_config",
    type=FILE,
    help="Older name of --command-config.",
    section="Connection",
)
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Elect leaders of partitions. The flags are those of kafka-leader-election."""
    from barnabas.clients.admin.replicas import Election

    kind = Election[options.election_type.upper()]
    partitions = options.partitions()
    with options.connect() as cluster:
        results = cluster.replicas.elect_leaders(kind, partitions)
    show(kind, results, as_json=options.as_json)


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
