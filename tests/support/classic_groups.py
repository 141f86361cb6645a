"""A shell in memory around the rules of classic groups: it keeps log, time and timers, and what clients were told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from kio.schema.heartbeat.v4 import HeartbeatRequest
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.types import GroupId
from kio.static.primitive import i32, i32Timedelta

from barnabas.machines.groups.classic import replies as replies
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.rules import ClassicRules
from barnabas.machines.groups.settings import GroupSettings
from barnabas.machines.groups.table import GroupTable, TimerKey
from barnabas.machines.outcome import Asker
from barnabas.model.errors import ErrorCode
from barnabas.protocol.coordinator_records import ClassicProtocol, CoordinatorRecord, decode, encode
from barnabas.protocol.messages.groups.join_group import JoinGroupRequest
from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.machines.groups.table import GroupOutcome

GROUP = "readers"


@dataclass(eq=False)
class Caller(Asker[object]):
    """One request of a client, and its answer once there is one."""

    version: int
    client_id: str = "client"
    client_host: str = "/127.0.0.1"
    answer: Any = None

    @property
    def waits(self) -> bool:
        return self.answer is None

    @property
    def error(self) -> ErrorCode:
        assert self.answer is not None, "not answered yet"
        error = self.answer.error_code
        assert isinstance(error, ErrorCode)
        return error


def ms(value: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=value))


def subscription(*topics: str, version: int = 0) -> bytes:
    """What a consumer of these topics sends when it joins."""
    names = b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in topics)
    return version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class Groups:
    """One coordinator of classic groups. Every record goes through its bytes on its way to the log."""

    def __init__(
        self,
        settings: GroupSettings | None = None,
        log: Sequence[tuple[bytes, bytes | None]] = (),
        now_ms: int = 1_000_000,
        ids: Iterator[int] | None = None,
    ) -> None:
        self.ids = count(1) if ids is None else ids
        self.table = GroupTable(new_id=lambda: f"id{next(self.ids)}", settings=settings or GroupSettings())
        self.rules = ClassicRules(self.table)
        self.log = list(log)
        self.now_ms = now_ms
        self.timers: dict[TimerKey, int] = {}
        self.is_full = False
        """Whether everything that can be refused as too large is."""
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.rules.replay(record)
        self.take(self.rules.loaded(now_ms))

    def reload(self) -> Groups:
        """A coordinator that knows what the log knows."""
        return Groups(self.table.settings, self.log, self.now_ms, self.ids)

    @property
    def group(self) -> ClassicGroup:
        group = self.table.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def take(self, outcome: GroupOutcome) -> None:
        """Do what a shell does."""
        if self.is_full and outcome.changes and outcome.otherwise is not None:
            refused = [(asker, replies.sync_refused(ErrorCode.unknown_server_error)) for asker, _ in outcome.replies]
            instead = outcome.otherwise()
            outcome = replace(instead, replies=(*refused, *instead.replies))
        for record in outcome.changes:
            encoded = encode(record)
            self.log.append(encoded)
            assert decode(*encoded) == record
            self.rules.replay(record)
        for timer in outcome.timers:
            assert isinstance(timer.key, TimerKey)
            if timer.at_ms is None:
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer.at_ms
        for asker, answer in outcome.replies:
            assert isinstance(asker, Caller)
            assert asker.answer is None, "answered twice"
            asker.answer = answer

    def advance(self, by_ms: int) -> None:
        """Let time pass, and timers fire as it does."""
        until = self.now_ms + by_ms
        while self.timers and min(self.timers.values()) <= until:
            self.fire(min(self.timers, key=self.timers.__getitem__))
        self.now_ms = until

    def fire(self, key: TimerKey) -> None:
        """Let one timer fire, now or when it is due."""
        self.now_ms = max(self.now_ms, self.timers.pop(key))
        self.take(self.rules.expire(key, self.now_ms))

    def expire(self, kind: str, member_id: str = "") -> None:
        self.fire(TimerKey(f"classic.{kind}", GROUP, member_id))

    def delete(self) -> None:
        for record in self.group.tombstones():
            self.log.append(encode(record))
            self.rules.replay(record)

    def replay(self, record: CoordinatorRecord) -> None:
        self.log.append(encode(record))
        self.rules.replay(record)

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | Sequence[tuple[str, bytes]] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        group_id: str = GROUP,
        client_id: str = "client",
        reason: str | None = None,
    ) -> Caller:
        spoken = {"range": subscription("t")} if protocols is None else protocols
        pairs = spoken if not hasattr(spoken, "items") else spoken.items()
        caller = Caller(version, client_id)
        request = JoinGroupRequest(
            group_id=GroupId(group_id),
            session_timeout=ms(session_ms),
            rebalance_timeout=ms(rebalance_ms),
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=tuple(ClassicProtocol(name=name, metadata=metadata) for name, metadata in pairs),
            reason=reason,
        )
        self.take(self.rules.join_group(request, caller, self.now_ms))
        return caller

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        group_id: str = GROUP,
    ) -> Caller:
        caller = Caller(5)
        request = SyncGroupRequest(
            group_id=GroupId(group_id),
            generation_id=i32(self.group.generation if generation is None else generation),
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=name, assignment=value)
                for name, value in (assignments or {}).items()
            ),
        )
        self.take(self.rules.sync_group(request, caller, self.now_ms))
        return caller

    def heartbeat(
        self,
        member_id: str,
        generation: int | None = None,
        *,
        instance_id: str | None = None,
        group_id: str = GROUP,
    ) -> ErrorCode:
        caller = Caller(4)
        request = HeartbeatRequest(
            group_id=GroupId(group_id),
            generation_id=i32(self.group.generation if generation is None else generation),
            member_id=member_id,
            group_instance_id=instance_id,
        )
        self.take(self.rules.heartbeat(request, caller, self.now_ms))
        return caller.error

    def leave(self, *members: str | MemberIdentity, group_id: str = GROUP) -> Caller:
        caller = Caller(5)
        identities = tuple(MemberIdentity(member_id=m) if isinstance(m, str) else m for m in members)
        request = LeaveGroupRequest(group_id=GroupId(group_id), members=identities)
        self.take(self.rules.leave_group(request, caller, self.now_ms))
        return caller

    def stable(self, *instance_ids: str | None, **joining: Any) -> list[str]:
        """A stable group of new members, one for each instance id (None is a dynamic member); their ids."""
        joins = []
        for instance_id in instance_ids:
            caller = self.join(instance_id=instance_id, **joining)
            if caller.answer is not None:
                assert caller.error is ErrorCode.member_id_required
                caller = self.join(caller.answer.member_id, **joining)
            joins.append(caller)
        while self.group.initial_delay is not None:
            self.expire("join")
        return self.settle(joins)

    def settle(self, joins: Sequence[Caller]) -> list[str]:
        """Let members whose joins are answered ask for assignments, the leader last."""
        ids = [caller.answer.member_id for caller in joins]
        leader = joins[0].answer.leader
        chosen = joins[0].answer.protocol_name
        followers = [
            self.sync(m, joins[0].answer.generation_id, protocol_name=chosen, protocol_type=None)
            for m in ids
            if m != leader
        ]
        assert all(caller.answer is None for caller in followers)
        leading = self.sync(
            leader,
            joins[0].answer.generation_id,
            {member_id: f"for {member_id}".encode() for member_id in ids},
            protocol_name=chosen,
            protocol_type=None,
        )
        assert leading.error is ErrorCode.none
        assert all(caller.error is ErrorCode.none for caller in followers)
        return ids
