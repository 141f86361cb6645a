"""`barnabas configs --describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.connection import refuse_forbidden
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import Style, choose_style, print_json, print_table
from barnabas.clients.admin.configs import DEFAULT_ENTITY, EntityType

if TYPE_CHECKING:
    from barnabas.cli.configs.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.configs import Setting


def describe(cluster: ClusterAdmin, options: Options) -> None:
    """Show what was set for the entity itself, or with --all everything that holds for it."""
    kind = options.kind
    names = [options.name] if options.name is not None else cluster.configs.entities(kind)
    if options.name and (kind.of_one_broker or not options.all):
        require_entity(cluster, kind, options.name)
    found = {
        name: [setting for setting in settings if options.all or setting.is_dynamic_for(kind, name)]
        for name, settings in cluster.configs.describe(kind, names).items()
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


def require_entity(cluster: ClusterAdmin, kind: EntityType, name: str) -> None:
    """Fail for an entity that is not there."""
    if name not in cluster.configs.entities(kind):
        if kind is EntityType.TOPICS:
            refuse_forbidden(cluster, name)
        raise Failed(
            f"The {kind.singular} '{name}' doesn't exist and doesn't have dynamic config. "
            f"`barnabas configs --describe --entity-type {kind.title}` shows all of them."
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
