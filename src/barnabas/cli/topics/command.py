"""The command line of `barnabas topics`.

What differs from kafka-topics, on purpose: --bootstrap-server has a default, --alter takes --config and --delete-config
(Kafka has a second tool for that), errors go to standard error, and a terminal gets a table.
"""

from __future__ import annotations

import click

from barnabas.cli.common.connection import connection_options
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.common.values.numbers import POSITIVE32, Whole
from barnabas.cli.topics.options import Options
from barnabas.clients.limits import MOST_PARTITIONS, MOST_REPLICAS


@click.command(
    cls=Command,
    examples=[
        ("create a topic", "barnabas topics --create --topic orders --partitions 6 --config retention.ms=86400000"),
        ("list topics", "barnabas topics --list"),
        ("describe all topics whose names match", "barnabas topics --describe --topic 'orders.*'"),
        ("add partitions", "barnabas topics --alter --topic orders --partitions 12"),
        ("keep records for an hour", "barnabas topics --alter --topic orders --config retention.ms=3600000"),
        (
            "return a config to the broker's default",
            "barnabas topics --alter --topic orders --delete-config retention.ms",
        ),
        ("delete a topic if it exists", "barnabas topics --delete --topic orders --if-exists"),
        ("print JSON for a script", "barnabas topics --describe --json | jq '.[].partitionCount'"),
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
    help="The topic. Other actions than --create take a regular expression for whole names; commas separate several.",
    section="Topic",
)
@option("--topic-id", metavar="ID", help="The topic with this id (--describe).", section="Topic")
@option(
    "--partitions",
    type=Whole(1, MOST_PARTITIONS),
    metavar="N",
    help="The number of partitions.  [default: num.partitions of the broker]",
    section="Topic",
)
@option(
    "--replication-factor",
    type=Whole(1, MOST_REPLICAS),
    metavar="N",
    help="The number of replicas of each partition.  [default: default.replication.factor of the broker]",
    section="Topic",
)
@option(
    "--replica-assignment",
    metavar="0:1,1:2,...",
    help="The brokers of each partition: colons separate replicas, commas separate partitions.",
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
@option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already (--create).", section="Topic")
@option("--if-exists", is_flag=True, help="Succeed if no topic matches.", section="Topic")
@option(
    "--exclude-internal", is_flag=True, help="Leave out internal topics, such as __consumer_offsets.", section="Filter"
)
@option(
    "--topics-with-overrides",
    is_flag=True,
    help="Only topics with configs that override the broker's.",
    section="Filter",
)
@option(
    "--under-replicated-partitions",
    is_flag=True,
    help="Only partitions with a replica that is out of sync.",
    section="Filter",
)
@option("--unavailable-partitions", is_flag=True, help="Only partitions without a leader that is up.", section="Filter")
@option(
    "--under-min-isr-partitions",
    is_flag=True,
    help="Only partitions with fewer replicas in sync than min.insync.replicas.",
    section="Filter",
)
@option(
    "--at-min-isr-partitions",
    is_flag=True,
    help="Only partitions with exactly min.insync.replicas in sync.",
    section="Filter",
)
@connection_options
@option(
    "--partition-size-limit-per-response",
    type=POSITIVE32,
    metavar="N",
    help="Has no effect; accepted for compatibility with Kafka.",
    section="Connection",
)
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Create, list, describe, alter and delete topics. The flags are those of kafka-topics."""
    with options.connect() as cluster:
        match options.action:
            case "list":
                from barnabas.cli.topics.listing import show_list

                show_list(cluster, options)
            case "describe":
                from barnabas.cli.topics.describe import describe

                describe(cluster, options)
            case "create":
                from barnabas.cli.topics.changes import create

                create(cluster, options)
            case "alter":
                from barnabas.cli.topics.changes import alter

                alter(cluster, options)
            case "delete":
                from barnabas.cli.topics.changes import delete

                delete(cluster, options)
