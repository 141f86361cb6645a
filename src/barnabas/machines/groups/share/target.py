"""The target assignment of a share group: which members share which partitions in one epoch of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.groups.assignors.simple import assign_simple
from barnabas.machines.groups.assignors.spec import GroupSpec, MemberSpec, TopicSpec
from barnabas.machines.groups.share.member import target_record
from barnabas.protocol.coordinator_records import (
    CoordinatorRecord,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.machines.controller.image import ClusterImage
    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.share.group import ShareGroup
    from barnabas.machines.groups.share.member import ShareMember


def make_target(
    group: ShareGroup, epoch: int, member: ShareMember, image: ClusterImage, now_ms: int
) -> tuple[Partitions, list[CoordinatorRecord]]:
    """Make the target assignment for an epoch in which `member` is as given; its own target, and all records.

    Only what changed is written: one record per member with another target, and one for the epoch.
    """
    members = {**group.members, member.member_id: member}
    assignment = assign_simple(_spec(group, members, image), group.state_partitions.assignable())
    records = [
        target_record(group.group_id, member_id, partitions)
        for member_id, partitions in assignment.items()
        if partitions != group.targets.get(member_id)
    ]
    value = ShareGroupTargetAssignmentMetadataValue(epoch, now_ms)
    records.append(CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group.group_id), value))
    return assignment[member.member_id], records


def _spec(group: ShareGroup, members: dict[str, ShareMember], image: ClusterImage) -> GroupSpec:
    topics: dict[UUID, TopicSpec] = {}
    subscriptions: dict[frozenset[str], frozenset[UUID]] = {}
    for names in {member.topics for member in members.values()}:
        found = [topic for name in names if (topic := image.topic(name)) is not None]
        subscriptions[names] = frozenset(topic.topic_id for topic in found)
        for topic in found:
            topics[topic.topic_id] = TopicSpec(name=topic.name, partition_count=len(topic.partitions))
    return GroupSpec(
        members={
            member_id: MemberSpec(
                rack_id=member.rack_id,
                subscribed=subscriptions[member.topics],
                assigned=group.targets.get(member_id, {}),
            )
            for member_id, member in members.items()
        },
        topics=topics,
    )
