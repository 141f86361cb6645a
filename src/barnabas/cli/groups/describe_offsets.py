"""`barnabas groups --describe --offsets`: how far groups have read, and how far they lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import Style, print_json, print_table, remark
from barnabas.cli.common.remedies import with_remedy
from barnabas.cli.groups.columns import Column, print_columns
from barnabas.cli.groups.headings import heading_document, print_heading, remark_on, with_dashes
from barnabas.protocol.list_offsets import LATEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.groups import Committed, GroupInfo, GroupMember
    from barnabas.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupPartition:
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


def partitions_of(
    group: GroupInfo, committed: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]
) -> list[GroupPartition]:
    """A group's partitions: by member, those with most partitions first; then what nobody has."""
    rows = []
    assigned: set[TopicPartition] = set()
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        assigned.update(member.assignment)
        rows += [GroupPartition(one, committed.get(one), ends.get(one), member) for one in member.assignment]
    rows += [GroupPartition(one, committed[one], ends.get(one), None) for one in sorted(committed.keys() - assigned)]
    return rows


def show_offsets(cluster: ClusterAdmin, found: Collection[GroupInfo], style: Style, *, verbose: bool) -> None:
    """`--describe --offsets`."""
    committed = cluster.groups.committed(group.group_id for group in found)
    partitions = {one for offsets in committed.values() for one in offsets}
    partitions.update(one for group in found for member in group.members for one in member.assignment)
    ends, forbidden = cluster.groups.visible_offsets(sorted(partitions), LATEST)
    for refusal in list(forbidden.values())[:1]:
        told = f"Log ends and lags of {', '.join(forbidden)} are left out: {refusal}"
        remark(with_remedy(told, refusal.remedy))
    shown = {group: partitions_of(group, committed[group.group_id], ends) for group in found}
    if style is Style.JSON:
        print_json(
            [heading_document(group) | {"partitions": [row.as_json() for row in rows]} for group, rows in shown.items()]
        )
        return
    for group, rows in shown.items():
        if style is Style.TABLE:
            _print_offset_table(group, rows, verbose=verbose)
            continue
        remark_on(group)
        if rows:
            _print_offset_lines(group, rows, verbose=verbose)


def _print_offset_lines(group: GroupInfo, rows: Iterable[GroupPartition], *, verbose: bool) -> None:
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


def _offset_cells(row: GroupPartition, *, verbose: bool) -> tuple[object, ...]:
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


def _print_offset_table(group: GroupInfo, rows: list[GroupPartition], *, verbose: bool) -> None:
    print_heading(group)
    if not rows:
        remark("The group has committed no offsets.")
        return
    epoch = ("Leader epoch",) if verbose else ()
    print_table(
        ("Topic", "Partition", *epoch, "Committed", "Log end", "Lag", "Consumer", "Host", "Client"),
        (with_dashes(_offset_cells(row, verbose=verbose)) for row in rows),
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
