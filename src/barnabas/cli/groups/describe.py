"""`barnabas groups --describe`: committed offsets with lag, members, or the state of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.failures import Failed
from barnabas.cli.groups.columns import ABSENT, Column, print_columns
from barnabas.cli.groups.listing import selected
from barnabas.cli.output import Style, choose_style, print_json, print_table, remark
from barnabas.clients.errors import RequestRefused
from barnabas.clients.log_offsets import LATEST
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.cli.groups.command import Options
    from barnabas.clients.groups import Committed, GroupInfo, GroupMember, Groups
    from barnabas.model.ids import TopicPartition

REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def describe(groups: Groups, options: Options) -> None:
    """Show the groups that there are; then fail for those that could not be described."""
    described = groups.describe(selected(groups, options))
    found = [group for group in described.values() if not isinstance(group, RequestRefused)]
    style = choose_style(as_json=options.as_json)
    if options.members:
        show_members(found, style, verbose=options.verbose)
    elif options.state is not None:
        show_states(found, style, verbose=options.verbose)
    else:
        show_offsets(groups, found, style, verbose=options.verbose)
    refused = {group_id: group for group_id, group in described.items() if isinstance(group, RequestRefused)}
    if refused:
        raise Failed(". ".join(_why_not(group_id, refusal) for group_id, refusal in refused.items()))


def _why_not(group_id: str, refusal: RequestRefused) -> str:
    if refusal.code == ErrorCode.group_id_not_found:
        return f"Consumer group '{group_id}' does not exist; `barnabas groups --list` shows those that do"
    return f"Consumer group '{group_id}': {refusal}"


def remark_on(group: GroupInfo) -> None:
    """Say what one should know before reading the rest; tables say it above themselves."""
    if group.state == "Empty":
        remark(f"Consumer group '{group.group_id}' has no active members.")
    elif group.state in REBALANCING:
        remark(f"Warning: Consumer group '{group.group_id}' is rebalancing.")


@dataclass(frozen=True, slots=True)
class Progress:
    """One partition that a group reads or has read: how far it is, and who has it."""

    partition: TopicPartition
    committed: Committed | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """How many records the group has not read yet, if that is known."""
        return None if self.committed is None or self.end is None else self.end - self.committed.offset

    def as_json(self) -> dict[str, object]:
        """Everything, as plain values."""
        member = self.member
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "leaderEpoch": None if self.committed is None else self.committed.leader_epoch,
            "currentOffset": None if self.committed is None else self.committed.offset,
            "logEndOffset": self.end,
            "lag": self.lag,
            "consumerId": None if member is None else member.member_id,
            "host": None if member is None else member.host,
            "clientId": None if member is None else member.client_id,
        }


def progress(
    group: GroupInfo, committed: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]
) -> list[Progress]:
    """A group's partitions: by member, those with most partitions first; then what nobody has."""
    rows = []
    assigned: set[TopicPartition] = set()
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        assigned.update(member.assignment)
        rows += [Progress(one, committed.get(one), ends.get(one), member) for one in member.assignment]
    rows += [Progress(one, committed[one], ends.get(one), None) for one in sorted(committed.keys() - assigned)]
    return rows


def show_offsets(groups: Groups, found: Collection[GroupInfo], style: Style, *, verbose: bool) -> None:
    """`--describe --offsets`."""
    committed = groups.committed(group.group_id for group in found)
    partitions = {one for offsets in committed.values() for one in offsets}
    partitions.update(one for group in found for member in group.members for one in member.assignment)
    ends = groups.offsets(sorted(partitions), LATEST)
    shown = {group: progress(group, committed[group.group_id], ends) for group in found}
    if style is Style.JSON:
        print_json(
            [_heading_json(group) | {"partitions": [row.as_json() for row in rows]} for group, rows in shown.items()]
        )
        return
    for group, rows in shown.items():
        if style is Style.TABLE:
            _print_offset_table(group, rows, verbose=verbose)
            continue
        remark_on(group)
        if rows:
            _print_offset_lines(group, rows, verbose=verbose)


def _print_offset_lines(group: GroupInfo, rows: Iterable[Progress], *, verbose: bool) -> None:
    columns = [
        Column("GROUP", 15, grows=True),
        Column("TOPIC", 15, grows=True),
        Column("PARTITION", 10),
        *([Column("LEADER-EPOCH", 15)] if verbose else []),
        Column("CURRENT-OFFSET", 15),
        Column("LOG-END-OFFSET", 15),
        Column("LAG", 15),
        Column("CONSUMER-ID", 15, grows=True),
        Column("HOST", 15, grows=True),
        Column("CLIENT-ID"),
    ]
    click.echo()
    print_columns(columns, [(group.group_id, *_offset_cells(row, verbose=verbose)) for row in rows])


def _offset_cells(row: Progress, *, verbose: bool) -> tuple[object, ...]:
    epoch = () if not verbose else (None if row.committed is None else row.committed.leader_epoch,)
    member = row.member
    return (
        *row.partition,
        *epoch,
        None if row.committed is None else row.committed.offset,
        row.end,
        row.lag,
        *((None, None, None) if member is None else (member.member_id, member.host, member.client_id)),
    )


def _print_offset_table(group: GroupInfo, rows: list[Progress], *, verbose: bool) -> None:
    _print_heading(group)
    if not rows:
        remark("It has committed nothing.")
        return
    epoch = ("Leader epoch",) if verbose else ()
    print_table(
        ("Topic", "Partition", *epoch, "Committed", "Log end", "Lag", "Consumer", "Host", "Client"),
        (_for_people(_offset_cells(row, verbose=verbose)) for row in rows),
    )
    if len(rows) > 1:
        click.echo(total_lag([row.lag for row in rows]))


def total_lag(lags: list[int | None]) -> str:
    """The sum in words; a partition without a committed offset has no lag that could be known."""
    known = [lag for lag in lags if lag is not None]
    if not known:
        return "Lag: not known, as nothing is committed yet"
    which = "all partitions" if len(known) == len(lags) else f"the {len(known)} partitions with a committed offset"
    return f"Lag of {which}: {sum(known)}"


def show_members(found: Iterable[GroupInfo], style: Style, *, verbose: bool) -> None:
    """`--describe --members`."""
    if style is Style.JSON:
        print_json(
            [_heading_json(group) | {"members": [_member_json(member) for member in group.members]} for group in found]
        )
        return
    for group in found:
        if style is Style.TABLE:
            _print_member_table(group, verbose=verbose)
            continue
        remark_on(group)
        _print_member_lines(group, verbose=verbose)


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
    _print_heading(group)
    if not group.members:
        return
    instance = ("Instance",) if _has_instances(group) else ()
    more = ("Epoch", "Has", "Target epoch", "Will have", *(("New protocol",) if _is_mixed(group) else ()))
    print_table(
        ("Consumer", *instance, "Host", "Client", "Partitions", *(more if verbose else ())),
        (_for_people(_member_cells(group, member, verbose=verbose)) for member in group.members),
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


def show_states(found: Iterable[GroupInfo], style: Style, *, verbose: bool) -> None:
    """`--describe --state`."""
    if style is Style.JSON:
        print_json([_heading_json(group) | {"memberCount": len(group.members)} for group in found])
        return
    if style is Style.PLAIN:
        for group in found:
            remark_on(group)
            _print_state_lines(group, verbose=verbose)
    elif found:
        more = ("Epoch", "Target epoch") if verbose else ()
        print_table(
            ("Group", "Coordinator", "Assignor", "State", *more, "Members"),
            (_for_people(_state_cells(group, verbose=verbose)) for group in found),
        )


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
    node = group.coordinator
    return (
        group.group_id,
        f"{node.host}:{node.port}  ({node.id})",
        group.assignor or None,
        group.state,
        *((group.epoch, group.assignment_epoch) if verbose else ()),
        len(group.members),
    )


def _heading_json(group: GroupInfo) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator._asdict(),
        "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
    }


def _print_heading(group: GroupInfo) -> None:
    members = f"{len(group.members)} member{'' if len(group.members) == 1 else 's'}"
    click.echo(f"{click.style(group.group_id, bold=True)}  {group.state}, {members}")


def _for_people(cells: Iterable[object]) -> tuple[object, ...]:
    return tuple(ABSENT if cell is None else cell for cell in cells)
