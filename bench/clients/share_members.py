"""Members of share groups over one plain socket: heartbeats of as many as there are, several in flight.

A heartbeat names its member and belongs to no connection, so one connection speaks for all of them. Requests are built
beforehand; the member's epoch is set in where it goes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.incremental_alter_configs.v1 import request as altering
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32

from bench.clients import groups, wire

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARK: Final = i32(0x5A17C0DE)
"""An epoch that no member reaches: its bytes are where the true one goes."""
_IN_FLIGHT: Final = 16
_GROUP: Final = i8(32)
_SET: Final = i8(0)
_NOT_YET: Final = {14, 15, 16}
_DEADLINE: Final = 120.0


class SharePlace(NamedTuple):
    """A partition that a member is assigned."""

    topic_id: UUID
    partition: int


class ShareGroup:
    """Members of one group; a context manager in which all of them have joined and know their partitions.

    The group is deleted at its end: what brokers keep of groups before would be counted for the next one.
    """

    def __init__(self, port: int, group: str, topic: str, size: int) -> None:
        self.name = group
        self._topic = topic
        self._connection = wire.connect(port)
        groups.wait_for_coordinator(port, group)
        read_from_the_beginning(port, group)
        self.members = [_Member(group, topic) for _ in range(size)]
        self._await_coordinator(self.members[0])
        self._exchange(self.members[1:], [member.joining for member in self.members[1:]])
        self.settle(self.members)

    def __enter__(self) -> ShareGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self._exchange(self.members, [member.leaving for member in self.members])
        self._delete()
        self._connection.close()

    def _delete(self) -> None:
        deadline = time.monotonic() + _DEADLINE
        request = wire.frame(DeleteGroupsRequest(groups_names=(GroupId(self.name),)))
        while time.monotonic() < deadline:
            self._connection.sendall(request)
            [answer] = wire.parse(DeleteGroupsResponse, wire.receive(self._connection)).results
            if not answer.error_code:
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} could not be deleted: {answer.error_code!r}")

    def heartbeats(self, total: int) -> float:
        """Seconds that so many heartbeats took which bring nothing new, of all members in turn."""
        size = len(self.members)
        turn = [self.members[number % size] for number in range(total)]
        frames = [member.heartbeat() for member in turn]
        started = time.perf_counter()
        changed = self._exchange(turn, frames)
        seconds = time.perf_counter() - started
        if changed:
            raise RuntimeError(f"{self.name} has not come to rest")
        return seconds

    def rebalance(self) -> float:
        """Let one more member join; seconds until all members have what the broker wants them to have."""
        guest = _Member(self.name, self._topic)
        started = time.perf_counter()
        self._exchange([guest], [guest.joining])
        self.settle([*self.members, guest])
        seconds = time.perf_counter() - started
        self._exchange([guest], [guest.leaving])
        self.settle(self.members)
        return seconds

    def settle(self, members: Sequence[_Member]) -> None:
        """Send heartbeats without pause until all are in the newest epoch, have partitions, and nothing is new."""
        deadline = time.monotonic() + _DEADLINE
        while time.monotonic() < deadline:
            changed = self._exchange(members, [member.heartbeat() for member in members])
            if not changed and len({member.epoch for member in members}) == 1 and all(one.places for one in members):
                return
        raise RuntimeError(f"{len(members)} members did not come to rest within {_DEADLINE:.0f} seconds")

    def _await_coordinator(self, first: _Member) -> None:
        """Join with the first member, as soon as the coordinator is there."""
        deadline = time.monotonic() + _DEADLINE
        while time.monotonic() < deadline:
            self._connection.sendall(first.joining)
            answer = wire.parse(ShareGroupHeartbeatResponse, wire.receive(self._connection))
            if answer.error_code not in _NOT_YET:
                first.take(answer)
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} has no coordinator")

    def _exchange(self, members: Sequence[_Member], frames: list[bytes]) -> int:
        """Send a request of each member, a few of them unanswered at a time; returns how many answers brought news."""
        for frame in frames[:_IN_FLIGHT]:
            self._connection.sendall(frame)
        changed = 0
        for number, member in enumerate(members):
            changed += member.take(wire.parse(ShareGroupHeartbeatResponse, wire.receive(self._connection)))
            if number + _IN_FLIGHT < len(frames):
                self._connection.sendall(frames[number + _IN_FLIGHT])
        return changed


class _Member:
    """A member, which takes whatever it is given."""

    def __init__(self, group: str, topic: str) -> None:
        self.name = str(uuid4())
        self.epoch = 0
        self.places: tuple[SharePlace, ...] = ()
        self.joining = _heartbeat(group, self.name, i32(0), topic)
        self.leaving = _heartbeat(group, self.name, i32(-1))
        self._before, self._after = _heartbeat(group, self.name, _MARK).split(_MARK.to_bytes(4, "big"))

    def heartbeat(self) -> bytes:
        """One that says nothing new."""
        return self._before + self.epoch.to_bytes(4, "big", signed=True) + self._after

    def take(self, answer: ShareGroupHeartbeatResponse) -> bool:
        """Take an answer; whether it brought anything."""
        if answer.error_code:
            raise RuntimeError(f"a heartbeat was answered {answer.error_code!r}: {answer.error_message}")
        moved = answer.member_epoch != self.epoch
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return moved
        self.places = tuple(
            SharePlace(topic.topic_id, partition)
            for topic in answer.assignment.topic_partitions
            if topic.topic_id is not None
            for partition in topic.partitions
        )
        return True


def read_from_the_beginning(port: int, group: str) -> None:
    """Let a group that has no offsets begin with the first message."""
    config = altering.AlterableConfig(name="share.auto.offset.reset", config_operation=_SET, value="earliest")
    resource = altering.AlterConfigsResource(resource_type=_GROUP, resource_name=group, configs=(config,))
    request = altering.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    with wire.connect(port) as connection:
        connection.sendall(wire.frame(request))
        [answer] = wire.parse(IncrementalAlterConfigsResponse, wire.receive(connection)).responses
    if answer.error_code:
        raise RuntimeError(f"the configuration of {group} was refused: {answer}")


def _heartbeat(group: str, member: str, epoch: i32, topic: str | None = None) -> bytes:
    return wire.frame(
        ShareGroupHeartbeatRequest(
            group_id=GroupId(group),
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=None if topic is None else (TopicName(topic),),
        )
    )
