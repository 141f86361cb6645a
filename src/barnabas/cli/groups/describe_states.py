"""`barnabas groups --describe --state`: the coordinator, the assignor and the state of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import Style, print_json, print_table
from barnabas.cli.groups.columns import Column, print_columns
from barnabas.cli.groups.headings import heading_document, remark_on, with_dashes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.clients.admin.groups import GroupInfo


def show_states(found: Iterable[GroupInfo], style: Style, *, verbose: bool) -> None:
    """`--describe --state`."""
    if style is Style.JSON:
        print_json(states_document(found))
        return
    if style is Style.PLAIN:
        for group in found:
            remark_on(group)
            _print_state_lines(group, verbose=verbose)
    elif found:
        more = ("Epoch", "Target epoch") if verbose else ()
        print_table(
            ("Group", "Coordinator", "Assignor", "State", *more, "Members"),
            (with_dashes(_state_cells(group, verbose=verbose)) for group in found),
        )


def states_document(found: Iterable[GroupInfo]) -> list[dict[str, object]]:
    """Groups and their states, as plain values."""
    return [heading_document(group) | {"memberCount": len(group.members)} for group in found]


def coordinator_text(group: GroupInfo) -> str:
    """Where the coordinator is, as Kafka's tools write it."""
    node = group.coordinator
    return f"{node.host}:{node.port}  ({node.id})"


def _print_state_lines(group: GroupInfo, *, verbose: bool) -> None:
    more = (Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)) if verbose else ()
    columns = (
        Column("GROUP", 15, grows=True),
        Column("COORDINATOR (ID)", 25, grows=True),
        Column("ASSIGNMENT-STRATEGY", 20),
        Column("STATE", 20),
        *more,
        Column("#MEMBERS"),
    )
    click.echo()
    print_columns(columns, [_state_cells(group, verbose=verbose)])


def _state_cells(group: GroupInfo, *, verbose: bool) -> tuple[object, ...]:
    return (
        group.group_id,
        coordinator_text(group),
        group.assignor or None,
        group.state,
        *((group.epoch, group.assignment_epoch) if verbose else ()),
        len(group.members),
    )
