"""The clients that measure groups find error codes where they are, and understand Kafka's consumer tool."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from bench.clients import groups
from bench.clients.java import parse_consumed
from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9 import response
from kio.schema.types import TopicName
from kio.serial import entity_writer
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
