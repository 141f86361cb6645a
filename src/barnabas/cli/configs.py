"""`barnabas configs`: kafka-configs with its flags and its output, for topics, brokers, groups and client metrics.

What differs from kafka-configs, on purpose: an entity that is not there makes the exit code 1, and a terminal gets a
table. Quotas and passwords (users, clients, ips) are not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.failures import Failed
from barnabas.cli.files import read_properties
from barnabas.cli.help import Command, option
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table
from barnabas.clients.configs import DEFAULT_ENTITY, EntityType

if TYPE_CHECKING:
    from barnabas.clients.configs import Setting
    from barnabas.clients.wire import Cluster

ENTITY_TYPES = {kind.title: kind for kind in EntityType}
SHORT_FORMS = {
    "topic": EntityType.TOPICS,
    "broker": EntityType.BROKERS,
    "broker_logger": EntityType.BROKER_LOGGERS,
    "group": EntityType.GROUPS,
    "client_metrics": EntityType.CLIENT_METRICS,
}
"""Options that name an entity and its type at once."""
OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
"""Stands behind a comma or an equals sign that is not within [ and ]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line, one field per option."""

    bootstrap_server: str
    command_config: Path | None
    describe: bool
    alter: bool
    all: bool
    entity_type: str | None
    entity_name: str | None
    entity_default: bool
    topic: str | None
    broker: str | None
    broker_defaults: bool
    broker_logger: str | None
    group: str | None
    client_metrics: str | None
    add_config: str | None
    add_config_file: Path | None
    delete_config: tuple[str, ...]
    as_json: bool

    @property
    def short_forms(self) -> list[str]:
        """Those of the short forms that were given."""
        return [name for name in (*SHORT_FORMS, "broker_defaults") if getattr(self, name) not in (None, False)]

    @property
    def kind(self) -> EntityType:
        """What the settings belong to."""
        if self.entity_type is not None:
            return ENTITY_TYPES[self.entity_type]
        return EntityType.BROKERS if self.broker_defaults else SHORT_FORMS[self.short_forms[0]]

    @property
    def name(self) -> str | None:
        """Which one; None for all of them."""
        if self.entity_default or self.broker_defaults:
            return DEFAULT_ENTITY
        if self.entity_name is not None:
            return self.entity_name
        name: str | None = getattr(self, self.short_forms[0]) if self.short_forms else None
        return name

    def check(self) -> None:
        """Refuse combinations that mean nothing, with Kafka's rules."""
        if self.describe == self.alter:
            raise click.UsageError("Give exactly one action: --describe or --alter.")
        given = self.short_forms
        if len(given) + (self.entity_type is not None) != 1:
            raise click.UsageError("Give --entity-type, or one of --topic, --broker, --group and the like.")
        if given and (self.entity_name is not None or self.entity_default):
            raise click.UsageError(f"--{given[0].replace('_', '-')} names the entity: leave out --entity-...")
        if self.entity_name is not None and self.entity_default:
            raise click.UsageError("Give --entity-name or --entity-default, not both.")
        if self.entity_default and self.kind is not EntityType.BROKERS:
            raise click.UsageError(f"There are no defaults for {self.kind.title}: --entity-default is for brokers.")
        if self.kind.of_one_broker and self.name and not self.name.isdecimal():
            raise click.UsageError(f"A broker's name is its id, a number, and not {self.name}.")
        if self.kind is EntityType.BROKER_LOGGERS and self.name is None:
            raise click.UsageError("broker-loggers needs --entity-name: the loggers of which broker?")
        if self.describe:
            self._check_describe()
        else:
            self._check_alter()

    def _check_describe(self) -> None:
        if self.add_config is not None or self.add_config_file is not None or self.delete_config:
            raise click.UsageError("--add-config, --add-config-file and --delete-config go with --alter.")

    def _check_alter(self) -> None:
        if self.all:
            raise click.UsageError("--all goes with --describe.")
        if self.name is None:
            raise click.UsageError(f"--alter of {self.kind.title} needs --entity-name.")
        if self.add_config is not None and self.add_config_file is not None:
            raise click.UsageError("Give --add-config or --add-config-file, not both.")
        if self.add_config is None and self.add_config_file is None and not self.delete_config:
            raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config.")


@click.command(
    cls=Command,
    examples=[
        ("what was set for a topic", "barnabas configs --describe --topic orders"),
        ("everything that holds for it, and why", "barnabas configs --describe --topic orders --all"),
        ("keep records for an hour", "barnabas configs --alter --topic orders --add-config retention.ms=3600000"),
        (
            "several at once; brackets hold a list together",
            "barnabas configs --alter --topic orders --add-config 'cleanup.policy=[compact,delete],segment.ms=60000'",
        ),
        ("back to the default", "barnabas configs --alter --topic orders --delete-config retention.ms,segment.ms"),
        (
            "a setting of all brokers, while they run",
            "barnabas configs --alter --broker-defaults --add-config log.cleaner.threads=2",
        ),
        ("how much broker 1 logs", "barnabas configs --describe --broker-logger 1"),
        (
            "a group whose members may be silent for a minute",
            "barnabas configs --alter --group billing --add-config consumer.session.timeout.ms=60000",
        ),
        (
            "the same in Kafka's long form",
            "barnabas configs --describe --entity-type topics --entity-name orders",
        ),
    ],
)
@option("--describe", is_flag=True, help="Show settings.", section="Actions")
@option("--alter", is_flag=True, help="Change settings.", section="Actions")
@option("--topic", metavar="NAME", help="The topic.", section="Whose settings")
@option("--broker", metavar="ID", help="The broker.", section="Whose settings")
@option("--broker-defaults", is_flag=True, help="What holds for all brokers.", section="Whose settings")
@option("--broker-logger", metavar="ID", help="The loggers of this broker.", section="Whose settings")
@option("--group", metavar="ID", help="The consumer group.", section="Whose settings")
@option("--client-metrics", metavar="NAME", help="The subscription to clients' metrics.", section="Whose settings")
@option(
    "--entity-type", type=click.Choice(list(ENTITY_TYPES)), help="The kind, in the long form.", section="Whose settings"
)
@option("--entity-name", metavar="NAME", help="Which one of that kind.  [default: all]", section="Whose settings")
@option("--entity-default", is_flag=True, help="What holds for all brokers.", section="Whose settings")
@option("--all", is_flag=True, help="Also what comes from files and defaults (--describe).", section="Settings")
@option("--add-config", metavar="K=V,K=[V,V],...", help="Set these.", section="Settings")
@option(
    "--add-config-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Set what a properties file has.",
    section="Settings",
)
@option("--delete-config", metavar="K,K,...", multiple=True, help="Return these to their default.", section="Settings")
@connection_options
@json_option
def command(**values: Any) -> None:
    """Show and change settings of topics, brokers and groups while they run. The flags are those of kafka-configs."""
    from barnabas.cli import connection

    options = Options(**values)
    options.check()
    added = additions(options)
    with connection.open_cluster(options.bootstrap_server, options.command_config) as cluster:
        if options.alter:
            alter(cluster, options, added)
        else:
            describe(cluster, options)


def alter(cluster: Cluster, options: Options, added: dict[str, str]) -> None:
    """`--alter`."""
    from barnabas.clients import configs

    assert options.name is not None
    deleted = [key.strip() for text in options.delete_config for key in text.split(",") if key.strip()]
    configs.alter(cluster, options.kind, options.name, add=added, delete=deleted)
    if options.as_json:
        print_json(
            {"entityType": options.kind.title, "entityName": options.name or None, "set": added, "deleted": deleted}
        )
    elif options.name:
        click.echo(f"Completed updating config for {options.kind.singular} {options.name}.")
    else:
        click.echo(f"Completed updating default config for {options.kind.title} in the cluster.")


def additions(options: Options) -> dict[str, str]:
    """What --add-config or --add-config-file sets."""
    if options.add_config_file is not None:
        return read_properties(options.add_config_file)
    return parse_additions(options.add_config) if options.add_config is not None else {}


def parse_additions(text: str) -> dict[str, str]:
    """`k1=v1,k2=[v1,v2]` as settings."""
    added = {}
    for pair in re.split(f",{OUTSIDE_BRACKETS}", text):
        parts = re.split(rf"\s*=\s*{OUTSIDE_BRACKETS}", pair)
        if len(parts) != 2 or not parts[0].strip():
            raise click.UsageError(f"--add-config {pair} is not of the form KEY=VALUE or KEY=[VALUE,VALUE].")
        added[parts[0].strip()] = parts[1].replace("[", "").replace("]", "").strip()
    return added


def describe(cluster: Cluster, options: Options) -> None:
    """`--describe`: what was set for the entity itself, or with --all everything that holds for it."""
    from barnabas.clients import configs

    kind = options.kind
    names = [options.name] if options.name is not None else configs.entities(cluster, kind)
    if options.name and (kind.of_one_broker or not options.all):
        require_entity(cluster, kind, options.name)
    found = {
        name: [setting for setting in settings if options.all or setting.is_dynamic_for(kind, name)]
        for name, settings in configs.describe(cluster, kind, names).items()
    }
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json(
                [
                    {
                        "entityType": kind.title,
                        "entityName": name or None,
                        "configs": [_json(setting) for setting in found[name]],
                    }
                    for name in names
                ]
            )
        case Style.PLAIN:
            for name in names:
                click.echo(_heading(kind, name, everything=options.all))
                for setting in found[name]:
                    click.echo(_line(setting))
        case Style.TABLE:
            for name in names:
                _print_table(kind, name, found[name], everything=options.all)


def require_entity(cluster: Cluster, kind: EntityType, name: str) -> None:
    """Fail for an entity that is not there."""
    from barnabas.clients import configs

    if name not in configs.entities(cluster, kind):
        raise Failed(
            f"The {kind.singular} '{name}' doesn't exist and doesn't have dynamic config. "
            f"`barnabas configs --describe --entity-type {kind.title}` shows those that are there."
        )


def _heading(kind: EntityType, name: str, *, everything: bool) -> str:
    if name == DEFAULT_ENTITY:
        return f"Default configs for {kind.title} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {kind.singular} {name} are:"


def _line(setting: Setting) -> str:
    stated = ", ".join(f"{one.source.name}:{one.name}={_null(one.value)}" for one in setting.stated)
    sensitive = str(setting.sensitive).lower()
    return f"  {setting.name}={_null(setting.value)} sensitive={sensitive} synonyms={{{stated}}}"


def _null(value: str | None) -> str:
    return "null" if value is None else value


def _json(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": setting.value,
        "sensitive": setting.sensitive,
        "readOnly": setting.read_only,
        "source": setting.source.name,
        "synonyms": [{"name": one.name, "value": one.value, "source": one.source.name} for one in setting.stated],
    }


def _print_table(kind: EntityType, name: str, settings: list[Setting], *, everything: bool) -> None:
    title = f"defaults of all {kind.title}" if name == DEFAULT_ENTITY else f"{kind.singular} {name}"
    if not settings:
        click.echo(f"{click.style(title, bold=True)}  {'no settings' if everything else 'nothing was set'}")
        return
    click.echo(click.style(title, bold=True))
    print_table(
        ("Setting", "Value", "From"),
        (
            (
                setting.name,
                "(secret)" if setting.sensitive else "" if setting.value is None else setting.value,
                setting.source.name.removesuffix("_CONFIG").replace("_", " ").lower(),
            )
            for setting in settings
        ),
    )
