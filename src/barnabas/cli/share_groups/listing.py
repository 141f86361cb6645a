"""`barnabas share-groups --list`, and the choice of groups that other actions work on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import Style, choose_style, print_json, print_table, remark
from barnabas.cli.groups.columns import Column, print_columns
from barnabas.cli.groups.listing import chosen, state_of

if TYPE_CHECKING:
    from barnabas.cli.share_groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin

STATES = ("Empty", "Stable", "Dead")


def show_list(cluster: ClusterAdmin, options: Options) -> None:
    """Ids; with --state a column for it."""
    found = cluster.share_groups.listing(chosen(options.state, STATES, "--state"))
    rows = [(one.group_id, state_of(one)) for one in found]
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json([{"group": group_id, "state": state} for group_id, state in rows])
        case Style.PLAIN if options.state is None:
            for group_id, _ in rows:
                click.echo(group_id)
        case Style.PLAIN:
            print_columns((Column("GROUP", 15, grows=True), Column("STATE")), rows)
        case Style.TABLE if not found:
            remark("No share groups.")
        case Style.TABLE:
            print_table(("Group", "State"), rows)


def selected(cluster: ClusterAdmin, options: Options) -> list[str]:
    """The ids that --group or --all-groups stands for, sorted."""
    if options.all_groups:
        return [listing.group_id for listing in cluster.share_groups.listing()]
    return sorted(set(options.group))
