"""JoinGroup for a classic group: who may join, under which id, and whether that begins a rebalance.

    no member id, dynamic, v4+     an id is given out (MEMBER_ID_REQUIRED); the client joins again with it
    no member id, dynamic          joins under a new id
    no member id, static           takes the place of the member with its instance id, or joins under a new id
    an id that was given out       joins
    a member's id                  joins again: a rebalance if it leads, or says something new, or one is under way;
                                   otherwise it gets the present generation
    any other                      UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID

A static member that restarts while the group is Stable, and with which the members would choose the same protocol,
gets its old assignment without a rebalance. If it was the leader, it must not assign partitions: from v9 on the
response says so, before v9 the response names its former member id as the leader.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.groups.classic import replies as replies
from barnabas.machines.groups.classic.members import ClassicMember
from barnabas.machines.groups.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.outcome import Outcome
from barnabas.model.errors import ErrorCode, InconsistentGroupProtocol
from barnabas.protocol.wire.durations import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.machines.groups.classic.group import ClassicGroup
    from barnabas.machines.groups.classic.rebalance import ClassicRebalance
    from barnabas.machines.groups.table import GroupOutcome
    from barnabas.machines.outcome import Asker
    from barnabas.protocol.coordinator_records import ClassicProtocol
    from barnabas.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse

FIRST_VERSION_WITH_REQUIRED_ID: Final = 4
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT: Final = 9

_LONGEST_NAME: Final = 32_000
"""Bytes of an instance's or client's id in a member's id; a record holds 32,767 of the whole."""


class Joining(NamedTuple):
    """Who joins, in our own types."""

    asker: Asker[JoinGroupResponse]
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[ClassicProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str

    @classmethod
    def of(cls, request: JoinGroupRequest, asker: Asker[JoinGroupResponse]) -> Joining:
        """The join of one client."""
        session_timeout_ms = request.session_timeout // MILLISECOND
        rebalance_timeout_ms = request.rebalance_timeout // MILLISECOND
        return cls(
            asker=asker,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            reason=request.reason or "not provided",
        )


def join(turn: ClassicRebalance, joining: Joining, new_id: Callable[[], str]) -> None:
    """Let a client join; `new_id` makes the unique part of an id. Raises without a change if it is refused."""
    group = turn.group
    if not _has_room(turn, joining.member_id):
        _turn_away(turn, joining)
    elif not group.supports(joining.protocol_type, [protocol.name for protocol in joining.protocols]):
        raise InconsistentGroupProtocol(
            f"The members of group {group.group_id} have protocol type {group.protocol_type}."
        )
    elif not joining.member_id:
        _join_unknown(turn, joining, _member_id(joining.instance_id or joining.asker.client_id, new_id()))
    elif joining.member_id in group.pending_joins and joining.instance_id is None:
        _add(turn, joining, joining.member_id)
    else:
        _join_again(turn, joining, group.member(joining.member_id, joining.instance_id))


def _member_id(name: str, unique: str) -> str:
    """A member id that begins with the client's name; a name that is too long for a record is shortened."""
    return f"{name.encode()[:_LONGEST_NAME].decode(errors='ignore')}-{unique}"


def _has_room(turn: ClassicRebalance, member_id: str) -> bool:
    """Whether group.max.size allows one more; during a rebalance, those who come last find no place."""
    group, limit = turn.group, turn.settings.max_size
    if group.state is ClassicGroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return (member is not None and member.join_asker is not None) or group.joined < limit
    return member is not None or len(group.members) < limit


def _turn_away(turn: ClassicRebalance, joining: Joining) -> None:
    if (member := turn.group.members.get(joining.member_id)) is not None:
        turn.remove(member)
    else:
        turn.remove_pending(joining.member_id)
    turn.draft.reply(joining.asker, replies.join_refused(ErrorCode.group_max_size_reached, ""))
    turn.complete_join_if_due()


def _join_unknown(turn: ClassicRebalance, joining: Joining, member_id: str) -> None:
    group = turn.group
    if joining.instance_id is not None:
        if (holder := group.instances.get(joining.instance_id)) is not None:
            _replace(turn, joining, group.members[holder], member_id)
        else:
            _add(turn, joining, member_id)
    elif joining.asker.version >= FIRST_VERSION_WITH_REQUIRED_ID:
        group.pending_joins.add(member_id)
        turn.expect(member_id, joining.session_timeout_ms)
        turn.draft.reply(joining.asker, replies.join_refused(ErrorCode.member_id_required, member_id))
    else:
        _add(turn, joining, member_id)


def _add(turn: ClassicRebalance, joining: Joining, member_id: str) -> None:
    group = turn.group
    member = ClassicMember(
        member_id=member_id,
        instance_id=joining.instance_id,
        client_id=joining.asker.client_id,
        client_host=joining.asker.client_host,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=joining.session_timeout_ms,
        protocols=joining.protocols,
        is_new=True,
    )
    if group.initial_delay is not None:
        group.initial_delay.grown = True
    group.add(member, joining.protocol_type)
    turn.park_join(member, joining.asker)
    turn.expect(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
    turn.rebalance(f"{member_id} joins; it says: {joining.reason}")


def _join_again(turn: ClassicRebalance, joining: Joining, member: ClassicMember) -> None:
    group = turn.group
    changed = joining.protocols != member.protocols
    leads = group.leader == member.member_id
    if group.state is ClassicGroupState.PREPARING_REBALANCE or changed:
        why = "joins again with other metadata" if changed else "joins again"
    elif group.state is ClassicGroupState.STABLE and leads:
        why = "leads and joins again"
    else:
        turn.draft.reply(joining.asker, replies.joined(group, member.member_id))
        return
    protocols = joining.protocols if changed else member.protocols
    group.update(member, protocols, joining.session_timeout_ms, joining.rebalance_timeout_ms)
    turn.park_join(member, joining.asker)
    turn.rebalance(f"{member.member_id} {why}; it says: {joining.reason}")


def _replace(turn: ClassicRebalance, joining: Joining, old: ClassicMember, new_id: str) -> None:
    group = turn.group
    leader_before = group.leader
    turn.refuse_parked(old, ErrorCode.fenced_instance_id, old.member_id)
    member = group.replace(old, new_id)
    group.update(member, joining.protocols, joining.session_timeout_ms, joining.rebalance_timeout_ms)
    turn.forget(old.member_id)
    turn.heard_of(member)
    if group.state is ClassicGroupState.STABLE and group.choose_protocol() == group.protocol:
        turn.draft.changes.append(group.record(group.state_since_ms))
        turn.draft.otherwise = partial(_put_back, group, member, old)
        if joining.asker.version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
            answer = replies.joined(group, new_id, skip_assignment=group.leader == new_id)
        else:
            answer = replies.joined(group, new_id, leader=leader_before)
        turn.draft.reply(joining.asker, answer)
    else:
        turn.park_join(member, joining.asker)
        turn.rebalance(f"static member {joining.instance_id} restarted as {new_id}: {joining.reason}")


def _put_back(group: ClassicGroup, member: ClassicMember, old: ClassicMember) -> GroupOutcome:
    """The group with the restarted member is too large to be stored: the former member takes its place again."""
    again = group.replace(member, old.member_id)
    group.update(again, old.protocols, old.session_timeout_ms, old.rebalance_timeout_ms)
    return Outcome()
