"""`barnabas groups --list`, and the choice of groups that other actions work on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import Style, choose_style, print_json, print_table, remark
from barnabas.cli.groups.columns import Column, print_columns

if TYPE_CHECKING:
    from barnabas.cli.groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.groups import GroupListing

STATES = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Empty", "Dead")
TYPES = ("Classic", "Consumer")
UNKNOWN = "Unknown"


def show_list(cluster: ClusterAdmin, options: Options) -> None:
    """Ids; with --state and --type a column for each."""
    states = chosen(options.state, STATES, "--state")
    types = chosen(options.type, TYPES, "--type")
    found = cluster.groups.listing(states, [type_.lower() for type_ in types])
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json([{"group": one.group_id, "type": type_of(one), "state": state_of(one)} for one in found])
        case Style.PLAIN if options.state is None and options.type is None:
            for one in found:
                click.echo(one.group_id)
        case Style.PLAIN:
            columns = [Column("GROUP", width=max(15, *(len(one.group_id) for one in found), 0) + 10)]
            cells = [[one.group_id] for one in found]
            for given, title, cell in ((options.type, "TYPE", type_of), (options.state, "STATE", state_of)):
                if given is not None:
                    columns.append(Column(title, 20))
                    cells = [[*row, cell(one)] for row, one in zip(cells, found, strict=True)]
            print_columns(columns, cells)
        case Style.TABLE if not found:
            remark("No groups.")
        case Style.TABLE:
            print_table(("Group", "Type", "State"), ((one.group_id, type_of(one), state_of(one)) for one in found))


def chosen(text: str | None, names: tuple[str, ...], flag: str) -> list[str]:
    """The names in a list with commas, however they are cased; none for an option without a value."""
    known = {name.lower(): name for name in names}
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    for part in parts:
        if part.lower() not in known:
            raise click.UsageError(f"{flag} {part} is not one of {', '.join(names)}.")
    return [known[part.lower()] for part in parts]


def type_of(listing: GroupListing) -> str:
    """The type as Kafka's tools write it."""
    return listing.type.capitalize() or UNKNOWN


def state_of(listing: GroupListing) -> str:
    """The state, if the broker tells it."""
    return listing.state or UNKNOWN


def selected(cluster: ClusterAdmin, options: Options) -> list[str]:
    """The ids that --group or --all-groups stands for, sorted."""
    if options.all_groups:
        return [listing.group_id for listing in cluster.groups.listing()]
    return sorted(set(options.group))
