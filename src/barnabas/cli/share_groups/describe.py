"""`barnabas share-groups --describe`: start offsets with lag, members, messages in flight, or states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import Style, choose_style, print_json, print_table, remark
from barnabas.cli.groups.columns import Column, print_columns
from barnabas.cli.groups.describe import fail_for_others, those_found
from barnabas.cli.groups.describe_members import assignment_text, members_document
from barnabas.cli.groups.describe_offsets import total_lag
from barnabas.cli.groups.describe_states import coordinator_text, states_document
from barnabas.cli.groups.headings import heading_document, print_heading, remark_on, with_dashes
from barnabas.cli.groups.kinds import SHARE_GROUPS
from barnabas.cli.share_groups.listing import selected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.share_groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.groups import GroupInfo
    from barnabas.clients.admin.share_groups import InFlight, SharePartitionOffsets
    from barnabas.model.ids import TopicPartition

    Offsets = Mapping[TopicPartition, SharePartitionOffsets | None]

GROUP = Column("GROUP", 15, grows=True)


def describe(cluster: ClusterAdmin, options: Options) -> None:
    """Show the groups that there are; then fail for those that could not be described."""
    described = cluster.share_groups.describe(selected(cluster, options))
    found = those_found(described)
    style = choose_style(as_json=options.as_json)
    if options.members:
        _show_members(found, style, verbose=options.verbose)
    elif options.in_flight:
        _show_in_flight(cluster, found, style)
    elif options.state is not None:
        _show_states(found, style, verbose=options.verbose)
    else:
        _show_offsets(cluster, found, style, verbose=options.verbose)
    fail_for_others(described, SHARE_GROUPS)


def _show_offsets(cluster: ClusterAdmin, found: Sequence[GroupInfo], style: Style, *, verbose: bool) -> None:
    offsets = cluster.share_groups.offsets(group.group_id for group in found)
    if style is Style.JSON:
        print_json(
            [heading_document(group) | {"partitions": _offsets_document(offsets[group.group_id])} for group in found]
        )
        return
    for group in found:
        _print_offsets(group, offsets[group.group_id], style, verbose=verbose)


def _offsets_document(offsets: Offsets) -> list[dict[str, object]]:
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "leaderEpoch": None if state is None else state.leader_epoch,
            "startOffset": None if state is None else state.start,
            "lag": None if state is None else state.lag,
        }
        for partition, state in sorted(offsets.items(), key=lambda item: item[0])
    ]


def _print_offsets(group: GroupInfo, offsets: Offsets, style: Style, *, verbose: bool) -> None:
    rows = [
        tuple(value for name, value in row.items() if verbose or name != "leaderEpoch")
        for row in _offsets_document(offsets)
    ]
    if style is Style.TABLE:
        print_heading(group)
    if not rows:
        remark(f"Share group '{group.group_id}' has no offset information.")
    elif style is Style.TABLE:
        epoch = ("Leader epoch",) if verbose else ()
        print_table(("Topic", "Partition", *epoch, "Start offset", "Lag"), map(with_dashes, rows))
        if len(rows) > 1:
            click.echo(total_lag([None if state is None else state.lag for state in offsets.values()]))
    else:
        epochs = (Column("LEADER-EPOCH", 13),) if verbose else ()
        columns = (GROUP, Column("TOPIC", 15, grows=True), Column("PARTITION", 10), *epochs)
        _print_lines((*columns, Column("START-OFFSET", 13), Column("LAG")), [(group.group_id, *row) for row in rows])


def _show_in_flight(cluster: ClusterAdmin, found: Sequence[GroupInfo], style: Style) -> None:
    flying = {group.group_id: _in_flight_document(cluster.share_groups.in_flight(group.group_id)) for group in found}
    if style is Style.JSON:
        print_json([heading_document(group) | {"inFlight": flying[group.group_id]} for group in found])
        return
    for group in found:
        rows = [tuple(row.values()) for row in flying[group.group_id]]
        if style is Style.TABLE:
            print_heading(group)
        if not rows:
            remark(f"Nothing is stored of messages of share group '{group.group_id}' behind its start offsets.")
        elif style is Style.TABLE:
            print_table(("Topic", "Partition", "First offset", "Last offset", "State", "Deliveries"), rows)
        else:
            columns = (GROUP, Column("TOPIC", 15, grows=True), Column("PARTITION", 10), Column("FIRST-OFFSET", 13))
            more = (Column("LAST-OFFSET", 13), Column("STATE", 13), Column("DELIVERIES"))
            _print_lines((*columns, *more), [(group.group_id, *row) for row in rows])


def _in_flight_document(flying: Mapping[TopicPartition, Sequence[InFlight]]) -> list[dict[str, object]]:
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "firstOffset": run.first,
            "lastOffset": run.last,
            "state": run.state,
            "deliveries": run.deliveries,
        }
        for partition, runs in sorted(flying.items(), key=lambda item: item[0])
        for run in runs
    ]


def _show_members(found: Sequence[GroupInfo], style: Style, *, verbose: bool) -> None:
    if style is Style.JSON:
        print_json(members_document(found))
        return
    for group in found:
        rows = [
            (
                *(member.member_id, member.host, member.client_id, len(member.assignment)),
                *((member.epoch,) if verbose else ()),
                assignment_text(member.assignment),
            )
            for member in group.members
        ]
        if style is Style.TABLE:
            print_heading(group)
            if rows:
                epoch = ("Epoch",) if verbose else ()
                print_table(("Consumer", "Host", "Client", "Partitions", *epoch, "Has"), rows)
            continue
        remark_on(group)
        if rows:
            columns = (GROUP, *(Column(title, 15, grows=True) for title in ("CONSUMER-ID", "HOST", "CLIENT-ID")))
            epochs = (Column("MEMBER-EPOCH", 13),) if verbose else ()
            _print_lines(
                (*columns, Column("#PARTITIONS", 12), *epochs, Column("ASSIGNMENT")),
                [(group.group_id, *row) for row in rows],
            )


def _show_states(found: Sequence[GroupInfo], style: Style, *, verbose: bool) -> None:
    rows = [
        (
            *(group.group_id, coordinator_text(group), group.state),
            *((group.epoch, group.assignment_epoch) if verbose else ()),
            len(group.members),
        )
        for group in found
    ]
    if style is Style.JSON:
        print_json(states_document(found))
    elif style is Style.TABLE and rows:
        more = ("Epoch", "Assignment epoch") if verbose else ()
        print_table(("Group", "Coordinator", "State", *more, "Members"), rows)
    elif style is Style.PLAIN:
        epochs = (Column("GROUP-EPOCH", 12), Column("ASSIGNMENT-EPOCH", 17)) if verbose else ()
        columns = (GROUP, Column("COORDINATOR (ID)", 25, grows=True), Column("STATE", 15), *epochs, Column("#MEMBERS"))
        for group, row in zip(found, rows, strict=True):
            remark_on(group)
            _print_lines(columns, [row])


def _print_lines(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """A table as kafka-share-groups has it, with an empty line before it."""
    click.echo()
    print_columns(columns, rows)
