"""`barnabas features`: kafka-features, which shows and sets the levels of a cluster's features.

What kafka-features has for KRaft's metadata.version alone (--metadata, --release-version, version-mapping,
feature-dependencies) is left out; its levels are shown under the names of Kafka's releases all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options, find_broker
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, CommandGroup, F, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table
from barnabas.cli.common.remedies import with_remedy
from barnabas.cli.common.values.numbers import INT32
from barnabas.clients.errors import RequestRefused
from barnabas.model.numbers import MAX_INT16

if TYPE_CHECKING:
    from barnabas.clients.admin.features import FeatureLevels, UpgradeType

METADATA_VERSION = "metadata.version"
METADATA_LEVELS = (
    "3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0 "
    "3.9-IV0 4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0 4.4-IV0"
)
"""The names of metadata.version's levels, from 7 on."""
METADATA_VERSIONS = dict(enumerate(METADATA_LEVELS.split(), 7))


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(ConnectionOptions):
    """The options of `describe`."""

    node_id: int | None
    as_json: bool


@dataclass(frozen=True, kw_only=True)
class UpgradeOptions(ConnectionOptions):
    """The options of `upgrade`."""

    feature: tuple[str, ...]
    dry_run: bool


@dataclass(frozen=True, kw_only=True)
class DowngradeOptions(UpgradeOptions):
    """The options of `downgrade` and `disable`."""

    unsafe: bool


@click.group(
    cls=CommandGroup,
    examples=[
        ("show features and their levels", "barnabas features describe"),
        (
            "check whether group.version could be raised",
            "barnabas features upgrade --feature group.version=1 --dry-run",
        ),
        ("switch a feature off", "barnabas features disable --feature group.version"),
        ("ask another cluster", "barnabas features describe --bootstrap-server broker1:9092"),
    ],
)
@connection_options
@takes(ConnectionOptions)
def command(options: ConnectionOptions) -> None:
    """Show and set the levels of the cluster's features. The flags are those of kafka-features."""


@command.command(
    "describe",
    cls=Command,
    short_help="Show features and their levels.",
    examples=[("as broker 2 knows them", "barnabas features describe --node-id 2")],
)
@option("--node-id", type=INT32, metavar="ID", help="Ask this broker.  [default: any]")
@connection_options
@json_option
@takes(DescribeOptions)
def describe(options: DescribeOptions) -> None:
    """Show the levels that a broker supports, and the level that the cluster uses."""
    with options.connect() as cluster:
        found = cluster.features.describe(find_broker(cluster, options.node_id))
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json(_document(found))
        case Style.PLAIN:
            _print_lines(found)
        case Style.TABLE:
            print_table(
                ("Feature", "Lowest", "Highest", "Level"),
                (
                    (one.name, *(level_cell(one.name, level) for level in (one.lowest, one.highest, one.finalized)))
                    for one in found.features
                ),
            )


def _document(found: FeatureLevels) -> dict[str, object]:
    return {
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


def _print_lines(found: FeatureLevels) -> None:
    """As kafka-features prints it."""
    epoch = "-" if found.epoch is None else found.epoch
    for one in found.features:
        lowest, highest, level = (level_text(one.name, n) for n in (one.lowest, one.highest, one.finalized))
        click.echo(
            f"Feature: {one.name:<40}  SupportedMinVersion: {lowest:<15}  SupportedMaxVersion: {highest:<15}"
            f"  FinalizedVersionLevel: {level:<15}  Epoch: {epoch}"
        )


def level_cell(feature: str, level: int) -> int | str:
    """A level in a table, where numbers stay numbers."""
    return level_text(feature, level) if feature == METADATA_VERSION else level


def level_text(feature: str, level: int) -> str:
    """A level as kafka-features shows it: metadata.version has names."""
    return METADATA_VERSIONS.get(level, f"UNKNOWN {level}") if feature == METADATA_VERSION else str(level)


def change_options(command: F) -> F:
    """`--feature` and `--dry-run`."""
    command = option("--dry-run", is_flag=True, help="Only check whether the change is possible.")(command)
    return option(
        "--feature", metavar="NAME=LEVEL", multiple=True, required=True, help="A feature and its new level; repeatable."
    )(command)


@command.command(
    "upgrade",
    cls=Command,
    short_help="Raise the levels of features.",
    examples=[("switch the new group protocol on", "barnabas features upgrade --feature group.version=1")],
)
@change_options
@connection_options
@takes(UpgradeOptions)
def upgrade(options: UpgradeOptions) -> None:
    """Raise features to the given levels: all of them, or none."""
    from barnabas.clients.admin.features import UpgradeType

    change_levels(options, "upgrade", parse_levels(options.feature), UpgradeType.UPGRADE)


@command.command(
    "downgrade",
    cls=Command,
    short_help="Lower the levels of features.",
    examples=[
        (
            "return to the transactions of Kafka 3",
            "barnabas features downgrade --feature transaction.version=1",
        ),
    ],
)
@change_options
@option("--unsafe", is_flag=True, help="Allow a change that loses metadata.")
@connection_options
@takes(DowngradeOptions)
def downgrade(options: DowngradeOptions) -> None:
    """Lower features to the given levels: all of them, or none."""
    change_levels(options, "downgrade", parse_levels(options.feature), _downgrade(options))


@command.command(
    "disable",
    cls=Command,
    short_help="Switch features off.",
    examples=[("check whether it is possible", "barnabas features disable --feature group.version --dry-run")],
)
@option("--feature", metavar="NAME", multiple=True, required=True, help="The feature; repeatable.")
@option("--dry-run", is_flag=True, help="Only check whether the change is possible.")
@option("--unsafe", is_flag=True, help="Allow a change that loses metadata.")
@connection_options
@takes(DowngradeOptions)
def disable(options: DowngradeOptions) -> None:
    """Switch features off: set them to level 0."""
    change_levels(options, "disable", dict.fromkeys(options.feature, 0), _downgrade(options))


def _downgrade(options: DowngradeOptions) -> UpgradeType:
    from barnabas.clients.admin.features import UpgradeType

    return UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE


def change_levels(options: UpgradeOptions, action: str, levels: dict[str, int], change: UpgradeType) -> None:
    """Ask for the change, and say what became of each feature."""
    try:
        with options.connect() as cluster:
            cluster.features.update(levels, change, dry_run=options.dry_run)
    except RequestRefused as error:
        wanted = ", ".join(name if action == "disable" else f"{name} to {level}" for name, level in levels.items())
        reason = with_remedy(f"{str(error)[:1].upper()}{str(error)[1:]}", error.remedy)
        raise Failed(f"{'Can' if options.dry_run else 'Could'} not {action} {wanted}. {reason}") from error
    verb = "can be" if options.dry_run else "was"
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
