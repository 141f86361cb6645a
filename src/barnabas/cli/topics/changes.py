"""`barnabas topics --create`, `--alter` and `--delete`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.config_names import suggest_config_names
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import Style, choose_style, print_json, remark
from barnabas.cli.common.values.pairs import parse_pairs
from barnabas.cli.topics.matching import required_topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.topics.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin

PARTITIONS_AT_ONCE = 10_000
"""So many are made by one request, here and in Apache Kafka."""


def create(cluster: ClusterAdmin, options: Options) -> None:
    """`--create`."""
    from barnabas.clients.admin.topics import NewTopic
    from barnabas.clients.errors import RequestRefused
    from barnabas.model.errors import ErrorCode

    assert options.topic is not None
    topic = NewTopic(
        name=options.topic,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        assignment=parse_assignment(options.replica_assignment),
        configs=configs_of(options),
    )
    if "." in topic.name or "_" in topic.name:
        remark(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    try:
        with many_at_once(options.partitions), suggest_config_names(topic.configs):
            cluster.topics.create_topic(topic)
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


def alter(cluster: ClusterAdmin, options: Options) -> None:
    """`--alter`: partitions first, then configs."""
    names = required_topics(cluster, options)
    assignment = parse_assignment(options.replica_assignment)
    configs = configs_of(options)
    if options.partitions is not None:
        for topic in cluster.topics.describe_topics(names):
            with many_at_once(options.partitions - len(topic.partitions)):
                cluster.topics.create_partitions(topic.name, options.partitions, assignment[len(topic.partitions) :])
    if configs or options.delete_config:
        for name in names:
            with suggest_config_names((*configs, *options.delete_config)):
                cluster.topics.alter_topic_config(name, set_=configs, delete=options.delete_config)
    confirm("altered", names, as_json=options.as_json)


def configs_of(options: Options) -> dict[str, str]:
    """What --config sets."""
    pairs = parse_pairs(options.config, "--config", "KEY=VALUE")
    return {key: value.strip() for key, value in pairs.items()}


def delete(cluster: ClusterAdmin, options: Options) -> None:
    """`--delete`."""
    names = required_topics(cluster, options)
    cluster.topics.delete_topics(names)
    confirm("deleted", names, as_json=options.as_json)


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
