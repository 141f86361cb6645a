"""`barnabas groups --reset-offsets`: where a group without members goes on reading.

The new offset of every partition is worked out first, for all groups; only then is anything committed. An offset
outside of a partition's log is moved to the nearer end: a consumer that finds its offset out of range would forget it
and fall back on auto.offset.reset.
"""

from __future__ import annotations

import csv
import time
from io import StringIO
from typing import TYPE_CHECKING, TypeGuard

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import Style, choose_style, print_json, print_table, remark
from barnabas.cli.common.values.files import read_text
from barnabas.cli.groups.columns import Column, print_columns
from barnabas.cli.groups.listing import selected
from barnabas.cli.groups.scope import partitions_of, require_led
from barnabas.cli.groups.times import parse_datetime, parse_duration
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import timedelta
    from pathlib import Path

    from barnabas.cli.groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.groups import Committed, GroupInfo

    Offsets = dict[TopicPartition, int]
    Plan = dict[str, Offsets]

INACTIVE = ("Empty", "Dead")


def reset_offsets(cluster: ClusterAdmin, options: Options) -> None:
    """Plan, show, and with --execute commit; groups that have members are left alone, and the command fails."""
    moment = target_time(options)
    filed = read_plan(options.from_file, options.group) if options.from_file else {}
    described = cluster.groups.describe(selected(cluster, options))
    active = {group_id: group for group_id, group in described.items() if is_active(group)}
    plan: Plan = {}
    before: dict[str, dict[TopicPartition, Committed]] = cluster.groups.committed(
        group_id for group_id in described if group_id not in active
    )
    for group_id, committed in before.items():
        if options.from_file and group_id not in filed:
            raise Failed(f"{options.from_file} has no offsets of group {group_id}.")
        plan[group_id] = new_offsets(cluster, options, committed, filed.get(group_id, {}), moment)
        if not plan[group_id]:
            remark(f"Group {group_id} has committed no offsets, so --all-topics selects no topic: use --topic.")
    if options.execute:
        for group_id, offsets in plan.items():
            cluster.groups.commit(group_id, offsets)
    if options.export:
        click.echo(write_plan(plan_rows(plan), with_group=len(options.group) != 1), nl=False)
    else:
        old = {group_id: {one: had.offset for one, had in offsets.items()} for group_id, offsets in before.items()}
        show_plan(plan, old, executed=options.execute, as_json=options.as_json)
    if not (options.execute or options.dry_run or options.export):
        remark("Nothing was changed. Add --execute to commit the new offsets, or --dry-run to leave out this line.")
    if active:
        raise has_members(active)


def has_members(active: Mapping[str, GroupInfo]) -> Failed:
    """Why the offsets of groups that are in use are not reset."""
    reasons = (f"group '{group_id}' is {group.state}" for group_id, group in sorted(active.items()))
    return Failed(
        f"Offsets can only be reset while a group has no active members, but {', '.join(reasons)}: "
        "stop its consumers first."
    )


def is_active(group: GroupInfo | RequestRefused) -> TypeGuard[GroupInfo]:
    """Whether a group has members. One that does not exist has none: a reset makes it."""
    if isinstance(group, RequestRefused):
        if group.code != ErrorCode.group_id_not_found:
            raise group
        return False
    return group.state not in INACTIVE


def target_time(options: Options) -> int | None:
    """The time that --to-datetime or --by-duration stands for, in milliseconds."""
    if options.to_datetime is not None:
        return parse_datetime(options.to_datetime)
    if options.by_duration is not None:
        return now_ms() - _milliseconds(parse_duration(options.by_duration))
    return None


def now_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def new_offsets(
    cluster: ClusterAdmin,
    options: Options,
    committed: Mapping[TopicPartition, Committed],
    filed: Offsets,
    moment: int | None,
) -> Offsets:
    """Where one group goes on, by the scenario that was chosen."""
    if options.from_file:
        require_led(cluster, filed)
        return within_logs(cluster, filed)
    partitions = sorted(committed) if options.all_topics else partitions_of(cluster, options.topic)
    require_led(cluster, partitions)
    if options.to_offset is not None:
        return within_logs(cluster, dict.fromkeys(partitions, options.to_offset))
    if options.shift_by is not None:
        return within_logs(cluster, shifted(partitions, committed, options.shift_by))
    if options.to_earliest:
        return cluster.groups.offsets(partitions, EARLIEST)
    if options.to_latest:
        return cluster.groups.offsets(partitions, LATEST)
    if moment is not None:
        return at_time(cluster, partitions, moment)
    kept = {partition: committed[partition].offset for partition in partitions if partition in committed}
    return kept | cluster.groups.offsets([partition for partition in partitions if partition not in committed], LATEST)


def shifted(partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed], by: int) -> Offsets:
    """Committed offsets, moved on or back."""
    missing = [str(partition) for partition in partitions if partition not in committed]
    if missing:
        raise Failed(
            f"The group has committed no offset for {', '.join(missing)}, so there is nothing to shift: "
            "use --to-earliest, --to-latest or --to-offset instead."
        )
    return {partition: committed[partition].offset + by for partition in partitions}


def at_time(cluster: ClusterAdmin, partitions: Collection[TopicPartition], moment: int) -> Offsets:
    """The first records that are not older than a moment; the end where all records are."""
    found = cluster.groups.offsets(partitions, moment)
    older = [partition for partition, offset in found.items() if offset < 0]
    for partition in older:
        remark(f"Warning: {partition} has no record at or after that time: the new offset is the end of its log.")
    return found | cluster.groups.offsets(older, LATEST)


def within_logs(cluster: ClusterAdmin, wanted: Mapping[TopicPartition, int]) -> Offsets:
    """Offsets moved into the range of their logs, with a warning for each that was outside."""
    starts, ends = cluster.groups.offsets(wanted, EARLIEST), cluster.groups.offsets(wanted, LATEST)
    offsets = {}
    for partition, offset in sorted(wanted.items()):
        offsets[partition] = min(max(offset, starts[partition]), ends[partition])
        if offset != offsets[partition]:
            remark(
                f"Warning: {partition} has offsets {starts[partition]} to {ends[partition]}; "
                f"{offset} becomes {offsets[partition]}."
            )
    return offsets


def plan_rows(plan: Plan) -> list[tuple[str, str, int, int]]:
    """Group, topic, partition and new offset, in order."""
    return [
        (group_id, *partition, offset)
        for group_id, offsets in sorted(plan.items())
        for partition, offset in sorted(offsets.items())
    ]


def show_plan(plan: Plan, before: Mapping[str, Mapping[TopicPartition, int]], *, executed: bool, as_json: bool) -> None:
    """The new offsets, beside those that were there `before`, in the style that is wanted."""
    rows = plan_rows(plan)

    def old(group_id: str, topic: str, partition: int) -> int | None:
        return before[group_id].get(TopicPartition(topic, partition))

    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json(
                {
                    "executed": executed,
                    "offsets": [
                        {
                            "group": group,
                            "topic": topic,
                            "partition": number,
                            "offset": old(group, topic, number),
                            "newOffset": offset,
                        }
                        for group, topic, number, offset in rows
                    ],
                }
            )
        case Style.PLAIN if rows:
            click.echo()
            columns = (
                Column("GROUP", 15, grows=True),
                Column("TOPIC", 15, grows=True),
                Column("PARTITION", 10),
                Column("NEW-OFFSET"),
            )
            print_columns(columns, rows)
        case Style.TABLE if rows:
            title = "New offset" if executed else "Would become"
            print_table(
                ("Group", "Topic", "Partition", "Committed", title),
                (
                    (group, topic, number, "-" if (was := old(group, topic, number)) is None else was, offset)
                    for group, topic, number, offset in rows
                ),
            )


def write_plan(rows: Collection[tuple[str, str, int, int]], *, with_group: bool) -> str:
    """CSV as --from-file reads it: topic, partition, offset; before them the group, if there may be several."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(row if with_group else row[1:] for row in rows)
    return text.getvalue()


def read_plan(file: Path, group_ids: tuple[str, ...]) -> Plan:
    """The offsets in a file that --export wrote: lines with a group, or without if one --group is named."""
    plan: Plan = {}
    with StringIO(read_text(file), newline="") as lines:
        for number, line in enumerate(csv.reader(lines), 1):
            match line:
                case []:
                    continue
                case [topic, partition, offset] if len(group_ids) == 1:
                    group_id = group_ids[0]
                case [group_id, topic, partition, offset]:
                    pass
                case _:
                    raise Failed(f"{file}, line {number}: expected [group,]topic,partition,offset.")
            try:
                plan.setdefault(group_id, {})[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError as error:
                raise Failed(f"{file}, line {number}: partition and offset have to be numbers.") from error
    return plan
