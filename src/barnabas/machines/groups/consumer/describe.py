"""Consumer groups in the responses of ConsumerGroupDescribe and ListGroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.consumer_group_describe.v1.response import Assignment, DescribedGroup, TopicPartitions
from kio.schema.consumer_group_describe.v1.response import Member as DescribedMember
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.response import ListedGroup
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32

from barnabas.machines.groups.consumer.member import partitions_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from uuid import UUID

    from barnabas.machines.controller.image import ClusterImage
    from barnabas.machines.groups.consumer.group import ConsumerGroup
    from barnabas.machines.groups.consumer.member import Member

_CLASSIC_MEMBER = i8(0)
_CONSUMER_MEMBER = i8(1)


def describe_group(group: ConsumerGroup, image: ClusterImage, default_assignor: str) -> DescribedGroup:
    """All that is known of a group; topics that no longer exist are left out."""
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId(group.group_id),
        group_state=group.state.value,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.assignment_epoch),
        assignor_name=group.preferred_assignor() or default_assignor,
        members=tuple(_member(member, group, image) for member in group.members.values()),
    )


def list_group(group: ConsumerGroup) -> ListedGroup:
    """A group in a list of groups."""
    return ListedGroup(
        group_id=GroupId(group.group_id),
        protocol_type="consumer",
        group_state=group.state.value,
        group_type="consumer",
    )


def _member(member: Member, group: ConsumerGroup, image: ClusterImage) -> DescribedMember:
    has = partitions_of(member.assigned)
    for topic, partitions in member.pending_revocation.items():
        has[topic] = has.get(topic, frozenset()) | frozenset(partitions)
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(TopicName(name) for name in sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(has, image),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), image),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[UUID, AbstractSet[int]], image: ClusterImage) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic_id,
                topic_name=TopicName(image.topic_names[topic_id]),
                partitions=tuple(i32(partition) for partition in sorted(partitions[topic_id])),
            )
            for topic_id in sorted(partitions)
            if topic_id in image.topic_names
        )
    )
