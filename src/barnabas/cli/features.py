"""`barnabas features`: kafka-features, which shows and sets the levels of a cluster's features.

What kafka-features has for KRaft's metadata.version alone (--metadata, --release-version, version-mapping,
feature-dependencies) is left out; its levels are shown under the names of Kafka's releases all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import connected, connected_group, find_broker
from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, F, Group, option
from barnabas.cli.numbers import INT32, MAX_INT16
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table
from barnabas.clients.errors import RequestRefused

if TYPE_CHECKING:
    from barnabas.cli.connection import Connect
    from barnabas.clients.features import Change

METADATA_VERSION = "metadata.version"
METADATA_LEVELS = (
    "3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0 "
    "3.9-IV0 4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0 4.4-IV0"
)
"""The names of metadata.version's levels, from 7 on."""
METADATA_VERSIONS = dict(enumerate(METADATA_LEVELS.split(), 7))


@click.group(
    cls=Group,
    examples=[
        ("what is on", "barnabas features describe"),
        (
            "could the new group protocol be switched on?",
            "barnabas features upgrade --feature group.version=1 --dry-run",
        ),
        ("switch it off", "barnabas features disable --feature group.version"),
        ("of another cluster", "barnabas features describe --bootstrap-server broker1:9092"),
    ],
)
@connected_group
def command() -> None:
    """Show and set levels of features that all brokers switch to together. The flags are those of kafka-features."""


@command.command(
    "describe",
    cls=Command,
    short_help="Show features and their levels.",
    examples=[("as one broker knows them", "barnabas features describe --node-id 2")],
)
@option("--node-id", type=INT32, metavar="ID", help="Ask this broker.  [default: any]")
@connected
@json_option
def describe(connect: Connect, node_id: int | None, as_json: bool) -> None:
    """Show which levels a broker knows, and which hold."""
    from barnabas.clients.features import describe_features

    with connect() as cluster:
        found = describe_features(cluster, find_broker(cluster, node_id))
    epoch = "-" if found.epoch is None else found.epoch
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json(
                {
                    "epoch": found.epoch,
                    "features": [
                        {
                            "feature": one.name,
                            "supportedMinVersion": one.lowest,
                            "supportedMaxVersion": one.highest,
                            "finalizedVersionLevel": one.finalized,
                        }
                        for one in found.features
                    ],
                }
            )
        case Style.PLAIN:
            for one in found.features:
                lowest, highest, level = (level_text(one.name, n) for n in (one.lowest, one.highest, one.finalized))
                click.echo(
                    f"Feature: {one.name:<40}  SupportedMinVersion: {lowest:<15}  SupportedMaxVersion: {highest:<15}"
                    f"  FinalizedVersionLevel: {level:<15}  Epoch: {epoch}"
                )
        case Style.TABLE:
            print_table(
                ("Feature", "Lowest", "Highest", "Level"),
                (
                    (one.name, *(level_cell(one.name, level) for level in (one.lowest, one.highest, one.finalized)))
                    for one in found.features
                ),
            )


def level_cell(feature: str, level: int) -> int | str:
    """A level in a table, where numbers stay numbers."""
    return level_text(feature, level) if feature == METADATA_VERSION else level


def level_text(feature: str, level: int) -> str:
    """A level as kafka-features shows it: metadata.version has names."""
    return METADATA_VERSIONS.get(level, f"UNKNOWN {level}") if feature == METADATA_VERSION else str(level)


def change_options(command: F) -> F:
    """`--feature` and `--dry-run`."""
    command = option("--dry-run", is_flag=True, help="Only ask whether it could be done.")(command)
    return option("--feature", metavar="NAME=LEVEL", multiple=True, required=True, help="Repeatable.")(command)


@command.command(
    "upgrade",
    cls=Command,
    short_help="Raise the levels of features.",
    examples=[("the new group protocol", "barnabas features upgrade --feature group.version=1")],
)
@change_options
@connected
def upgrade(connect: Connect, feature: tuple[str, ...], dry_run: bool) -> None:
    """Raise features to the given levels: all of them, or none."""
    from barnabas.clients.features import Change

    change_levels(connect, "upgrade", parse_levels(feature), Change.UPGRADE, dry_run=dry_run)


@command.command(
    "downgrade",
    cls=Command,
    short_help="Lower the levels of features.",
    examples=[
        (
            "transactions as clients of Kafka 3 know them",
            "barnabas features downgrade --feature transaction.version=1",
        ),
    ],
)
@change_options
@option("--unsafe", is_flag=True, help="Even if metadata is lost.")
@connected
def downgrade(connect: Connect, feature: tuple[str, ...], dry_run: bool, unsafe: bool) -> None:
    """Lower features to the given levels: all of them, or none."""
    from barnabas.clients.features import Change

    change = Change.UNSAFE_DOWNGRADE if unsafe else Change.SAFE_DOWNGRADE
    change_levels(connect, "downgrade", parse_levels(feature), change, dry_run=dry_run)


@command.command(
    "disable",
    cls=Command,
    short_help="Switch features off.",
    examples=[("would it be possible?", "barnabas features disable --feature group.version --dry-run")],
)
@option("--feature", metavar="NAME", multiple=True, required=True, help="Repeatable.")
@option("--dry-run", is_flag=True, help="Only ask whether it could be done.")
@option("--unsafe", is_flag=True, help="Even if metadata is lost.")
@connected
def disable(connect: Connect, feature: tuple[str, ...], dry_run: bool, unsafe: bool) -> None:
    """Switch features off, which is level 0."""
    from barnabas.clients.features import Change

    change = Change.UNSAFE_DOWNGRADE if unsafe else Change.SAFE_DOWNGRADE
    change_levels(connect, "disable", dict.fromkeys(feature, 0), change, dry_run=dry_run)


def change_levels(connect: Connect, action: str, levels: dict[str, int], change: Change, *, dry_run: bool) -> None:
    """Ask for the change, and say what became of each feature."""
    from barnabas.clients.features import update_features

    try:
        with connect() as cluster:
            update_features(cluster, levels, change, dry_run=dry_run)
    except RequestRefused as error:
        wanted = ", ".join(name if action == "disable" else f"{name} to {level}" for name, level in levels.items())
        raise Failed(f"{'Can' if dry_run else 'Could'} not {action} {wanted}. {error}") from error
    verb = "can be" if dry_run else "was"
    for name, level in sorted(levels.items()):
        click.echo(f"{name} {verb} {f'{action}d' if action == 'disable' else f'{action}d to {level}'}.")


def parse_levels(pairs: tuple[str, ...]) -> dict[str, int]:
    """NAME=LEVEL pairs."""
    levels: dict[str, int] = {}
    for pair in pairs:
        name, equals, level = (part.strip() for part in pair.partition("="))
        if not equals or not level.isdecimal():
            raise click.UsageError(f"--feature {pair} is not of the form NAME=LEVEL.")
        if int(level) > MAX_INT16:
            raise click.UsageError(f"--feature {pair}: a level is at most {MAX_INT16}.")
        if name in levels:
            raise click.UsageError(f"--feature {name} is given twice.")
        levels[name] = int(level)
    return levels
