"""The responses to members of classic groups, and to tools that list and describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.describe_groups.v6.response import DescribedGroup, DescribedGroupMember
from kio.schema.heartbeat.v4 import HeartbeatResponse
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.list_groups.v5.response import ListedGroup
from kio.schema.types import GroupId
from kio.static.primitive import i32

from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.model.errors import ErrorCode
from barnabas.protocol.messages.groups.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.groups.sync_group import SyncGroupResponse
from barnabas.protocol.wire.durations import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.leave_group.v5.request import MemberIdentity

    from barnabas.machines.groups.classic.group import ClassicGroup


def joined(
    group: ClassicGroup, member_id: str, *, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The response to a join: the leader gets all members. `leader` names another than the group's."""
    told_leader = leader or group.leader or ""
    members: tuple[JoinGroupResponseMember, ...] = ()
    if member_id == told_leader:
        members = tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol or ""),
            )
            for member in group.members.values()
        )
    return JoinGroupResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        generation_id=i32(group.generation),
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=told_leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def join_refused(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """A join is not done."""
    return JoinGroupResponse(
        throttle_time=NO_TIME, error_code=error, protocol_name=None, leader="", member_id=member_id, members=()
    )


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """A member's assignment."""
    return SyncGroupResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def sync_refused(error: ErrorCode) -> SyncGroupResponse:
    """There is no assignment for this one."""
    return SyncGroupResponse(throttle_time=NO_TIME, error_code=error, assignment=b"")


def heartbeat(error: ErrorCode = ErrorCode.none) -> HeartbeatResponse:
    """The response to a heartbeat."""
    return HeartbeatResponse(throttle_time=NO_TIME, error_code=error)


def left(members: Iterable[MemberResponse], error: ErrorCode = ErrorCode.none) -> LeaveGroupResponse:
    """Some members have left."""
    return LeaveGroupResponse(throttle_time=NO_TIME, error_code=error, members=tuple(members))


def member_left(identity: MemberIdentity, error: ErrorCode = ErrorCode.none) -> MemberResponse:
    """One member has left, or cannot."""
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)


def describe(group: ClassicGroup) -> DescribedGroup:
    """The group for DescribeGroups; the members' metadata is included while the group has a protocol."""
    stable = group.state is ClassicGroupState.STABLE
    protocol = (group.protocol or "") if stable else ""
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId(group.group_id),
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def listed(group: ClassicGroup) -> ListedGroup:
    """The group for ListGroups."""
    return ListedGroup(
        group_id=GroupId(group.group_id),
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type="classic",
    )
