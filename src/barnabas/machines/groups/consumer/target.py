"""The target assignment of a consumer group: what each member has once all have revoked and got.

It is made by an assignor for one epoch of the group, from the members as they will be when the heartbeat that asks for
it is stored. Only what changed is written: one record per member with another target, and one for the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.machines.groups.assignors import GroupSpec, MemberSpec, TopicSpec, assign
from barnabas.machines.groups.consumer.member import target_record
from barnabas.protocol.coordinator_records import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CoordinatorRecord,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from barnabas.machines.controller.image import ClusterImage
    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.consumer.group import ConsumerGroup, ResolvedRegex
    from barnabas.machines.groups.consumer.member import Member


class Target(NamedTuple):
    """What one member is to have."""

    epoch: int
    partitions: Partitions


class Subscriptions:
    """What members subscribe to, by name and by pattern, as ids of topics that exist."""

    def __init__(self, image: ClusterImage, resolved: Mapping[str, ResolvedRegex]) -> None:
        self._image = image
        self._resolved = resolved
        self._found: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}

    def includes(self, member: Member, topic_id: UUID) -> bool:
        """Whether a member subscribes to a topic; a pattern that is not resolved yet matches none."""
        name = self._image.topic_names.get(topic_id)
        if name is None:
            return False
        regex = self._resolved.get(member.regex)
        return name in member.topics or (regex is not None and name in regex.topics)

    def of(self, member: Member) -> frozenset[UUID]:
        """All topics that a member subscribes to."""
        key = (member.topics, member.regex)
        if (found := self._found.get(key)) is None:
            regex = self._resolved.get(member.regex)
            names = member.topics if regex is None else member.topics | regex.topics
            topics = (self._image.topic(name) for name in names)
            found = self._found[key] = frozenset(topic.topic_id for topic in topics if topic is not None)
        return found


def may_assign(last_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether the last assignment is old enough for the next; always if it is not known or no interval is set.

    One from the future was made by a broker whose clock is ahead, or before this clock was set back: nothing is known
    of its age, and to wait for its time would keep members without partitions.
    """
    return last_ms == 0 or interval_ms == 0 or not last_ms <= now_ms < last_ms + interval_ms


def make_target(
    group: ConsumerGroup,
    epoch: int,
    member: Member,
    subscriptions: Subscriptions,
    image: ClusterImage,
    assignor: str,
    now_ms: int,
) -> tuple[Target, list[CoordinatorRecord]]:
    """Make the target assignment for an epoch in which `member` is as given; its own target, and all records."""
    before = dict(group.targets)
    members = {**group.members, member.member_id: member}
    replaced = group.static_member(member.instance_id)
    if replaced is not None and replaced.member_id != member.member_id:
        del members[replaced.member_id]
        before[member.member_id] = before.pop(replaced.member_id, {})
    spec = _spec(members, before, subscriptions, image)
    assignment = assign(assignor, spec)
    records = []
    for member_id in members:
        partitions = assignment.get(member_id, {})
        target = group.targets.get(member_id)
        if partitions is not target and partitions != target:
            records.append(target_record(group.group_id, member_id, partitions))
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return Target(epoch, assignment.get(member.member_id, {})), records


def target_epoch_record(group_id: str, epoch: int, made_ms: int) -> CoordinatorRecord:
    """Which epoch the target assignment is for, and when it was made."""
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id), ConsumerGroupTargetAssignmentMetadataValue(epoch, made_ms)
    )


def _spec(
    members: Mapping[str, Member],
    targets: Mapping[str, Partitions],
    subscriptions: Subscriptions,
    image: ClusterImage,
) -> GroupSpec:
    specs = {
        member_id: MemberSpec(subscriptions.of(member), targets.get(member_id, {}), member.instance_id, member.rack_id)
        for member_id, member in members.items()
    }
    topics: dict[UUID, TopicSpec] = {}
    for subscribed in dict.fromkeys(spec.subscribed for spec in specs.values()):  # nearly all read the same topics
        for topic_id in subscribed:
            if topic_id not in topics and (topic := image.topic_by_id(topic_id)) is not None:
                topics[topic_id] = TopicSpec(name=topic.name, partition_count=len(topic.partitions))
    return GroupSpec(members=specs, topics=topics)
