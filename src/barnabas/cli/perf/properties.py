"""Client properties as the performance tools take them: in a file, as `name=value`, and by Kafka's older flags.

`--producer-props` takes any number of pairs after it, as in Kafka. Click gives an option one value, so the pairs after
the first arrive as arguments of the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import DEFAULT_BOOTSTRAP_SERVER
from barnabas.cli.output import remark

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def pairs(given: Iterable[str]) -> dict[str, str]:
    """`name=value` pairs; raises UsageError for anything else."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def gathered(
    bootstrap_server: str | None,
    files: Iterable[tuple[str, Path | None]],
    old_flag: str,
    old_pairs: Iterable[str],
    new_pairs: Iterable[str],
) -> dict[str, Any]:
    """All properties, from weak to strong: files, pairs, --bootstrap-server. Old flags get a remark."""
    from barnabas.model.config.properties import parse_properties

    properties: dict[str, str] = {}
    for flag, path in files:
        if path is None:
            continue
        if flag != "--command-config":
            remark(f"Option {flag} is deprecated in Kafka: use --command-config.")
        properties |= parse_properties(path.read_text(encoding="utf-8"))
    old = pairs(old_pairs)
    if old:
        remark(f"Option {old_flag} is deprecated in Kafka: use --command-property.")
    properties |= old | pairs(new_pairs)
    if bootstrap_server is not None:
        properties["bootstrap.servers"] = bootstrap_server
    if "bootstrap.servers" not in properties:
        properties["bootstrap.servers"] = DEFAULT_BOOTSTRAP_SERVER
    return properties
