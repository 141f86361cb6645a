"""`barnabas groups --describe --members`: who is in a group, and who has which partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import Style, print_json, print_table
from barnabas.cli.groups.columns import ABSENT, Column, print_columns
from barnabas.cli.groups.headings import heading_document, print_heading, remark_on, with_dashes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.clients.admin.groups import GroupInfo, GroupMember
    from barnabas.model.ids import TopicPartition


def show_members(found: Iterable[GroupInfo], style: Style, *, verbose: bool) -> None:
    """`--describe --members`."""
    if style is Style.JSON:
        print_json(members_document(found))
        return
    for group in found:
        if style is Style.TABLE:
            _print_member_table(group, verbose=verbose)
            continue
        remark_on(group)
        _print_member_lines(group, verbose=verbose)


def members_document(found: Iterable[GroupInfo]) -> list[dict[str, object]]:
    """Groups and their members, as plain values."""
    return [
        heading_document(group) | {"members": [_member_json(member) for member in group.members]} for group in found
    ]


def _member_json(member: GroupMember) -> dict[str, object]:
    return {
        "consumerId": member.member_id,
        "groupInstanceId": member.instance_id,
        "host": member.host,
        "clientId": member.client_id,
        "assignment": [[*partition] for partition in member.assignment],
        "targetAssignment": None
        if member.target_assignment is None
        else [[*partition] for partition in member.target_assignment],
        "epoch": member.epoch,
        "upgraded": member.upgraded,
    }


def _print_member_lines(group: GroupInfo, *, verbose: bool) -> None:
    columns = [
        Column("GROUP", 15, grows=True),
        Column("CONSUMER-ID", 15, grows=True),
        *([Column("GROUP-INSTANCE-ID", 17, grows=True)] if _has_instances(group) else []),
        Column("HOST", 15, grows=True),
        Column("CLIENT-ID", 15, grows=True),
        Column("#PARTITIONS", 15),
    ]
    if verbose:
        columns += [
            Column("CURRENT-EPOCH", 15),
            Column("CURRENT-ASSIGNMENT", 20, grows=True),
            Column("TARGET-EPOCH", 15),
            Column("TARGET-ASSIGNMENT", 20, grows=True),
            *([Column("UPGRADED")] if _is_mixed(group) else []),
        ]
    click.echo()
    print_columns(
        columns, [(group.group_id, *_member_cells(group, member, verbose=verbose)) for member in group.members]
    )


def _member_cells(group: GroupInfo, member: GroupMember, *, verbose: bool) -> tuple[object, ...]:
    instance = (member.instance_id or "",) if _has_instances(group) else ()
    cells = (member.member_id, *instance, member.host, member.client_id, len(member.assignment))
    if not verbose:
        return cells
    upgraded = (ABSENT if member.upgraded is None else str(member.upgraded).lower(),) if _is_mixed(group) else ()
    return (
        *cells,
        member.epoch,
        assignment_text(member.assignment),
        group.assignment_epoch,
        assignment_text(member.target_assignment or ()),
        *upgraded,
    )


def _print_member_table(group: GroupInfo, *, verbose: bool) -> None:
    print_heading(group)
    if not group.members:
        return
    instance = ("Instance",) if _has_instances(group) else ()
    more = ("Epoch", "Has", "Target epoch", "Will have", *(("New protocol",) if _is_mixed(group) else ()))
    print_table(
        ("Consumer", *instance, "Host", "Client", "Partitions", *(more if verbose else ())),
        (with_dashes(_member_cells(group, member, verbose=verbose)) for member in group.members),
    )


def _has_instances(group: GroupInfo) -> bool:
    return any(member.instance_id for member in group.members)


def _is_mixed(group: GroupInfo) -> bool:
    """Whether the group is changing its protocol, so that some members speak one and some the other."""
    return {True, False} <= {member.upgraded for member in group.members}


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """`orders:0,1;payments:2`, or a dash for nothing."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    texts = (f"{topic}:{','.join(map(str, sorted(numbers)))}" for topic, numbers in topics.items())
    return ";".join(sorted(texts)) or ABSENT
