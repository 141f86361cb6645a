"""Group requests made by hand: the numbers of their APIs, and the bytes that consumers put into them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.support.wire import Connection

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = 11, 12, 13, 14, 15, 16
DELETE_GROUPS, OFFSET_DELETE, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 42, 47, 68, 69
SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 77, 78, 79
INITIALIZE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE, WRITE_SHARE_GROUP_STATE = 83, 84, 85
DELETE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE_SUMMARY = 86, 87
DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS = 90, 91, 92

NEWEST: Final = {
    OFFSET_COMMIT: 10,
    OFFSET_FETCH: 10,
    FIND_COORDINATOR: 6,
    JOIN_GROUP: 9,
    HEARTBEAT: 4,
    LEAVE_GROUP: 5,
    SYNC_GROUP: 5,
    DESCRIBE_GROUPS: 6,
    LIST_GROUPS: 5,
    DELETE_GROUPS: 2,
    OFFSET_DELETE: 0,
    CONSUMER_GROUP_HEARTBEAT: 1,
    CONSUMER_GROUP_DESCRIBE: 1,
    SHARE_GROUP_HEARTBEAT: 1,
    SHARE_GROUP_DESCRIBE: 1,
    SHARE_FETCH: 2,
    SHARE_ACKNOWLEDGE: 2,
    INITIALIZE_SHARE_GROUP_STATE: 0,
    READ_SHARE_GROUP_STATE: 0,
    WRITE_SHARE_GROUP_STATE: 1,
    DELETE_SHARE_GROUP_STATE: 0,
    READ_SHARE_GROUP_STATE_SUMMARY: 1,
    DESCRIBE_SHARE_GROUP_OFFSETS: 1,
    ALTER_SHARE_GROUP_OFFSETS: 0,
    DELETE_SHARE_GROUP_OFFSETS: 0,
}
"""The newest version of each API that Apache Kafka 4.3.0 has."""


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def subscription(*topics: str) -> bytes:
    """What a consumer hands over when it joins: the topics it wants, no user data, no partitions that it owns."""
    return struct.pack(">hi", 1, len(topics)) + b"".join(map(_string, topics)) + struct.pack(">ii", -1, 0)


def assignment(topic: str, *partitions: int) -> bytes:
    """What a leader hands over for a member."""
    head = struct.pack(">hi", 1, 1) + _string(topic)
    return head + struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, -1)


def parse_assignment(data: bytes) -> list[tuple[str, int]]:
    """The partitions in an assignment that some leader made; none in an empty one."""
    if not data:
        return []
    (topics,) = struct.unpack_from(">i", data, 2)
    at, found = 6, []
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = struct.unpack_from(">i", data, at)
        found += [(topic, partition) for partition in struct.unpack_from(f">{count}i", data, at + 4)]
        at += 4 + 4 * count
    return found


def owners(connection: Connection, group: str) -> tuple[str, dict[str, list[tuple[str, int]]]]:
    """The state of a group of either protocol, and what each of its members holds, as the broker sees it."""
    [found] = connection.ask(CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]}).groups
    if found.error_code == 0:
        return found.group_state, {
            member.member_id: [
                (place.topic_name, partition)
                for place in member.assignment.topic_partitions
                for partition in place.partitions
            ]
            for member in found.members
        }
    [found] = connection.ask(DESCRIBE_GROUPS, 5, {"groups": [group]}).groups
    return found.group_state, {member.member_id: parse_assignment(member.member_assignment) for member in found.members}


def joining(group: str, topic: str, member_id: str = "", **other: Any) -> dict[str, Any]:
    """A JoinGroup of a consumer."""
    return {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
        **other,
    }


def committing(group: str, topic: dict[str, Any], offset: int, **other: Any) -> dict[str, Any]:
    """An OffsetCommit for the first partition of a topic (its name and id), by nobody in particular."""
    partition = {
        "partition_index": other.pop("index", 0),
        "committed_offset": offset,
        "committed_leader_epoch": other.pop("leader_epoch", -1),
        "committed_metadata": other.pop("metadata", ""),
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{**topic, "partitions": [partition]}],
        **other,
    }


def fetching(group: str, *topics: dict[str, Any], partitions: tuple[int, ...] = (0,), **other: Any) -> dict[str, Any]:
    """An OffsetFetch for these partitions of topics; without topics, for everything that the group has."""
    wanted = [{**topic, "partition_indexes": list(partitions)} for topic in topics] or None
    one = {"group_id": group, "topics": wanted, **other}
    return {**one, "groups": [one]}


def beating(group: str, member_id: str, epoch: int, **other: Any) -> dict[str, Any]:
    """A ConsumerGroupHeartbeat or ShareGroupHeartbeat; what is left out has not changed."""
    return {"group_id": group, "member_id": member_id, "member_epoch": epoch, **other}
