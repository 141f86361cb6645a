"""The clients that measure groups find error codes where they are, and understand Kafka's consumer tool."""

from __future__ import annotations

import io
import socket
from datetime import timedelta
from uuid import uuid4

import pytest
from bench.clients import groups, wire
from bench.clients.java import parse_consumed
from kio.schema.consumer_group_heartbeat.v1 import request as beat
from kio.schema.consumer_group_heartbeat.v1 import response as beaten
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9 import response
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

HEAD = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
FIGURES = "2026-11-16 00:44:22:883, 2026-11-16 00:44:23:753, 0.0002, 0.0002, 20, 22.9885, 776, 94, 0.0017, 212.7660"


def test_the_rate_is_that_of_fetching() -> None:
    assert parse_consumed(f"{HEAD}\n{FIGURES}\n", 0, 20) == 212.7660


@pytest.mark.parametrize(
    ("output", "status", "records"), [("", 0, 20), (f"{HEAD}\n{FIGURES}", 1, 20), (FIGURES, 0, 20)]
)
def test_a_tool_that_failed_is_noticed(output: str, status: int, records: int) -> None:
    with pytest.raises(RuntimeError, match="failed"):
        parse_consumed(output, status, records)


def test_a_tool_that_read_too_little_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="read 20 of 30"):
        parse_consumed(f"{HEAD}\n{FIGURES}\n", 0, 30)


def test_the_error_of_a_commit_is_where_it_is_looked_for() -> None:
    place = response.OffsetCommitResponsePartition(partition_index=i32(0), error_code=ErrorCode.unknown_member_id)
    topic = response.OffsetCommitResponseTopic(name=TopicName("topic"), partitions=(place,))
    answer = response.OffsetCommitResponse(throttle_time=i32Timedelta.parse(timedelta()), topics=(topic,))
    buffer = io.BytesIO()
    entity_writer(response.OffsetCommitResponse)(buffer, answer)
    frame = b"\0" * 9 + buffer.getvalue()
    assert int.from_bytes(frame[groups.commit_error_at("topic")], "big") == ErrorCode.unknown_member_id


def test_each_group_commits_by_itself() -> None:
    requests = groups.commit_requests("topic", 3)
    assert len(set(requests)) == 3
    assert all(b"commits-%d" % number in request for number, request in enumerate(requests))


@pytest.mark.parametrize("named", [True, False])
def test_a_member_takes_its_epoch_and_gives_back_the_partitions_that_it_was_told(named: bool) -> None:
    places = ((uuid4(), (i32(0), i32(300))), (uuid4(), ()))
    assigned = beaten.Assignment(
        topic_partitions=tuple(
            beaten.TopicPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in places
        )
    )
    near, far = socket.socketpair()
    with near, far:
        member = groups.Member(near, "group", "topic", "a")
        far.sendall(_told("a" if named else None, 7, assigned))
        assert member.receive()
        member.send()
        confirmed = _asked(wire.receive(far))
        assert (confirmed.group_id, confirmed.member_id, confirmed.member_epoch) == (GroupId("group"), "a", 7)
        assert confirmed.topic_partitions is not None
        assert tuple((place.topic_id, place.partitions) for place in confirmed.topic_partitions) == places
        far.sendall(_told("a" if named else None, 7, None))
        assert not member.receive()
        member.send()
        assert _asked(wire.receive(far)).topic_partitions is None
        far.sendall(_told("a" if named else None, 8, None))
        assert member.receive()
        assert member.epoch == 8


def _told(member: str | None, epoch: int, assignment: beaten.Assignment | None) -> bytes:
    """An answer to a heartbeat."""
    answer = beaten.ConsumerGroupHeartbeatResponse(
        throttle_time=i32Timedelta.parse(timedelta()),
        error_code=ErrorCode.none,
        member_id=member,
        member_epoch=i32(epoch),
        heartbeat_interval=i32Timedelta.parse(timedelta(seconds=5)),
        assignment=assignment,
    )
    buffer = io.BytesIO()
    entity_writer(beaten.ConsumerGroupHeartbeatResponse)(buffer, answer)
    body = bytes(5) + buffer.getvalue()
    return len(body).to_bytes(4, "big") + body


def _asked(frame: bytes) -> beat.ConsumerGroupHeartbeatRequest:
    """A heartbeat, behind its header."""
    start = frame.index(b"bench") + len(b"bench") + 1
    return entity_reader(beat.ConsumerGroupHeartbeatRequest)(frame, start)[0]
