"""`barnabas configs --alter`."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.config_names import suggest_config_names
from barnabas.cli.common.output import print_json
from barnabas.cli.common.values.files import read_properties
from barnabas.cli.common.values.secrets import warn_of_secrets
from barnabas.clients.admin.configs import EntityType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.configs.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin

OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
"""Stands behind a comma or an equals sign that is not within [ and ]."""


def alter(cluster: ClusterAdmin, options: Options) -> None:
    """Set and delete configs of one entity."""
    assert options.name is not None
    added = additions(options)
    deleted = parse_deletions(options.delete_config)
    of_topic = options.kind is EntityType.TOPICS
    with suggest_config_names((*added, *deleted)) if of_topic else nullcontext():
        cluster.configs.alter(options.kind, options.name, add=added, delete=deleted)
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
    if options.add_config is None:
        return {}
    added = parse_additions(options.add_config)
    warn_of_secrets(added, "Put it into a file for --add-config-file.")
    return added


def parse_deletions(texts: Iterable[str]) -> list[str]:
    """`k1,k2`, several times, as names."""
    return [key.strip() for text in texts for key in text.split(",") if key.strip()]


def parse_additions(text: str) -> dict[str, str]:
    """`k1=v1,k2=[v1,v2]` as settings."""
    added = {}
    for pair in re.split(f",{OUTSIDE_BRACKETS}", text):
        parts = re.split(rf"\s*=\s*{OUTSIDE_BRACKETS}", pair)
        if len(parts) != 2 or not parts[0].strip():
            raise click.UsageError(f"--add-config {pair} is not of the form KEY=VALUE or KEY=[VALUE,VALUE].")
        added[parts[0].strip()] = parts[1].replace("[", "").replace("]", "").strip()
    return added
