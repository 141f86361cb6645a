"""Members of groups over plain sockets: all join, are told their partitions, and the clock stops at the last answer.

What a client library waits for (its next heartbeat, its poll) is left out, so that a rebalance takes as long as the
broker takes. Requests are built beforehand; the number of a generation is set in where it goes.
"""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kio.schema.consumer_group_heartbeat.v1 import request as beat
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.offset_commit.v9 import request as commit
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from bench.clients import wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

_MARK: Final = i32(0x5A17C0DE)
"""A generation that no group reaches: its bytes are where the true one goes."""
_MARK_BYTES: Final = _MARK.to_bytes(4, "big")
ERROR: Final = slice(13, 15)
"""Of a response with size, correlation id, no tags and the throttle time before its error code."""
_GENERATION: Final = slice(15, 19)
_MEMBER_ID: Final = 16
"""Where such a response of the new protocol has the length of the member's id, behind an error without a message."""
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AND_INTERVAL: Final = 8
"""Bytes between the member's id and the assignment."""
_NO_ASSIGNMENT: Final = 0xFF
_TWO_ENDS: Final = 2
"""Bytes behind the partitions of an answer, the ends of the assignment and of the answer, each without tags; and those
of a request without partitions, which are none and the request's end."""
_END: Final = b"\0"
_NO_SIZE: Final = bytes(4)
_REBALANCING: Final = (27).to_bytes(2, "big")
NOT_YET: Final = {14, 15, 16}
"""Errors of a coordinator that is not there yet."""
_MINUTE: Final = i32Timedelta.parse(timedelta(minutes=1))
_NOT_GIVEN: Final = i32Timedelta.parse(timedelta(milliseconds=-1))
_NO_TOPIC: Final = TopicName("no-such-topic")
_DEADLINE: Final = 60.0


def wait_for_coordinator(port: int, group: str) -> None:
    """Wait until the group is served: the first who asks makes the broker create the topic of offsets."""
    deadline = time.monotonic() + _DEADLINE
    find = wire.frame(FindCoordinatorRequest(key_type=i8(0), coordinator_keys=(group,)))
    with wire.connect(port) as connection:
        while time.monotonic() < deadline:
            connection.sendall(find)
            found = wire.parse(FindCoordinatorResponse, wire.receive(connection)).coordinators[0].error_code
            if found == 0 and _joins(connection, group):
                return
            time.sleep(0.05)
    raise RuntimeError(f"no coordinator for {group} within {_DEADLINE:.0f} seconds")


class ClassicGroup:
    """Members of the classic protocol, each with its connection; the first is the leader."""

    def __init__(
        self, port: int, group: str, topic: str, members: int, lent: Sequence[socket.socket] | None = None
    ) -> None:
        """Members use connections of their own, or those that are lent to them and stay open."""
        self._group = group
        self._stack = ExitStack()
        self._connections = lent or [self._stack.enter_context(wire.connect(port)) for _ in range(members)]
        ids = [_joined(connection, group) for connection in self._connections]
        self._joins = [_join(group, member) for member in ids]
        self._leave = _leave(group, ids)
        assignments = tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=_assignment(topic, number))
            for number, member in enumerate(ids)
        )
        self._syncs = [_sync(group, member, assignments if member == ids[0] else ()) for member in ids]
        self._heartbeats = [_heartbeat(group, member) for member in ids]
        self._generation = b""
        # The first is alone at first and leads; it joins again when all others wait for it.
        self._send([0], self._joins)
        wire.receive_only(self._connections[0])
        self._send(range(1, members), self._joins)
        self._send([0], self._joins)
        self._finish()

    def rebalance(self) -> float:
        """Let the leader join again, and everybody when they are told; seconds until all know their partitions."""
        others = range(1, len(self._connections))
        started = time.perf_counter()
        self._send([0], self._joins)
        if others:
            self._hear_of_it()
            self._send(others, self._joins)
        self._finish()
        return time.perf_counter() - started

    def heartbeat(self) -> None:
        """A heartbeat of the last member, while nothing happens."""
        connection = self._connections[-1]
        connection.sendall(self.heartbeat_frame())
        _checked(wire.receive_only(connection))

    def heartbeat_frame(self) -> bytes:
        """What the last member sends in this generation."""
        return self._in_this_generation(self._heartbeats[-1])

    def heartbeat_frames(self) -> list[bytes]:
        """What each member sends in this generation."""
        return [self._in_this_generation(frame) for frame in self._heartbeats]

    def _in_this_generation(self, frame: bytes) -> bytes:
        return frame.replace(_MARK_BYTES, self._generation)

    def _hear_of_it(self) -> None:
        """Send a member's heartbeats until it is told to join again: only then does joining mean that."""
        connection = self._connections[-1]
        for _ in range(1_000):
            connection.sendall(self.heartbeat_frame())
            if wire.receive_only(connection)[ERROR] == _REBALANCING:
                return
        raise RuntimeError(f"no member of {self._group} hears of a rebalance")

    def _finish(self) -> None:
        """Take everybody's new generation, and give and take assignments in it."""
        generations = {_checked(wire.receive_only(connection))[_GENERATION] for connection in self._connections}
        if len(generations) != 1:
            raise RuntimeError(f"members of one group are in {len(generations)} generations")
        [self._generation] = generations
        self._send(
            range(len(self._connections)),
            [self._in_this_generation(sync) for sync in self._syncs],
        )
        for connection in self._connections:
            _checked(wire.receive_only(connection))

    def _send(self, members: Sequence[int], frames: list[bytes]) -> None:
        for number in members:
            self._connections[number].sendall(frames[number])

    def close(self) -> None:
        """Leave, all at once."""
        self._connections[0].sendall(self._leave)
        _checked(wire.receive_only(self._connections[0]))
        self._stack.close()


class ConsumerGroup:
    """Members of the new protocol, and one more that comes and goes and moves their partitions."""

    def __init__(
        self, port: int, group: str, topic: str, members: int, lent: Sequence[socket.socket] | None = None
    ) -> None:
        """Members use connections of their own, or those that are lent to them and stay open."""
        self._group = group
        self._topic = topic
        self._stack = ExitStack()
        connections = lent or [self._stack.enter_context(wire.connect(port)) for _ in range(members)]
        self._members = [
            Member(connection, group, topic, f"member-{number:03}") for number, connection in enumerate(connections)
        ]
        self._guest = Member(self._stack.enter_context(wire.connect(port)), group, topic, "guest")
        self._subscribes_to_more = False
        for member in self._members:
            member.join()
        self._settle(self._members)

    def rebalance(self) -> float:
        """Let one more member join; seconds until all members have what the broker wants them to have."""
        started = time.perf_counter()
        self._guest.join()
        self._settle([*self._members, self._guest])
        seconds = time.perf_counter() - started
        self._guest.leave()
        self._settle(self._members)
        return seconds

    def visit(self) -> None:
        """Let one more member join, and leave at once."""
        self._guest.join()
        self._guest.leave()

    def raise_epoch(self) -> None:
        """Let the last member subscribe to a topic that does not exist, or no more, and all others hear of the epoch.

        No partition moves.
        """
        *others, last = self._members
        self._subscribes_to_more = not self._subscribes_to_more
        last.subscribe(*[_NO_TOPIC] * self._subscribes_to_more)
        for member in others:
            member.send()
            if not member.receive() or member.epoch != last.epoch:
                raise RuntimeError(f"a member of {self._group} did not hear of epoch {last.epoch}")

    def heartbeat(self) -> None:
        """A heartbeat of the first member, while nothing happens."""
        self._members[0].send()
        if self._members[0].receive():
            raise RuntimeError(f"{self._group} has not come to rest")

    def heartbeat_frame(self) -> bytes:
        """What the first member sends in this epoch while nothing happens."""
        return self._members[0].idle_frame()

    def heartbeat_frames(self) -> list[bytes]:
        """What each member sends in this epoch while nothing happens."""
        return [member.idle_frame() for member in self._members]

    def close(self) -> None:
        """Leave."""
        for member in self._members:
            member.leave()
        self._stack.close()

    def _settle(self, members: Sequence[Member]) -> None:
        """Send heartbeats without pause until all members are in the newest epoch and nobody is given anything new."""
        deadline = time.monotonic() + _DEADLINE
        while time.monotonic() < deadline:
            for member in members:
                member.send()
            changed = [member.receive() for member in members]
            if not any(changed) and len({member.epoch for member in members}) == 1:
                return
        raise RuntimeError(f"{len(members)} members did not come to rest within {_DEADLINE:.0f} seconds")


class Member:
    """A member of the new protocol, which takes and gives back whatever it is told to.

    Of an answer only what the next request needs is looked at, and partitions go back as the bytes in which they came:
    with messages read and made in Python the clock would measure this client.
    """

    def __init__(self, connection: socket.socket, group: str, topic: str, name: str) -> None:
        self.epoch = 0
        self._connection = connection
        self._group = GroupId(group)
        self._topic = TopicName(topic)
        self._name = name
        self._join = self._frame(i32(0), (), (self._topic,), _MINUTE)
        self._leave = self._frame(i32(-1), None)
        self._idle = self._frame(_MARK, None)
        self._confirmed: bytes | None = None

    def join(self) -> None:
        """Join the group, or join it again."""
        self.epoch = 0
        self._connection.sendall(self._join)
        self.receive()

    def subscribe(self, *more: TopicName) -> None:
        """Subscribe to more topics than the group's."""
        self._connection.sendall(self._in_this_epoch(self._frame(_MARK, None, (self._topic, *more))))
        self.receive()

    def leave(self) -> None:
        """Leave the group."""
        self._connection.sendall(self._leave)
        _checked(wire.receive_only(self._connection))

    def send(self) -> None:
        """A heartbeat, which confirms what the last answer brought."""
        frame, self._confirmed = self._confirmed or self._idle, None
        self._connection.sendall(self._in_this_epoch(frame))

    def idle_frame(self) -> bytes:
        """A heartbeat that brings nothing new."""
        return self._in_this_epoch(self._idle)

    def _in_this_epoch(self, frame: bytes) -> bytes:
        return frame.replace(_MARK_BYTES, _EPOCH.pack(self.epoch))

    def receive(self) -> bool:
        """Take an answer; whether it brought anything."""
        answer = _checked(wire.receive_only(self._connection))
        start = _MEMBER_ID + max(answer[_MEMBER_ID], 1)  # a length is one more than it says, 0 where there is no id
        before = self.epoch
        (self.epoch,) = _EPOCH.unpack_from(answer, start)
        assignment = start + _EPOCH_AND_INTERVAL
        if answer[assignment] == _NO_ASSIGNMENT:
            return self.epoch != before
        self._confirmed = self._confirming(answer[assignment + 1 : -_TWO_ENDS])
        return True

    def _confirming(self, places: bytes) -> bytes:
        """A heartbeat with partitions, which are the last that stands in a request, too."""
        body = self._idle[len(_NO_SIZE) : -_TWO_ENDS] + places + _END
        return len(body).to_bytes(len(_NO_SIZE), "big") + body

    def _frame(
        self,
        epoch: i32,
        places: tuple[()] | None,
        topics: tuple[TopicName, ...] | None = None,
        timeout: i32Timedelta = _NOT_GIVEN,
    ) -> bytes:
        return wire.frame(
            beat.ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._name,
                member_epoch=epoch,
                rebalance_timeout=timeout,
                subscribed_topic_names=topics,
                topic_partitions=places,
            )
        )


def commit_requests(topic: str, groups: int) -> list[bytes]:
    """Commits of one offset, each for another group without members."""
    place = commit.OffsetCommitRequestPartition(partition_index=i32(0), committed_offset=i64(1), committed_metadata="")
    topics = (commit.OffsetCommitRequestTopic(name=TopicName(topic), partitions=(place,)),)
    return [
        wire.frame(commit.OffsetCommitRequest(group_id=GroupId(f"commits-{number}"), member_id="", topics=topics))
        for number in range(groups)
    ]


def commit_error_at(topic: str) -> slice:
    """Where an answer to a commit carries its error code."""
    start = 9 + 4 + 1 + 1 + len(topic) + 1 + 4
    return slice(start, start + 2)


def _join(group: str, member: str) -> bytes:
    return wire.frame(
        JoinGroupRequest(
            group_id=GroupId(group),
            session_timeout=_MINUTE,
            rebalance_timeout=_MINUTE,
            member_id=member,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff"),),
        )
    )


def _joined(connection: socket.socket, group: str) -> str:
    """A member id from the broker, without joining with it."""
    connection.sendall(_join(group, ""))
    return wire.parse(JoinGroupResponse, wire.receive(connection)).member_id


def _joins(connection: socket.socket, group: str) -> bool:
    connection.sendall(_join(group, "stranger"))
    return wire.parse(JoinGroupResponse, wire.receive(connection)).error_code not in NOT_YET


def _sync(group: str, member: str, assignments: tuple[SyncGroupRequestAssignment, ...]) -> bytes:
    return wire.frame(
        SyncGroupRequest(
            group_id=GroupId(group),
            generation_id=_MARK,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
    )


def _heartbeat(group: str, member: str) -> bytes:
    return wire.frame(HeartbeatRequest(group_id=GroupId(group), generation_id=_MARK, member_id=member))


def _leave(group: str, members: list[str]) -> bytes:
    leaving = tuple(MemberIdentity(member_id=member) for member in members)
    return wire.frame(LeaveGroupRequest(group_id=GroupId(group), members=leaving))


def _assignment(topic: str, partition: int) -> bytes:
    head = struct.pack(">hih", 0, 1, len(topic)) + topic.encode()
    return head + struct.pack(">iii", 1, partition, -1)


def _checked(response: bytes) -> bytes:
    if response[ERROR] != b"\0\0":
        raise RuntimeError(f"a group's request failed with error {int.from_bytes(response[ERROR], 'big', signed=True)}")
    return response
