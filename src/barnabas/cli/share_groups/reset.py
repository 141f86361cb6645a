"""`barnabas share-groups --reset-offsets`: where a share group without members goes on.

Whatever was done or in flight is forgotten: every message from the new offset on is delivered, with a count of 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.output import remark
from barnabas.cli.groups.reset import at_time, has_members, is_active, show_plan
from barnabas.cli.groups.scope import partitions_of, require_led
from barnabas.cli.groups.times import parse_datetime
from barnabas.clients.errors import RequestRefused
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.share_groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.model.ids import TopicPartition


def reset_offsets(cluster: ClusterAdmin, options: Options) -> None:
    """Plan, show, and with --execute change; a group that has members is left alone, and the command fails."""
    (group_id,) = options.group
    moment = None if options.to_datetime is None else parse_datetime(options.to_datetime)
    group = cluster.share_groups.describe([group_id])[group_id]
    if is_active(group):
        raise has_members({group_id: group})
    before = {} if isinstance(group, RequestRefused) else _starts(cluster, group_id)
    plan = _new_offsets(cluster, options, before, moment)
    if not plan:
        remark(f"Group {group_id} has no state of any topic, so --all-topics selects no topic: use --topic.")
    if options.execute:
        cluster.share_groups.alter(group_id, plan)
    known = {partition: start for partition, start in before.items() if start is not None}
    show_plan({group_id: plan}, {group_id: known}, executed=options.execute, as_json=options.as_json)


def _starts(cluster: ClusterAdmin, group_id: str) -> dict[TopicPartition, int | None]:
    offsets = cluster.share_groups.offsets([group_id])[group_id]
    return {partition: None if state is None else state.start for partition, state in offsets.items()}


def _new_offsets(
    cluster: ClusterAdmin, options: Options, before: Mapping[TopicPartition, int | None], moment: int | None
) -> dict[TopicPartition, int]:
    partitions = sorted(before) if options.all_topics else partitions_of(cluster, options.topic)
    require_led(cluster, partitions)
    if moment is not None:
        return at_time(cluster, partitions, moment)
    return cluster.groups.offsets(partitions, EARLIEST if options.to_earliest else LATEST)
