"""What stands above the tables that describe groups, and what all documents about them have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import remark
from barnabas.cli.groups.columns import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.clients.admin.groups import GroupInfo

REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def remark_on(group: GroupInfo) -> None:
    """Say what one should know before reading the rest; tables say it above themselves."""
    if group.state == "Empty":
        remark(f"{kind_of(group)} group '{group.group_id}' has no active members.")
    elif group.state in REBALANCING:
        remark(f"Warning: {kind_of(group)} group '{group.group_id}' is rebalancing.")


def kind_of(group: GroupInfo) -> str:
    """`Share` for a share group, `Consumer` for the groups of both protocols of consumers."""
    return "Share" if group.type == "Share" else "Consumer"


def heading_document(group: GroupInfo) -> dict[str, object]:
    """The group itself, as plain values."""
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator._asdict(),
        "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
    }


def print_heading(group: GroupInfo) -> None:
    """A group in one line, above its table."""
    members = f"{len(group.members)} member{'' if len(group.members) == 1 else 's'}"
    click.echo(f"{click.style(group.group_id, bold=True)}  {group.state}, {members}")


def with_dashes(cells: Iterable[object]) -> tuple[object, ...]:
    """Cells of a table, with a dash where there is nothing."""
    return tuple(ABSENT if cell is None else cell for cell in cells)
