"""`barnabas groups --describe`: offsets with lag, members, or states, each in a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import choose_style
from barnabas.cli.groups.describe_members import show_members
from barnabas.cli.groups.describe_offsets import show_offsets
from barnabas.cli.groups.describe_states import show_states
from barnabas.cli.groups.listing import selected
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cli.groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin


def describe(cluster: ClusterAdmin, options: Options) -> None:
    """Show the groups that there are; then fail for those that could not be described."""
    described = cluster.groups.describe(selected(cluster, options))
    found = [group for group in described.values() if not isinstance(group, RequestRefused)]
    style = choose_style(as_json=options.as_json)
    if options.members:
        show_members(found, style, verbose=options.verbose)
    elif options.state is not None:
        show_states(found, style, verbose=options.verbose)
    else:
        show_offsets(cluster, found, style, verbose=options.verbose)
    refused = {group_id: group for group_id, group in described.items() if isinstance(group, RequestRefused)}
    if refused:
        raise Failed(". ".join(_why_not(group_id, refusal) for group_id, refusal in refused.items()))


def _why_not(group_id: str, refusal: RequestRefused) -> str:
    if refusal.code == ErrorCode.group_id_not_found:
        return f"Consumer group '{group_id}' does not exist; `barnabas groups --list` shows those that do"
    return f"Consumer group '{group_id}': {refusal}"
