"""The command line of `barnabas configs`.

What differs from kafka-configs, on purpose: an entity that is not there makes the exit code 1, and a terminal gets a
table. Passwords of users are not set here, where every user of the machine can read them, but by `barnabas users`.
"""

from __future__ import annotations

import click

from barnabas.cli.common.connection import connection_options
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.common.values.files import FILE
from barnabas.cli.configs.alter import additions, alter, parse_deletions
from barnabas.cli.configs.describe import describe
from barnabas.cli.configs.options import ALL_TYPES, Options
from barnabas.cli.quotas.entity import entity_options


@click.command(
    cls=Command,
    examples=[
        ("show what was set for a topic", "barnabas configs --describe --topic orders"),
        (
            "show all configs of a topic, and where each value comes from",
            "barnabas configs --describe --topic orders --all",
        ),
        ("keep records for an hour", "barnabas configs --alter --topic orders --add-config retention.ms=3600000"),
        (
            "set several configs; brackets enclose a list",
            "barnabas configs --alter --topic orders --add-config 'cleanup.policy=[compact,delete],segment.ms=60000'",
        ),
        (
            "return configs to their defaults",
            "barnabas configs --alter --topic orders --delete-config retention.ms,segment.ms",
        ),
        (
            "set a config of all brokers while they run",
            "barnabas configs --alter --broker-defaults --add-config log.cleaner.threads=2",
        ),
        ("show the log levels of broker 1", "barnabas configs --describe --broker-logger 1"),
        (
            "give members of a group a session timeout of a minute",
            "barnabas configs --alter --group billing --add-config consumer.session.timeout.ms=60000",
        ),
        (
            "let a user produce one megabyte a second, on each broker",
            "barnabas configs --alter --user alice --add-config producer_byte_rate=1048576",
        ),
        (
            "use Kafka's long form",
            "barnabas configs --describe --entity-type topics --entity-name orders",
        ),
    ],
)
@option("--describe", is_flag=True, help="Show configs.", section="Actions")
@option("--alter", is_flag=True, help="Change configs.", section="Actions")
@option("--topic", metavar="NAME", help="The topic.", section="Entity")
@option("--broker", metavar="ID", help="The broker.", section="Entity")
@option("--broker-defaults", is_flag=True, help="The defaults of all brokers.", section="Entity")
@option("--broker-logger", metavar="ID", help="The loggers of this broker.", section="Entity")
@option("--group", metavar="ID", help="The consumer group.", section="Entity")
@entity_options
@option("--client-metrics", metavar="NAME", help="The subscription to metrics of clients.", section="Entity")
@option(
    "--entity-type",
    type=click.Choice(list(ALL_TYPES)),
    multiple=True,
    help="The type of entity, in Kafka's long form.",
    section="Entity",
)
@option(
    "--entity-name", metavar="NAME", multiple=True, help="The name of the entity.  [default: all]", section="Entity"
)
@option("--entity-default", is_flag=True, help="The defaults of all brokers, users and the like.", section="Entity")
@option(
    "--all", is_flag=True, help="Also show configs that come from files and defaults (--describe).", section="Configs"
)
@option("--add-config", metavar="K=V,K=[V,V],...", help="Set these configs (--alter).", section="Configs")
@option(
    "--add-config-file",
    type=FILE,
    metavar="FILE",
    help="Set the configs of a properties file (--alter).",
    section="Configs",
)
@option(
    "--delete-config",
    metavar="K,K,...",
    multiple=True,
    help="Return these configs to their defaults (--alter).",
    section="Configs",
)
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Show and change configs of topics, brokers and groups while they run. The flags are those of kafka-configs.

    Quotas of users, client ids and addresses are configs of these entities, too.
    """
    if options.quota_types:
        _quotas(options)
        return
    with options.connect() as cluster:
        if options.alter:
            alter(cluster, options)
        else:
            describe(cluster, options)


def _quotas(options: Options) -> None:
    from barnabas.cli.quotas.showing import change, parse_changes, show

    entity = options.quota_entity()
    changes = parse_changes(additions(options), parse_deletions(options.delete_config))
    with options.connect() as cluster:
        if options.alter:
            change(cluster, entity, changes, as_json=options.as_json)
        else:
            show(cluster.quotas.describe(entity), as_json=options.as_json)
