"""Share groups in the responses of ShareGroupDescribe and ListGroups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.response import ListedGroup
from kio.schema.share_group_describe.v1.response import Assignment, DescribedGroup, Member, TopicPartitions
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

if TYPE_CHECKING:
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.machines.groups.share.group import ShareGroup
    from barnabas.machines.groups.share.member import ShareMember

SHARE: Final = "share"
"""The type of such a group, and of its protocol."""


def describe_group(group: ShareGroup, image: ClusterImage, assignor: str) -> DescribedGroup:
    """All that is known of a group; topics that no longer exist are left out."""
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId(group.group_id),
        group_state=group.state.value,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.assignment_epoch),
        assignor_name=assignor,
        members=tuple(_member(member, image) for member in group.members.values()),
    )


def list_group(group: ShareGroup) -> ListedGroup:
    """A group in a list of groups."""
    return ListedGroup(
        group_id=GroupId(group.group_id), protocol_type=SHARE, group_state=group.state.value, group_type=SHARE
    )


def _member(member: ShareMember, image: ClusterImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(TopicName(name) for name in sorted(member.topics)),
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(
                    topic_id=topic_id,
                    topic_name=TopicName(image.topic_names[topic_id]),
                    partitions=tuple(i32(partition) for partition in sorted(member.assigned[topic_id])),
                )
                for topic_id in sorted(member.assigned)
                if topic_id in image.topic_names
            )
        ),
    )
