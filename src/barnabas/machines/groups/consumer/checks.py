"""What a heartbeat of the consumer protocol is refused for, in Kafka's order and with Kafka's codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.machines.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from barnabas.model.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from barnabas.protocol.wire.durations import NOT_GIVEN

if TYPE_CHECKING:
    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.consumer.group import ConsumerGroup
    from barnabas.machines.groups.consumer.member import Assignment, Member
    from barnabas.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBER_ID_SINCE: Final = 1
"""The version from which on members make their ids themselves."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Refuse a request that contradicts itself, whatever group it is for."""
    epoch = request.member_epoch
    if version >= MEMBER_ID_SINCE or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        check_not_blank(request.member_id, "MemberId")
    check_not_blank(request.group_id, "GroupId")
    check_not_blank(request.instance_id, "InstanceId")
    check_not_blank(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout == NOT_GIVEN:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """Refuse a new member if the group is full."""
    if len(group.members) >= max_size and member_id not in group.members:
        raise GroupMaxSizeReached(f"Group {group.group_id} has its maximum of {max_size} members.")


def check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """Refuse a member that is in another epoch than it is known to be in.

    The previous epoch is accepted of a member that has nothing which it was not given: the answer that raised its epoch
    may have been lost.
    """
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch == member.previous_epoch and epoch < member.epoch and _has_only(owned, member.assigned):
        return
    raise FencedMemberEpoch(
        f"Member {member.member_id} is in epoch {member.epoch}, not in {epoch}. "
        "It has to revoke all its partitions and rejoin."
    )


def check_released(group: ConsumerGroup, holder: Member, member_id: str) -> None:
    """Refuse a new member with the instance id of a member that has not left."""
    if holder.epoch != LEAVE_STATIC_EPOCH:
        raise UnreleasedInstanceId(
            f"Member {member_id} cannot join group {group.group_id} with instance id {holder.instance_id}: "
            f"member {holder.member_id} has it."
        )


def holder_of(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """The member that has an instance id, if it is this one."""
    holder = group.static_member(instance_id)
    if holder is None:
        raise UnknownMemberId(f"Group {group.group_id} has no static member {instance_id}.")
    if holder.member_id != member_id:
        raise FencedInstanceId(
            f"Member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}."
        )
    return holder


def check_not_blank(text: str | None, name: str) -> None:
    """Refuse a text that is there and has nothing in it."""
    if text is not None and not text.strip():
        raise InvalidRequest(f"{name} can't be empty.")


def _has_only(owned: Partitions | None, assigned: Assignment) -> bool:
    return owned is not None and all(
        topic in assigned and all(partition in assigned[topic] for partition in partitions)
        for topic, partitions in owned.items()
    )
