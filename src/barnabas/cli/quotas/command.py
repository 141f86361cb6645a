"""`barnabas quotas`: lists, describes and alters quotas, with the flags that kafka-configs has for them."""

from __future__ import annotations

from dataclasses import dataclass

import click

from barnabas.cli.common.combinations import Actions, needs
from barnabas.cli.common.connection import connection_options
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.quotas.entity import SHORT_FORMS, TYPES, EntityOptions, entity_options

ENTITIES = (*SHORT_FORMS, "entity_type", "entity_name", "entity_default")
ACTIONS = Actions(
    ("list_quotas", "describe", "alter"),
    {
        "add_config": ("alter",),
        "delete_config": ("alter",),
        **dict.fromkeys(ENTITIES, ("describe", "alter")),
    },
)


@dataclass(frozen=True, kw_only=True)
class Options(EntityOptions):
    """The options of `barnabas quotas`."""

    list_quotas: bool
    describe: bool
    alter: bool
    add_config: str | None
    delete_config: tuple[str, ...]
    as_json: bool

    def check(self) -> None:
        """Refuse what does not go together."""
        ACTIONS.check(self)
        entity = self.quota_entity()
        if not self.list_quotas and not entity:
            raise click.UsageError("Give --user, --client or --ip, or their defaults, or --entity-type.")
        self.check_named(entity, self.alter)
        needs(self, "alter", "add_config", "delete_config")


@click.command(
    cls=Command,
    examples=[
        ("show all quotas", "barnabas quotas --list"),
        (
            "let a user produce one megabyte a second, on each broker",
            "barnabas quotas --alter --user alice --add-config producer_byte_rate=1048576",
        ),
        (
            "give each client of a user half a processor",
            "barnabas quotas --alter --user alice --client-defaults --add-config request_percentage=50",
        ),
        (
            "let all others fetch ten megabytes a second",
            "barnabas quotas --alter --user-defaults --add-config consumer_byte_rate=10485760",
        ),
        (
            "let no address open more than ten connections a second",
            "barnabas quotas --alter --ip-defaults --add-config connection_creation_rate=10",
        ),
        ("remove a quota", "barnabas quotas --alter --user alice --delete-config producer_byte_rate"),
        ("use Kafka's long form", "barnabas quotas --describe --entity-type users --entity-name alice"),
    ],
)
@option("--list", "list_quotas", is_flag=True, help="Show all quotas.", section="Actions")
@option("--describe", is_flag=True, help="Show the quotas of an entity.", section="Actions")
@option("--alter", is_flag=True, help="Set and remove quotas of an entity.", section="Actions")
@entity_options
@option(
    "--entity-type",
    type=click.Choice(list(TYPES)),
    multiple=True,
    help="The type of entity, in Kafka's long form; twice for a client id of a user.",
    section="Entity",
)
@option(
    "--entity-name", metavar="NAME", multiple=True, help="The name of the entity.  [default: all]", section="Entity"
)
@option("--entity-default", is_flag=True, help="The default of this type.", section="Entity")
@option(
    "--add-config",
    metavar="K=V,...",
    help="Set producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate or "
    "connection_creation_rate (--alter).",
    section="Quotas",
)
@option("--delete-config", metavar="K,K,...", multiple=True, help="Remove these quotas (--alter).", section="Quotas")
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Show and change how much users, client ids and addresses may use. A quota holds on each broker for itself."""
    from barnabas.cli.configs.alter import parse_additions, parse_deletions
    from barnabas.cli.quotas.showing import change, parse_changes, show

    entity = options.quota_entity()
    added = parse_additions(options.add_config) if options.add_config is not None else {}
    changes = parse_changes(added, parse_deletions(options.delete_config))
    with options.connect() as cluster:
        if options.alter:
            change(cluster, entity, changes, as_json=options.as_json)
        else:
            show(cluster.quotas.describe(entity), as_json=options.as_json)
