"""The clients that measure queues send what kio writes, and find in answers what kio wrote."""

from __future__ import annotations

import io
import socket
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from bench.clients import shares, wire
from bench.clients.share_members import SharePlace
from bench.clients.shares import Acquired, ShareFrames
from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2 import request as acknowledge
from kio.schema.share_acknowledge.v2 import response as acknowledged
from kio.schema.share_fetch.v2 import request as fetch
from kio.schema.share_fetch.v2 import response as fetched
from kio.schema.types import GroupId
from kio.serial import entity_writer
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

ONE, OTHER = SharePlace(UUID(int=1), 0), SharePlace(UUID(int=2), 300)
HELD = [Acquired(ONE, 5, 9), Acquired(OTHER, 0, 0), Acquired(ONE, 20, 21)]
NO_TIME = i32Timedelta.parse(timedelta())


def batches(kind: Any, place: SharePlace) -> tuple[Any, ...]:
    return tuple(
        kind(first_offset=i64(each.first), last_offset=i64(each.last), acknowledge_types=(i8(1),))
        for each in HELD
        if each.place == place
    )


def test_a_fetch_names_its_partitions_and_acknowledges() -> None:
    topics = tuple(
        fetch.FetchTopic(
            topic_id=place.topic_id,
            partitions=(
                fetch.FetchPartition(
                    partition_index=i32(place.partition),
                    acknowledgement_batches=batches(fetch.AcknowledgementBatch, place),
                ),
            ),
        )
        for place in (ONE, OTHER)
    )
    request = fetch.ShareFetchRequest(
        group_id=GroupId("group"),
        member_id="member",
        share_session_epoch=i32(7),
        max_wait=i32Timedelta.parse(timedelta(seconds=0.5)),
        min_bytes=i32(1),
        max_bytes=i32(50 << 20),
        max_records=i32(10),
        batch_size=i32(10),
        share_acquire_mode=i8(1),
        topics=topics,
        forgotten_topics_data=(),
    )
    assert ShareFrames("group", "member", 10, exact=True).fetch(7, [ONE, OTHER], HELD) == wire.frame(request)


def test_an_acknowledgement_names_what_it_accepts() -> None:
    topics = tuple(
        acknowledge.AcknowledgeTopic(
            topic_id=place.topic_id,
            partitions=(
                acknowledge.AcknowledgePartition(
                    partition_index=i32(place.partition),
                    acknowledgement_batches=batches(acknowledge.AcknowledgementBatch, place),
                ),
            ),
        )
        for place in (ONE, OTHER)
    )
    request = acknowledge.ShareAcknowledgeRequest(
        group_id=GroupId("group"), member_id="member", share_session_epoch=i32(3), is_renew_ack=False, topics=topics
    )
    assert ShareFrames("group", "member").acknowledge(3, HELD) == wire.frame(request)


def answer(message: Any) -> bytes:
    buffer = io.BytesIO(b"")
    entity_writer(type(message))(buffer, message)
    return b"size" + b"corr" + b"\0" + buffer.getvalue()


def fetch_answer(**fields: Any) -> bytes:
    partition: dict[str, Any] = {
        "partition_index": i32(300),
        "error_code": ErrorCode.none,
        "acknowledge_error_code": i16(0),
        "current_leader": fetched.LeaderIdAndEpoch(leader_id=i32(0), leader_epoch=i32(0)),
        "records": Records(b"r" * 1000),
        "acquired_records": tuple(
            fetched.AcquiredRecords(first_offset=i64(first), last_offset=i64(last), delivery_count=i16(1))
            for first, last in ((5, 9), (12, 12))
        ),
    }
    part = fetched.PartitionData(**(partition | fields))
    topic = fetched.ShareFetchableTopicResponse(topic_id=OTHER.topic_id, partitions=(part,))
    return answer(
        fetched.ShareFetchResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            acquisition_lock_timeout=i32Timedelta.parse(timedelta(seconds=30)),
            responses=(topic,),
            node_endpoints=(),
        )
    )


def test_what_was_acquired_is_found_behind_the_records() -> None:
    assert shares.acquired(fetch_answer()) == [Acquired(OTHER, 5, 9), Acquired(OTHER, 12, 12)]


@pytest.mark.parametrize(
    "fields",
    [
        {"error_code": ErrorCode.not_leader_or_follower, "error_message": "not here"},
        {"acknowledge_error_code": i16(121), "acknowledge_error_message": "not acquired"},
    ],
)
def test_an_error_of_a_partition_is_told(fields: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="failed with error"):
        shares.acquired(fetch_answer(**fields))


@pytest.mark.parametrize("code", [ErrorCode.none, ErrorCode.invalid_record_state])
def test_an_acknowledgement_that_was_refused_is_told(code: ErrorCode) -> None:
    part = acknowledged.PartitionData(
        partition_index=i32(0),
        error_code=code,
        error_message="some words",
        current_leader=acknowledged.LeaderIdAndEpoch(leader_id=i32(0), leader_epoch=i32(0)),
    )
    topic = acknowledged.ShareAcknowledgeTopicResponse(topic_id=ONE.topic_id, partitions=(part,))
    frame = answer(
        acknowledged.ShareAcknowledgeResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            acquisition_lock_timeout=NO_TIME,
            responses=(topic, topic),
            node_endpoints=(),
        )
    )
    if code is ErrorCode.none:
        shares.check_acknowledged(frame)
    else:
        with pytest.raises(RuntimeError, match=f"failed with error {code.value}"):
            shares.check_acknowledged(frame)


def test_a_worker_acknowledges_what_it_holds_with_its_next_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(wire, "connect", lambda port: ours)
    frames = ShareFrames("group", "member")
    with ours, theirs:
        worker = shares.ShareWorker(0, frames, [OTHER])
        worker.ask()
        assert theirs.recv(1 << 16) == frames.fetch(0, [OTHER])
        raw = fetch_answer()
        theirs.sendall((len(raw) - 4).to_bytes(4, "big") + raw[4:])
        assert worker.take() == 0
        worker.ask()
        assert theirs.recv(1 << 16) == frames.fetch(1, [], [Acquired(OTHER, 5, 9), Acquired(OTHER, 12, 12)])
        theirs.sendall((len(raw) - 4).to_bytes(4, "big") + raw[4:])
        assert worker.take() == 6
