"""The command line of `barnabas topics`.

What differs from kafka-topics, on purpose: --bootstrap-server has a default, --alter takes --config and --delete-config
(Kafka has a second tool for that), errors go to standard error, and a terminal gets a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import POSITIVE32, Whole
from barnabas.cli.output import json_option
from barnabas.cli.topics.options import Options
from barnabas.clients.limits import MOST_PARTITIONS, MOST_REPLICAS

if TYPE_CHECKING:
    from barnabas.clients.admin import Admin


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
        from barnabas.cli.topics.listing import listed, show_list

        show_list(listed(options), options)
        return
    from barnabas.cli.connection import open_admin

    with open_admin(options.bootstrap_server, options.command_config) as admin:
        run(admin, options)


def run(admin: Admin, options: Options) -> None:
    """Do what the options ask for."""
    from barnabas.cli.topics import changes, describe

    match options.action:
        case "create":
            changes.create(admin, options)
        case "describe":
            describe.describe(admin, options)
        case "alter":
            changes.alter(admin, options)
        case "delete":
            changes.delete(admin, options)
