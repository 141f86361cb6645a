"""`barnabas topics`: kafka-topics with its flags, its rules about which flags go together, and its output.

What differs from kafka-topics, on purpose: --bootstrap-server has a default, --alter takes --config and --delete-config
(Kafka has a second tool for that), errors go to standard error, and a terminal gets a table. The columns Elr and
LastKnownElr are there for scripts that read lines by column, and empty: Barnabas has no eligible leader replicas, and
librdkafka does not ask other brokers for theirs.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import POSITIVE32, Whole
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table, remark
from barnabas.clients.limits import MOST_PARTITIONS, MOST_REPLICAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from barnabas.clients.admin import Admin, ConfigValue, PartitionInfo, TopicInfo
    from barnabas.clients.topic_list import ListedTopic

PARTITIONS_AT_ONCE = 10_000
"""So many are made by one request, here and in Apache Kafka."""
ACTIONS = ("create", "list", "describe", "alter", "delete")
REPORTS = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
ALLOWED_WITH = {
    "config": ("create", "alter"),
    "delete_config": ("alter",),
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    "if_not_exists": ("create",),
    "if_exists": ("alter", "delete", "describe"),
    "exclude_internal": ("list", "describe"),
    "topic_id": ("describe",),
    "topics_with_overrides": ("describe",),
    **dict.fromkeys(REPORTS, ("describe",)),
}
"""Which actions an option goes with; the others take all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line, one field per option."""

    bootstrap_server: str
    command_config: Path | None
    create: bool
    list: bool
    describe: bool
    alter: bool
    delete: bool
    topic: str | None
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    config: tuple[str, ...]
    delete_config: tuple[str, ...]
    if_not_exists: bool
    if_exists: bool
    exclude_internal: bool
    topics_with_overrides: bool
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    partition_size_limit_per_response: int | None
    as_json: bool

    @property
    def action(self) -> str:
        """The one action that was asked for."""
        return next(action for action in ACTIONS if getattr(self, action))

    @property
    def report(self) -> bool:
        """Whether only partitions in some trouble are wanted."""
        return any(getattr(self, report) for report in REPORTS)

    def check(self) -> None:
        """Refuse combinations that mean nothing, with Kafka's rules."""
        actions = [action for action in ACTIONS if getattr(self, action)]
        if len(actions) != 1:
            raise click.UsageError("Give exactly one action: --create, --list, --describe, --alter or --delete.")
        for name, allowed in ALLOWED_WITH.items():
            if getattr(self, name) not in (None, False, ()) and self.action not in allowed:
                wanted = " or ".join(f"--{action}" for action in allowed)
                raise click.UsageError(f"{_flag(name)} goes with {wanted}, not with --{self.action}.")
        if self.action in ("create", "alter", "delete") and not self.topic:
            raise click.UsageError(f"--{self.action} needs --topic.")
        if self.describe and self.if_exists and not (self.topic or self.topic_id):
            raise click.UsageError("--if-exists needs --topic or --topic-id.")
        if self.create and self.replica_assignment and (self.partitions or self.replication_factor):
            raise click.UsageError(
                "--replica-assignment says how many partitions and replicas there are: "
                "leave out --partitions and --replication-factor."
            )
        if self.alter and not (self.partitions or self.config or self.delete_config):
            raise click.UsageError("--alter needs --partitions, --config or --delete-config.")
        if self.alter and self.replica_assignment and not self.partitions:
            raise click.UsageError("--alter with --replica-assignment needs --partitions.")
        if self.topics_with_overrides and self.report:
            raise click.UsageError("--topics-with-overrides does not go with a report on partitions.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@click.command(
    cls=Command,
    examples=[
        ("make a topic", "barnabas topics --create --topic orders --partitions 6 --config retention.ms=86400000"),
        ("see what is there", "barnabas topics --list"),
        ("look at one, or at all whose name matches", "barnabas topics --describe --topic 'orders.*'"),
        ("more partitions", "barnabas topics --alter --topic orders --partitions 12"),
        ("keep records for an hour", "barnabas topics --alter --topic orders --config retention.ms=3600000"),
        ("go back to the broker's default", "barnabas topics --alter --topic orders --delete-config retention.ms"),
        ("delete, and do not mind if it is gone", "barnabas topics --delete --topic orders --if-exists"),
        ("for a script", "barnabas topics --describe --json | jq '.[].partitionCount'"),
    ],
)
@option("--create", is_flag=True, help="Create a topic.", section="Actions")
@option("--list", is_flag=True, help="List topics.", section="Actions")
@option("--describe", is_flag=True, help="Show partitions, replicas and overridden configs.", section="Actions")
@option("--alter", is_flag=True, help="Add partitions, or change configs.", section="Actions")
@option("--delete", is_flag=True, help="Delete topics and all records in them.", section="Actions")
@option(
    "--topic",
    metavar="NAME",
    help="The topic. Except with --create: a regular expression for whole names; commas separate several.",
    section="Topic",
)
@option("--topic-id", metavar="ID", help="The topic with this id (--describe).", section="Topic")
@option(
    "--partitions",
    type=Whole(1, MOST_PARTITIONS),
    metavar="N",
    help="How many partitions; default: the broker's.",
    section="Topic",
)
@option(
    "--replication-factor",
    type=Whole(1, MOST_REPLICAS),
    metavar="N",
    help="How many copies of each partition; default: the broker's.",
    section="Topic",
)
@option(
    "--replica-assignment",
    metavar="0:1,1:2,...",
    help="Broker ids of each partition: replicas by colons, partitions by commas.",
    section="Topic",
)
@option("--config", metavar="KEY=VALUE", multiple=True, help="Set a config of the topic; repeatable.", section="Topic")
@option(
    "--delete-config",
    metavar="KEY",
    multiple=True,
    help="Return a config to the broker's default (--alter); repeatable.",
    section="Topic",
)
@option("--if-not-exists", is_flag=True, help="Succeed if the topic is there already (--create).", section="Topic")
@option("--if-exists", is_flag=True, help="Succeed if no topic matches.", section="Topic")
@option("--exclude-internal", is_flag=True, help="Leave out topics that brokers keep for themselves.", section="Filter")
@option("--topics-with-overrides", is_flag=True, help="Only topics with configs of their own.", section="Filter")
@option("--under-replicated-partitions", is_flag=True, help="Only where a replica is out of sync.", section="Filter")
@option("--unavailable-partitions", is_flag=True, help="Only where no live broker leads.", section="Filter")
@option("--under-min-isr-partitions", is_flag=True, help="Only below min.insync.replicas.", section="Filter")
@option("--at-min-isr-partitions", is_flag=True, help="Only exactly at min.insync.replicas.", section="Filter")
@connection_options
@option(
    "--partition-size-limit-per-response",
    type=POSITIVE32,
    metavar="N",
    help="Taken for Kafka's sake; has no effect.",
    section="Connection",
)
@json_option
def command(**values: Any) -> None:
    """Create, list, describe, alter and delete topics. The flags are those of kafka-topics."""
    options = Options(**values)
    options.check()
    if options.list:
        show_list(listed(options), options)
        return
    from barnabas.cli.connection import open_admin

    with open_admin(options.bootstrap_server, options.command_config) as admin:
        {"create": create, "describe": describe, "alter": alter, "delete": delete}[options.action](admin, options)


def create(admin: Admin, options: Options) -> None:
    """`--create`."""
    from barnabas.clients.admin import NewTopic
    from barnabas.clients.errors import RequestRefused
    from barnabas.model.errors import ErrorCode

    assert options.topic is not None
    topic = NewTopic(
        name=options.topic,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        assignment=parse_assignment(options.replica_assignment),
        configs=parse_configs(options.config),
    )
    if "." in topic.name or "_" in topic.name:
        remark(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    try:
        with many_at_once(options.partitions):
            admin.create_topic(topic)
    except RequestRefused as error:
        if error.code != ErrorCode.topic_already_exists or not options.if_not_exists:
            raise
        created = []
    else:
        created = [topic.name]
    if options.as_json:
        print_json({"created": created})
    else:
        for name in created:
            click.echo(f"Created topic {name}.")


@contextmanager
def many_at_once(partitions: int | None) -> Iterator[None]:
    """Say what to do when brokers refuse to make so many partitions; they only say that it is too much."""
    from barnabas.clients.errors import RequestRefused
    from barnabas.model.errors import ErrorCode

    try:
        yield
    except RequestRefused as error:
        if error.code != ErrorCode.policy_violation or (partitions or 0) <= PARTITIONS_AT_ONCE:
            raise
        raise Failed(
            f"{error} Brokers make at most {PARTITIONS_AT_ONCE} at once: begin with fewer, and add more with --alter."
        ) from error


def listed(options: Options) -> list[ListedTopic]:
    """All topics by name: in the quick way where that works, else by the admin client, which knows what is wrong."""
    from barnabas.cli import connection
    from barnabas.clients import topic_list

    if options.command_config is None:
        found = topic_list.list_topics(options.bootstrap_server)
        if found is not None:
            return found
    with connection.open_admin(options.bootstrap_server, options.command_config) as admin:
        return [
            topic_list.ListedTopic(topic.name, len(topic.partitions), topic.replication_factor)
            for topic in admin.topics()
        ]


def show_list(found: list[ListedTopic], options: Options) -> None:
    """`--list`."""
    topics = {topic.name: topic for topic in found}
    names = matching(topics, options.topic, exclude_internal=options.exclude_internal)
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json(names)
        case Style.PLAIN:
            for name in names:
                click.echo(name)
        case Style.TABLE if not names:
            remark("No topics.")
        case Style.TABLE:
            print_table(
                ("Topic", "Partitions", "Replicas"),
                (topics[name] for name in names),
            )


def alter(admin: Admin, options: Options) -> None:
    """`--alter`: partitions first, then configs."""
    names = required_topics(admin, options)
    assignment = parse_assignment(options.replica_assignment)
    configs = parse_configs(options.config)
    if options.partitions is not None:
        for topic in admin.describe_topics(names):
            with many_at_once(options.partitions - len(topic.partitions)):
                admin.create_partitions(topic.name, options.partitions, assignment[len(topic.partitions) :])
    if configs or options.delete_config:
        for name in names:
            admin.alter_topic_config(name, set_=configs, delete=options.delete_config)
    confirm("altered", names, as_json=options.as_json)


def delete(admin: Admin, options: Options) -> None:
    """`--delete`."""
    names = required_topics(admin, options)
    admin.delete_topics(names)
    confirm("deleted", names, as_json=options.as_json)


def confirm(done: str, names: list[str], *, as_json: bool) -> None:
    """Tell a person, or a program that asked for JSON; in a pipe kafka-topics says nothing."""
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json({done: names})
        case Style.TABLE:
            for name in names:
                click.echo(f"{done.capitalize()} topic {name}.")
        case Style.PLAIN:
            pass


def describe(admin: Admin, options: Options) -> None:
    """`--describe`."""
    names = required_topics(admin, options)
    topics = admin.describe_topics(names)
    if options.topic_id:
        topics = [topic for topic in topics if topic.topic_id == options.topic_id]
        if not topics and not options.if_exists:
            raise Failed(f"TopicId '{options.topic_id}' does not exist as expected")
    configs = admin.topic_configs(topic.name for topic in topics)
    live = admin.live_brokers() if options.unavailable_partitions else frozenset[int]()
    shown = [
        Described(topic, overridden(configs[topic.name]), wanted_partitions(topic, configs[topic.name], live, options))
        for topic in topics
        if not options.topics_with_overrides or overridden(configs[topic.name])
    ]
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json([described.as_json(with_partitions=not options.topics_with_overrides) for described in shown])
        case Style.PLAIN:
            for described in shown:
                described.print_lines(options)
        case Style.TABLE:
            for described in shown:
                described.print_table(options)


@dataclass(frozen=True, slots=True)
class Described:
    """A topic as `--describe` shows it: its overridden configs, and those of its partitions that were asked for."""

    topic: TopicInfo
    configs: list[ConfigValue]
    partitions: list[PartitionInfo]

    @property
    def config_text(self) -> str:
        """Overridden configs as kafka-topics writes them."""
        return ",".join(f"{config.name}={config.value}" for config in self.configs)

    def print_lines(self, options: Options) -> None:
        """One line for the topic and one per partition, as kafka-topics prints them."""
        topic = self.topic
        if not options.report:
            fields = [f"Topic: {topic.name}"]
            if topic.topic_id:
                fields.append(f"TopicId: {topic.topic_id}")
            fields.append(f"PartitionCount: {len(topic.partitions)}")
            fields.append(f"ReplicationFactor: {topic.replication_factor}")
            fields.append(f"Configs: {self.config_text}")
            click.echo("\t".join(fields))
        if options.topics_with_overrides:
            return
        for partition in self.partitions:
            click.echo(
                f"\tTopic: {topic.name}\tPartition: {partition.partition}"
                f"\tLeader: {'none' if partition.leader is None else partition.leader}"
                f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}\tElr: \tLastKnownElr: "
            )

    def print_table(self, options: Options) -> None:
        """A heading and a table of partitions."""
        topic = self.topic
        if options.report and not self.partitions:
            return
        click.echo(click.style(topic.name, bold=True) + (f"  id {topic.topic_id}" if topic.topic_id else ""))
        if self.configs:
            click.echo(self.config_text)
        if options.topics_with_overrides:
            return
        print_table(
            ("Partition", "Leader", "Replicas", "In sync"),
            (
                (p.partition, "none" if p.leader is None else p.leader, _ids(p.replicas), _ids(p.isr))
                for p in self.partitions
            ),
        )

    def as_json(self, *, with_partitions: bool) -> dict[str, object]:
        """Everything, as plain values."""
        value: dict[str, object] = {
            "topic": self.topic.name,
            "topicId": self.topic.topic_id,
            "partitionCount": len(self.topic.partitions),
            "replicationFactor": self.topic.replication_factor,
            "configs": {config.name: config.value for config in self.configs},
        }
        if with_partitions:
            value["partitions"] = [
                {"partition": p.partition, "leader": p.leader, "replicas": list(p.replicas), "isr": list(p.isr)}
                for p in self.partitions
            ]
        return value


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def overridden(configs: list[ConfigValue]) -> list[ConfigValue]:
    """Configs that somebody has set: for the topic, for a broker or in a file."""
    return [config for config in configs if not config.default]


def wanted_partitions(
    topic: TopicInfo, configs: list[ConfigValue], live: frozenset[int], options: Options
) -> list[PartitionInfo]:
    """All partitions, or with reports those that one of the reports is about."""
    if not options.report:
        return list(topic.partitions)
    min_isr = next((int(config.value or 1) for config in configs if config.name == "min.insync.replicas"), 1)

    def wanted(partition: PartitionInfo) -> bool:
        isr = len(partition.isr)
        return (
            (options.under_replicated_partitions and isr < len(partition.replicas))
            or (options.unavailable_partitions and partition.leader not in live)
            or (options.under_min_isr_partitions and (partition.leader is None or isr < min_isr))
            or (options.at_min_isr_partitions and isr == min_isr)
        )

    return [partition for partition in topic.partitions if wanted(partition)]


def required_topics(admin: Admin, options: Options) -> list[str]:
    """Names that match --topic; none is an error unless --if-exists."""
    pattern = None if options.topic_id else options.topic
    names = matching(admin.topic_names(), pattern, exclude_internal=options.exclude_internal)
    if pattern and not names and not options.if_exists:
        raise Failed(f"Topic '{pattern}' does not exist as expected. `barnabas topics --list` shows what is there.")
    return names


def matching(names: Iterable[str], pattern: str | None, *, exclude_internal: bool) -> list[str]:
    """Names that a pattern of kafka-topics takes: a regular expression for the whole name, commas for "or"."""
    found = list(names)
    if exclude_internal:
        from barnabas.clients.admin import INTERNAL_TOPICS

        found = [name for name in found if name not in INTERNAL_TOPICS]
    if not pattern:
        return found
    try:
        expression = re.compile(pattern.replace(" ", "").strip("\"'").replace(",", "|"))
    except re.error as error:
        raise click.UsageError(f"--topic {pattern} is not a regular expression: {error}.") from error
    return [name for name in found if expression.fullmatch(name)]


def parse_configs(pairs: tuple[str, ...]) -> dict[str, str]:
    """KEY=VALUE pairs as a dictionary; the last of a key counts."""
    configs = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"--config {pair} is not of the form KEY=VALUE.")
        configs[key.strip()] = value.strip()
    return configs


def parse_assignment(text: str | None) -> list[list[int]]:
    """`0:1,1:2` as the replicas of each partition."""
    if not text:
        return []
    try:
        assignment = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--replica-assignment {text}: broker ids are numbers, as in 0:1,1:2.") from error
    for partition, replicas in enumerate(assignment):
        if len(set(replicas)) != len(replicas):
            raise click.UsageError(f"--replica-assignment {text}: partition {partition} names a broker twice.")
        if len(replicas) != len(assignment[0]):
            raise click.UsageError(
                f"--replica-assignment {text}: partition {partition} has {len(replicas)} replicas, "
                f"partition 0 has {len(assignment[0])}."
            )
    return assignment
