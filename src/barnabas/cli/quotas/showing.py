"""Quotas, shown and changed: for `barnabas quotas` and `barnabas configs`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.output import Style, choose_style, print_json, print_table
from barnabas.machines.security.quota_entities import ALL_KEYS, CLIENT_ID, IP, USER
from barnabas.machines.security.scram import BY_TITLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.quotas import Quota

WORDS: Final = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
SINGULAR: Final = {USER: "user", CLIENT_ID: "client", IP: "ip"}


def show(quotas: Sequence[Quota], *, as_json: bool) -> None:
    """Print quotas: as a table, as JSON, or in the lines of kafka-configs."""
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json([{"entity": dict(quota.entity), "quotas": dict(quota.values)} for quota in quotas])
        case Style.PLAIN:
            for quota in quotas:
                click.echo(f"Quota configs for {_described(quota.entity)} are {_listed(quota.values)}")
        case Style.TABLE:
            rows = [
                (*(_name(quota.entity, kind) for kind in (USER, CLIENT_ID, IP)), key, f"{value:g}")
                for quota in quotas
                for key, value in quota.values.items()
            ]
            print_table(("User", "Client id", "Address", "Quota", "Value"), rows)


def _name(entity: Mapping[str, str | None], kind: str) -> str:
    return (entity[kind] or "<default>") if kind in entity else ""


def _described(entity: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"the default {word}" if entity[kind] is None else f"{word} '{entity[kind]}'"
        for kind, word in WORDS.items()
        if kind in entity
    )


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def parse_changes(added: Mapping[str, str], deleted: Sequence[str]) -> dict[str, float | None]:
    """What is to be set, and with None what is to be removed. Raises UsageError."""
    return {key: _number(key, text) for key, text in added.items()} | {_check_key(key): None for key in deleted}


def change(
    cluster: ClusterAdmin, entity: Mapping[str, str | None], changes: Mapping[str, float | None], *, as_json: bool
) -> None:
    """Set and remove quotas of one entity."""
    named = {kind: name or None for kind, name in entity.items()}
    cluster.quotas.alter(named, changes)
    if as_json:
        print_json({"entity": named, "quotas": dict(changes)})
        return
    kind, name = next(iter(named.items()))
    if name is not None:
        click.echo(f"Completed updating config for {SINGULAR[kind]} {name}.")
    else:
        click.echo(f"Completed updating default config for {SINGULAR[kind]}s in the cluster.")


def _number(key: str, text: str) -> float:
    try:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number
    except ValueError:
        if key in BY_TITLE:
            raise click.UsageError(
                "A password does not belong on a command line, which every user of the machine can read. "
                "`barnabas users --add` asks for it."
            ) from None
        raise click.UsageError(f"{_check_key(key)}={text} is not a number.") from None


def _check_key(key: str) -> str:
    if key not in ALL_KEYS:
        raise click.UsageError(f"There is no quota {key}. There are {', '.join(sorted(ALL_KEYS))}.")
    return key
