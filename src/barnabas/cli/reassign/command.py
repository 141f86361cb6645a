"""The command line of `barnabas reassign-partitions`, and its five actions.

What differs from kafka-reassign-partitions, on purpose: errors go to standard error, --list and --verify have --json,
and --generate proposes by the rules by which Barnabas places new topics.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import INT64, POSITIVE32
from barnabas.cli.output import json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.reassign.plans import Plan
    from barnabas.clients.replicas import Replica
    from barnabas.clients.wire import Cluster
    from barnabas.model.ids import TopicPartition

ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
NEEDED: Final = {
    "generate": ("topics_to_move_json_file", "broker_list"),
    "execute": ("reassignment_json_file",),
    "verify": ("reassignment_json_file",),
    "cancel": ("reassignment_json_file",),
    "list": (),
}
ALLOWED: Final = {
    "generate": ("disable_rack_aware",),
    "execute": (
        "additional",
        "throttle",
        "replica_alter_log_dirs_throttle",
        "timeout",
        "disallow_replication_factor_change",
    ),
    "verify": ("preserve_throttles", "as_json"),
    "cancel": ("preserve_throttles", "timeout"),
    "list": ("as_json",),
}
CONNECTION: Final = ("bootstrap_server", "command_config")
DEFAULT_TIMEOUT_MS: Final = 10_000
RETRY_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line, one field per option."""

    bootstrap_server: str
    command_config: Path | None
    generate: bool
    execute: bool
    verify: bool
    cancel: bool
    list: bool
    reassignment_json_file: Path | None
    topics_to_move_json_file: Path | None
    broker_list: str | None
    disable_rack_aware: bool
    throttle: int | None
    replica_alter_log_dirs_throttle: int | None
    timeout: int | None
    additional: bool
    preserve_throttles: bool
    disallow_replication_factor_change: bool
    as_json: bool

    @property
    def action(self) -> str:
        """The one action that was asked for."""
        return next(action for action in ACTIONS if getattr(self, action))

    def check(self) -> None:
        """Refuse combinations that mean nothing, with Kafka's rules."""
        if sum(getattr(self, action) for action in ACTIONS) != 1:
            raise click.UsageError(f"Give exactly one action: {', '.join(map(_flag, ACTIONS))}.")
        for name in NEEDED[self.action]:
            if getattr(self, name) is None:
                raise click.UsageError(f"--{self.action} needs {_flag(name)}.")
        for name in self.__slots__:
            given = getattr(self, name) not in (None, False)
            if given and name not in (self.action, *NEEDED[self.action], *ALLOWED[self.action], *CONNECTION):
                raise click.UsageError(f"{_flag(name)} does not go with --{self.action}.")


def _flag(name: str) -> str:
    return "--json" if name == "as_json" else "--" + name.replace("_", "-")


@click.command(
    "reassign-partitions",
    cls=Command,
    examples=[
        (
            "propose how topics could lie on brokers 1, 2 and 3",
            """echo '{"topics": [{"topic": "orders"}]}' > topics.json
  barnabas reassign-partitions --generate --topics-to-move-json-file topics.json --broker-list 1,2,3""",
        ),
        (
            "do it, with at most 10 MB a second between brokers",
            "barnabas reassign-partitions --execute --reassignment-json-file plan.json --throttle 10000000",
        ),
        (
            "see how far it is; when it is done, this removes the limit too",
            "barnabas reassign-partitions --verify --reassignment-json-file plan.json",
        ),
        ("what moves at all", "barnabas reassign-partitions --list"),
        ("give it up", "barnabas reassign-partitions --cancel --reassignment-json-file plan.json"),
    ],
)
@option("--generate", is_flag=True, help="Propose a plan, and do nothing.", section="Actions")
@option("--execute", is_flag=True, help="Begin to move partitions as a plan says.", section="Actions")
@option("--verify", is_flag=True, help="Say how far it is; remove limits when it is done.", section="Actions")
@option("--cancel", is_flag=True, help="Give up moves that are under way.", section="Actions")
@option("--list", is_flag=True, help="List moves that are under way.", section="Actions")
@option(
    "--reassignment-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='The plan: {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], '
    '"log_dirs": ["any", "/disk"]}], "version": 1}; log_dirs may be left out. Brokers of Barnabas have a say in where '
    "a new replica lies, but leave one where it is.",
    section="What",
)
@option(
    "--topics-to-move-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='The topics of a plan to be made: {"topics": [{"topic": "t"}], "version": 1}.',
    section="What",
)
@option("--broker-list", metavar="1,2,...", help="The brokers of a plan to be made.", section="What")
@option("--disable-rack-aware", is_flag=True, help="Do not look at racks (--generate).", section="What")
@option("--additional", is_flag=True, help="Although other moves are under way (--execute).", section="What")
@option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="Refuse a plan with more or fewer replicas (--execute).",
    section="What",
)
@option(
    "--throttle",
    type=INT64,
    metavar="BYTES",
    help="At most so much a second between brokers (--execute).",
    section="Limits",
)
@option(
    "--replica-alter-log-dirs-throttle",
    type=INT64,
    metavar="BYTES",
    help="At most so much a second between directories of a broker (--execute).",
    section="Limits",
)
@option("--preserve-throttles", is_flag=True, help="Leave limits as they are (--verify, --cancel).", section="Limits")
@option(
    "--timeout",
    type=POSITIVE32,
    metavar="MS",
    help="How long to wait for moves between directories to begin.  [default: 10000]",
    section="Limits",
)
@connection_options
@json_option
def command(**values: Any) -> None:
    """Move partitions to other brokers or directories. The flags are those of kafka-reassign-partitions."""
    options = Options(**values)
    options.check()

    from barnabas.cli import connection

    with connection.open_cluster(options.bootstrap_server, options.command_config) as cluster:
        {"generate": generate, "execute": execute, "verify": verify, "cancel": cancel, "list": show_list}[
            options.action
        ](cluster, options)


def show_list(cluster: Cluster, options: Options) -> None:
    """`--list`."""
    from barnabas.cli.reassign.progress import ongoing_lines
    from barnabas.clients.replicas import reassignments

    ongoing = reassignments(cluster)
    if options.as_json:
        print_json(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": move.replicas,
                    "adding": move.adding,
                    "removing": move.removing,
                }
                for partition, move in sorted(ongoing.items())
            ]
        )
    elif ongoing:
        click.echo("Current partition reassignments:")
        for line in ongoing_lines(ongoing):
            click.echo(line)
    else:
        click.echo("No partition reassignments found.")


def generate(cluster: Cluster, options: Options) -> None:
    """`--generate`."""
    from barnabas.cli.reassign.plans import as_text, read_topics
    from barnabas.cli.reassign.progress import directories
    from barnabas.clients.replicas import layout
    from barnabas.machines.controller.placement import place

    assert options.topics_to_move_json_file is not None
    topics = read_topics(options.topics_to_move_json_file)
    wanted = parse_brokers(options.broker_list or "")
    found = layout(cluster, topics)
    missing = sorted(set(topics) - {partition.topic for partition in found.replicas})
    if missing:
        raise Failed(f"Topic {missing[0]} not found.")
    racks = {broker: rack for broker, rack in found.racks.items() if broker in wanted}
    if options.disable_rack_aware:
        racks = dict.fromkeys(racks)
    elif len({rack is None for rack in racks.values()}) == 2:
        raise Failed(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in topics:
        partitions = sorted(partition for partition in found.replicas if partition.topic == topic)
        factor = len(found.replicas[partitions[0]])
        start = random.randrange(max(len(racks), 1) ** 2)
        placed = place(racks, start, range(len(partitions)), factor)
        proposed.update(zip(partitions, placed, strict=True))
    current, _ = directories(cluster, {broker for brokers in found.replicas.values() for broker in brokers})
    click.echo(f"Current partition replica assignment\n{as_text(found.replicas, current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{as_text(proposed, {})}")


def parse_brokers(text: str) -> list[int]:
    """Broker ids by commas; raises UsageError."""
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--broker-list {text} is not a list of numbers.") from error
    if len(set(brokers)) != len(brokers):
        raise click.UsageError(f"--broker-list {text} has a broker more than once.")
    return brokers


def execute(cluster: Cluster, options: Options) -> None:
    """`--execute`."""
    from barnabas.cli.reassign import throttles
    from barnabas.cli.reassign.plans import as_text
    from barnabas.cli.reassign.progress import directories
    from barnabas.clients.replicas import layout, move_to_directories, reassign, reassignments

    plan = _plan(options)
    ongoing = reassignments(cluster)
    if ongoing and not options.additional:
        raise Failed(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be used "
            "to change the throttle by resubmitting the current reassignment."
        )
    found = layout(cluster, plan.topics)
    _check_existence(plan, found.racks, found.replicas)
    current = {partition: found.replicas[partition] for partition in plan.replicas}
    paths, _ = directories(cluster, {broker for brokers in current.values() for broker in brokers})
    click.echo(
        f"Current partition replica assignment\n\n{as_text(current, paths)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    if options.throttle is not None or options.replica_alter_log_dirs_throttle is not None:
        click.echo(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
            "is removed."
        )
    if options.throttle is not None:
        throttles.limit_moves(cluster, throttles.moves(ongoing, plan.replicas, current), options.throttle)
    if options.replica_alter_log_dirs_throttle is not None:
        brokers = {replica.broker for replica in plan.directories}
        throttles.limit_directories(cluster, brokers, options.replica_alter_log_dirs_throttle)
    coming = {
        replica: path for replica, path in plan.directories.items() if replica.broker not in current[replica.partition]
    }
    move_to_directories(cluster, coming)  # so that they are made there, and need not be moved
    refused = reassign(
        cluster, plan.replicas, allow_replication_factor_change=not options.disallow_replication_factor_change
    )
    if refused:
        reasons = "\n".join(f"{partition}: {error}" for partition, error in sorted(refused.items()))
        raise Failed(f"Error reassigning partition(s):\n{reasons}")
    names = ",".join(map(str, sorted(plan.replicas)))
    click.echo(f"Successfully started partition reassignment{_s(plan.replicas)} for {names}")
    move_directories(cluster, plan.directories, options)


def _plan(options: Options) -> Plan:
    from barnabas.cli.reassign.plans import read_plan

    assert options.reassignment_json_file is not None
    return read_plan(options.reassignment_json_file)


def _check_existence(plan: Plan, brokers: Mapping[int, Any], replicas: Mapping[Any, Any]) -> None:
    unknown = sorted(plan.brokers - brokers.keys())
    if unknown:
        raise Failed(f"Unknown broker id {unknown[0]}; there are {', '.join(map(str, sorted(brokers)))}.")
    missing = sorted(plan.replicas.keys() - replicas.keys())
    if missing:
        raise Failed(f"Unable to find partition: {', '.join(map(str, missing))}")


def move_directories(cluster: Cluster, wanted: Mapping[Replica, str], options: Options) -> None:
    """Begin moves between directories; a replica can only be asked for once it is on its broker."""
    from barnabas.clients.replicas import move_to_directories

    deadline = time.monotonic() + (options.timeout or DEFAULT_TIMEOUT_MS) / 1000
    pending = dict(wanted)
    while pending:
        for replica in sorted(move_to_directories(cluster, pending)):
            click.echo(
                f"Successfully started moving log directory to {pending.pop(replica)} for replica "
                f"{replica.partition} with broker {replica.broker}"
            )
        if pending and time.monotonic() >= deadline:
            names = ",".join(map(str, sorted(pending)))
            raise Failed(f"Timed out before log directory move{_s(pending)} could be started for: {names}")
        if pending:
            time.sleep(RETRY_SECONDS)


def verify(cluster: Cluster, options: Options) -> None:
    """`--verify`."""
    from barnabas.cli.reassign.progress import directories_of, partitions_of
    from barnabas.clients.replicas import reassignments

    plan = _plan(options)
    ongoing = reassignments(cluster)
    partitions = partitions_of(cluster, plan, ongoing)
    replicas = directories_of(cluster, plan)
    if options.as_json:
        print_json(
            {
                "partitions": [
                    {
                        "topic": one.partition.topic,
                        "partition": one.partition.partition,
                        "replicas": one.current,
                        "target": one.target,
                        "moving": one.moving,
                    }
                    for one in partitions
                ],
                "directories": [
                    {
                        "topic": one.replica.partition.topic,
                        "partition": one.replica.partition.partition,
                        "broker": one.replica.broker,
                        "directory": one.current,
                        "target": one.target,
                        "moving": one.moving,
                    }
                    for one in replicas
                ],
            }
        )
    else:
        click.echo("Status of partition reassignment:")
        for progress in partitions:
            click.echo(progress.text)
        click.echo("\n".join(one.text for one in replicas))
    if not ongoing and not any(one.moving for one in replicas) and not options.preserve_throttles:
        clear_throttles(cluster, plan, quiet=options.as_json)


def clear_throttles(cluster: Cluster, plan: Plan, *, quiet: bool = False) -> None:
    """Remove limits from all brokers that could have been part of the moves, and from the topics of the plan."""
    from barnabas.cli.reassign import throttles

    brokers = {node.id for node in cluster.nodes()} | plan.brokers
    throttles.clear(cluster, brokers, plan.topics, quiet=quiet)


def cancel(cluster: Cluster, options: Options) -> None:
    """`--cancel`."""
    from barnabas.cli.reassign.progress import directories_of
    from barnabas.clients.replicas import reassign, reassignments

    plan = _plan(options)
    moving = sorted(reassignments(cluster, plan.replicas))
    if moving:
        refused = reassign(cluster, dict.fromkeys(moving))
        if refused:
            reasons = "\n".join(f"{partition}: {error}" for partition, error in sorted(refused.items()))
            raise Failed(f"Error cancelling partition reassignment{_s(refused)} for:\n{reasons}")
        names = ",".join(map(str, moving))
        click.echo(f"Successfully cancelled partition reassignment{_s(moving)} for: {names}")
    else:
        click.echo("None of the specified partition reassignments are active.")
    back = {one.replica: one.current for one in directories_of(cluster, plan) if one.current and one.future is not None}
    if back:
        move_directories(cluster, back, options)
    else:
        click.echo("None of the specified partition moves are active.")
    if not options.preserve_throttles:
        clear_throttles(cluster, plan)


def _s(things: Any) -> str:
    return "" if len(things) == 1 else "s"
