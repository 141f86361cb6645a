"""Consumers of the classic protocol without a broker, one request at a time, for groups that change their protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from itertools import cycle
from typing import TYPE_CHECKING, Any

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v0.data import TopicPartition as AssignedPartition
from kio.schema.consumer_protocol_subscription.v1.data import ConsumerProtocolSubscription, TopicPartition
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import HeartbeatRequest
from kio.schema.leave_group.v5 import LeaveGroupRequest
from kio.schema.leave_group.v5.request import MemberIdentity
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32, i32Timedelta

from barnabas.machines.groups.classic.consumer_protocol import read_assignment
from barnabas.protocol.coordinator_records import ClassicProtocol
from barnabas.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.support.consumer_groups import GROUP, Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.support.consumer_groups import Coordinator


def subscription_bytes(topics: Iterable[str], owned: Mapping[str, Iterable[int]] | None = None) -> bytes:
    """What a consumer sends along when it joins."""
    out = BytesIO()
    out.write(b"\0\1")
    entity_writer(ConsumerProtocolSubscription)(
        out,
        ConsumerProtocolSubscription(
            topics=tuple(topics),
            owned_partitions=tuple(
                TopicPartition(topic=TopicName(name), partitions=tuple(i32(index) for index in sorted(indexes)))
                for name, indexes in (owned or {}).items()
            ),
        ),
    )
    return out.getvalue()


def assignment_bytes(partitions: Mapping[str, Iterable[int]], user_data: bytes | None = None) -> bytes:
    """What a leader assigns."""
    out = BytesIO()
    out.write(b"\0\1")
    topics = tuple(
        AssignedPartition(topic=TopicName(name), partitions=tuple(i32(index) for index in sorted(indexes)))
        for name, indexes in partitions.items()
    )
    entity_writer(ConsumerProtocolAssignment)(
        out, ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data)
    )
    return out.getvalue()


@dataclass(slots=True)
class ClassicConsumer:
    """A client of the classic protocol. An eager one gives everything back before it joins; a cooperative one keeps
    what it has until it is assigned less, and then joins again.
    """

    coordinator: Coordinator
    topics: tuple[str, ...] = ("orders",)
    instance_id: str | None = None
    cooperative: bool = False
    member_id: str = ""
    generation: int = -1
    owned: dict[str, frozenset[int]] = field(default_factory=dict)
    phase: str = "join"
    """What it does next: join, sync or heartbeat."""
    protocols: tuple[str, ...] = ("range",)
    noise: dict[str, bytes] = field(default_factory=dict)
    """What it says in some of its protocols instead of what it subscribes to."""
    user_data: bytes | None = None
    """What its assignor adds, if it leads."""
    asked: Client | None = None
    """What it waits for."""
    joined: JoinGroupResponse | None = None

    def beat(self) -> ErrorCode | None:
        """Do what comes next, unless an answer is awaited: the error code of an answer that has come."""
        if self.asked is None:
            self.asked = Client(version=9)
            self._ask(self.asked)
        if not self.asked.answers:
            return None
        (answer,) = self.asked.answers
        self.asked = None
        self._hear(answer)
        code: ErrorCode = answer.error_code
        return code

    def _ask(self, client: Client) -> None:
        rules, now_ms = self.coordinator.rules, self.coordinator.now_ms
        if self.phase == "join":
            self.coordinator.run(rules.join_group(self._join_request(), client, now_ms))
        elif self.phase == "sync":
            self.coordinator.run(rules.sync_group(self._sync_request(), client, now_ms))
        else:
            heartbeat = HeartbeatRequest(
                group_id=GroupId(GROUP),
                generation_id=i32(self.generation),
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            self.coordinator.run(rules.heartbeat(heartbeat, client, now_ms))

    def _hear(self, answer: Any) -> None:
        code = answer.error_code
        if code in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id):
            self.owned, self.phase, self.generation = {}, "join", -1
            if code is ErrorCode.unknown_member_id:
                self.member_id = ""
        elif code is ErrorCode.member_id_required:
            self.member_id = answer.member_id
        elif code is not ErrorCode.none:
            self._rejoin()
        elif isinstance(answer, JoinGroupResponse):
            self.joined, self.member_id, self.generation = answer, answer.member_id, answer.generation_id
            self.phase = "sync"
        elif isinstance(answer, SyncGroupResponse):
            self._take(answer.assignment)

    def _take(self, assignment: bytes) -> None:
        given = dict(read_assignment(assignment).partitions)
        lost = any(indexes - given.get(name, frozenset()) for name, indexes in self.owned.items())
        self.owned = given
        self.phase = "heartbeat"
        if self.cooperative and lost:
            self._rejoin()

    def _rejoin(self) -> None:
        self.phase = "join"
        if not self.cooperative:
            self.owned = {}

    def _join_request(self) -> JoinGroupRequest:
        metadata = subscription_bytes(self.topics, self.owned)
        return JoinGroupRequest(
            group_id=GroupId(GROUP),
            session_timeout=i32Timedelta.parse(timedelta(seconds=10)),
            rebalance_timeout=i32Timedelta.parse(timedelta(seconds=3)),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=tuple(
                ClassicProtocol(name=name, metadata=self.noise.get(name, metadata)) for name in self.protocols
            ),
        )

    def _sync_request(self) -> SyncGroupRequest:
        assert self.joined is not None
        return SyncGroupRequest(
            group_id=GroupId(GROUP),
            generation_id=i32(self.generation),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.joined.protocol_type,
            protocol_name=self.joined.protocol_name,
            assignments=self._assignments(self.joined),
        )

    def _assignments(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """As a leader: deal out the partitions one by one."""
        members = [member.member_id for member in joined.members]
        dealt: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in members}
        turns = cycle(members)
        for name in self.topics if members else ():
            topic = self.coordinator.table.image.topic(name)
            for partition in () if topic is None else topic.partitions:
                dealt[next(turns)].setdefault(name, []).append(partition.index)
        return tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions, self.user_data))
            for member_id, partitions in dealt.items()
        )

    def leave(self) -> Any:
        """Leave the group."""
        client = Client(version=5)
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=GroupId(GROUP), members=(identity,))
        self.coordinator.run(self.coordinator.rules.leave_group(request, client, self.coordinator.now_ms))
        (answer,) = client.answers
        self.owned, self.phase, self.member_id, self.generation = {}, "join", "", -1
        return answer

    def partitions(self) -> set[tuple[str, int]]:
        """What it has, by name."""
        image = self.coordinator.table.image
        return {(name, index) for name, indexes in self.owned.items() for index in indexes if image.topic(name)}
