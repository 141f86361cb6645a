"""`barnabas groups --describe`: offsets with lag, members, or states, each in a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import choose_style
from barnabas.cli.groups.describe_members import show_members
from barnabas.cli.groups.describe_offsets import show_offsets
from barnabas.cli.groups.describe_states import show_states
from barnabas.cli.groups.kinds import CONSUMER_GROUPS
from barnabas.cli.groups.listing import selected
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.groups.kinds import GroupKind
    from barnabas.cli.groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.groups import GroupInfo


def describe(cluster: ClusterAdmin, options: Options) -> None:
    """Show the groups that there are; then fail for those that could not be described."""
    described = cluster.groups.describe(selected(cluster, options))
    found = those_found(described)
    style = choose_style(as_json=options.as_json)
    if options.members:
        show_members(found, style, verbose=options.verbose)
    elif options.state is not None:
        show_states(found, style, verbose=options.verbose)
    else:
        show_offsets(cluster, found, style, verbose=options.verbose)
    fail_for_others(described, CONSUMER_GROUPS)


def those_found(described: Mapping[str, GroupInfo | RequestRefused]) -> list[GroupInfo]:
    """The groups that there are."""
    return [group for group in described.values() if not isinstance(group, RequestRefused)]


def fail_for_others(described: Mapping[str, GroupInfo | RequestRefused], kind: GroupKind) -> None:
    """Raise Failed if there are groups that could not be described."""
    refused = {group_id: group for group_id, group in described.items() if isinstance(group, RequestRefused)}
    if refused:
        raise Failed(". ".join(_why_not(group_id, refusal, kind) for group_id, refusal in refused.items()))


def _why_not(group_id: str, refusal: RequestRefused, kind: GroupKind) -> str:
    name = f"{kind.name.capitalize()} group '{group_id}'"
    if refusal.code == ErrorCode.group_id_not_found:
        return f"{name} does not exist; `barnabas {kind.command} --list` shows those that do"
    return f"{name}: {refusal}"
