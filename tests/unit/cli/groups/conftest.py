"""Consumer groups in memory, for the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common import connection
from barnabas.clients.admin.groups import Committed, GroupInfo, GroupListing, GroupMember
from barnabas.clients.admin.log_offsets import VisibleOffsets
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import Node
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.permissions import on_topic
from barnabas.protocol.list_offsets import EARLIEST, LATEST
from tests.unit.cli.conftest import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

BROKER = Node(1, "localhost", 9092)


class FakeGroups:
    """What `clients.admin.groups.Groups` does, on dictionaries."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupInfo] = {}
        self.offsets_of: dict[str, dict[TopicPartition, Committed]] = {}
        self.logs: dict[TopicPartition, tuple[int, int]] = {}
        self.record_times: dict[TopicPartition, list[int]] = {}
        self.leaderless: set[TopicPartition] = set()
        self.forbidden: set[str] = set()
        """Topics that may not be described."""

    def add_log(self, topic: str, partition: int, start: int, end: int) -> None:
        self.logs[TopicPartition(topic, partition)] = (start, end)

    def add(self, group_id: str, *members: GroupMember, state: str = "", type_: str = "Classic") -> None:
        consumer = type_ == "Consumer"
        self.groups[group_id] = GroupInfo(
            group_id=group_id,
            type=type_,
            state=state or ("Stable" if members else "Empty"),
            assignor=("uniform" if consumer else "range") if members else "",
            coordinator=BROKER,
            members=members,
            epoch=4 if consumer else None,
            assignment_epoch=3 if consumer else None,
        )
        self.offsets_of.setdefault(group_id, {})

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        if group_id not in self.groups:
            self.add(group_id)
        for partition, offset in offsets.items():
            self.offsets_of[group_id][partition] = Committed(offset)

    def listing(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        return [
            GroupListing(group_id=group.group_id, state=group.state, type=group.type.lower())
            for _, group in sorted(self.groups.items())
            if (not states or group.state in states) and (not types or group.type.lower() in types)
        ]

    def describe(self, group_ids: Iterable[str]) -> dict[str, GroupInfo | RequestRefused]:
        missing = RequestRefused(ErrorCode.group_id_not_found, "there is no such group")
        return {group_id: self.groups.get(group_id, missing) for group_id in group_ids}

    def committed(self, group_ids: Iterable[str]) -> dict[str, dict[TopicPartition, Committed]]:
        return {group_id: dict(self.offsets_of.get(group_id, {})) for group_id in group_ids}

    def delete(self, group_ids: Iterable[str]) -> dict[str, RequestRefused | None]:
        return {group_id: self._delete(group_id) for group_id in group_ids}

    def _delete(self, group_id: str) -> RequestRefused | None:
        if group_id not in self.groups:
            return RequestRefused(ErrorCode.group_id_not_found, "there is no such group")
        if self.groups[group_id].members:
            return RequestRefused(ErrorCode.non_empty_group, "the group has active members")
        del self.groups[group_id]
        return None

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, RequestRefused | None]:
        if group_id not in self.groups:
            raise RequestRefused(ErrorCode.group_id_not_found, f"group {group_id}: there is no such group")
        results: dict[TopicPartition, RequestRefused | None] = {}
        for partition in partitions:
            if any(partition in member.assignment for member in self.groups[group_id].members):
                results[partition] = RequestRefused(ErrorCode.group_subscribed_to_topic, "a member is subscribed")
            else:
                self.offsets_of[group_id].pop(partition, None)
                results[partition] = None
        return results

    def leaders(self, topics: Iterable[str]) -> dict[TopicPartition, Node | None]:
        wanted = set(topics)
        return {
            partition: None if partition in self.leaderless else BROKER
            for partition in sorted(self.logs)
            if partition.topic in wanted
        }

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        return {
            partition: self._offset(partition, timestamp)
            for partition in partitions
            if partition in self.logs and partition not in self.leaderless
        }

    def visible_offsets(self, partitions: Collection[TopicPartition], timestamp: int) -> VisibleOffsets:
        refusals = {
            topic: RequestRefused(ErrorCode.topic_authorization_failed, "", on_topic("describe", "Describe", topic))
            for topic in sorted(self.forbidden & {partition.topic for partition in partitions})
        }
        seen = [partition for partition in partitions if partition.topic not in refusals]
        return VisibleOffsets(self.offsets(seen, timestamp), refusals)

    def _offset(self, partition: TopicPartition, timestamp: int) -> int:
        start, end = self.logs[partition]
        if timestamp in (EARLIEST, LATEST):
            return start if timestamp == EARLIEST else end
        times = self.record_times.get(partition, [])
        return next((start + at for at, time in enumerate(times) if time >= timestamp), -1)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> FakeGroups:
    """Groups in memory, which every command that connects is given."""
    fake = FakeGroups()
    monkeypatch.setattr(connection, "open_cluster", lambda *_: FakeCluster(groups=fake))
    return fake


def member(name: str, *assignment: tuple[str, int], **more: object) -> GroupMember:
    values: dict[str, object] = {
        "member_id": f"{name}-id",
        "instance_id": None,
        "client_id": name,
        "host": "/10.0.0.1",
        "assignment": tuple(TopicPartition(*partition) for partition in assignment),
        **more,
    }
    return GroupMember(**values)  # type: ignore[arg-type]  # a test names the fields it cares about
