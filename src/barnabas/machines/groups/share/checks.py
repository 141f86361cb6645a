"""What a heartbeat of the share protocol is refused for, in Kafka's order and with Kafka's codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.groups.consumer.checks import check_not_blank
from barnabas.machines.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.model.errors import FencedMemberEpoch, GroupMaxSizeReached, InvalidRequest

if TYPE_CHECKING:
    from kio.schema.share_group_heartbeat.v1 import ShareGroupHeartbeatRequest

    from barnabas.machines.groups.share.group import ShareGroup
    from barnabas.machines.groups.share.member import ShareMember


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Refuse a request that contradicts itself, whatever group it is for."""
    check_not_blank(request.member_id, "MemberId")
    check_not_blank(request.group_id, "GroupId")
    check_not_blank(request.rack_id, "RackId")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")


def check_room(group: ShareGroup, member_id: str, max_size: int) -> None:
    """Refuse a new member if the group is full."""
    if len(group.members) >= max_size and member_id not in group.members:
        raise GroupMaxSizeReached(
            f"The share group has reached its maximum capacity of {max_size} members (group.share.max.size)."
        )


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Refuse a member that is in another epoch than it is known to be in, or was in just before."""
    if epoch in (JOIN_EPOCH, member.epoch) or (epoch < member.epoch and epoch == member.previous_epoch):
        return
    raise FencedMemberEpoch(
        f"Member {member.member_id} is in epoch {member.epoch}, not in {epoch}. "
        "It has to abandon all its partitions and rejoin."
    )
