"""OffsetCommit, packed by hand, is what kio writes and reads, in every version."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import offset_commit
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.conversion import convert

KEY = 8
VERSIONS = range(2, 11)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NULLABLE = st.one_of(st.none(), TEXT)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.builds(UUID, int=st.integers(1, 2**128 - 1))
REQUESTS = st.builds(
    OffsetCommitRequest,
    group_id=TEXT,
    generation_id_or_member_epoch=INT32,
    member_id=TEXT,
    group_instance_id=NULLABLE,
    retention_time=st.builds(timedelta, milliseconds=st.integers(-1, 10**10)),
    topics=st.lists(
        st.builds(
            OffsetCommitRequestTopic,
            topic_id=IDS,
            name=TEXT,
            partitions=st.lists(
                st.builds(
                    OffsetCommitRequestPartition,
                    partition_index=INT32,
                    committed_offset=INT64,
                    committed_leader_epoch=INT32,
                    committed_metadata=NULLABLE,
                ),
                max_size=3,
            ).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)
RESPONSES = st.builds(
    OffsetCommitResponse,
    throttle_time=st.builds(timedelta, milliseconds=st.integers(0, 10**6)),
    topics=st.lists(
        st.builds(
            OffsetCommitResponseTopic,
            topic_id=IDS,
            name=TEXT,
            partitions=st.lists(
                st.builds(
                    OffsetCommitResponsePartition,
                    partition_index=INT32,
                    error_code=st.sampled_from([ErrorCode.none, ErrorCode.illegal_generation]),
                ),
                max_size=3,
            ).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)


def written(version: int, request: OffsetCommitRequest) -> bytes:
    message_class: Any = load_request_schema(KEY, version)
    buffer = BytesIO()
    entity_writer(message_class)(buffer, convert(request, message_class))
    return buffer.getvalue()


@given(st.sampled_from(VERSIONS), REQUESTS)
def test_requests_are_read_as_kio_reads_them(version: int, request: OffsetCommitRequest) -> None:
    message_class: Any = load_request_schema(KEY, version)
    raw = written(version, request)
    through_kio = convert(entity_reader(message_class)(raw, 0)[0], OffsetCommitRequest)
    assert codec.decode(ApiKey.OFFSET_COMMIT, version, 10, memoryview(raw), 0) == through_kio


@given(st.sampled_from(VERSIONS), RESPONSES)
def test_responses_are_written_as_kio_writes_them(version: int, response: OffsetCommitResponse) -> None:
    message_class: Any = load_response_schema(KEY, version)
    buffer = BytesIO()
    entity_writer(message_class)(buffer, convert(response, message_class))
    frame = codec.encode(ApiKey.OFFSET_COMMIT, version, 77, response)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    assert frame[9 if version >= offset_commit.FLEXIBLE else 8 :] == buffer.getvalue()


@given(st.sampled_from(VERSIONS), REQUESTS, st.data())
def test_a_cut_or_damaged_request_is_refused_or_read_and_never_worse(
    version: int, request: OffsetCommitRequest, data: st.DataObject
) -> None:
    raw = bytearray(written(version, request))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        offset_commit.unpack(memoryview(raw), 0, version, 1000)
    except InvalidFrame:
        return


def test_arrays_are_bounded() -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="g", topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,) * 20),)
    )
    raw = memoryview(written(9, request))
    assert offset_commit.unpack(raw, 0, 9, 21)
    with pytest.raises(InvalidFrame, match="array length"):
        offset_commit.unpack(raw, 0, 9, 20)


def test_unknown_tags_are_passed_over_and_null_names_refused() -> None:
    raw = written(8, OffsetCommitRequest(group_id="g", topics=()))
    assert raw.endswith(b"\0")
    tagged = raw[:-1] + b"\x01\x05\x02ab"
    assert offset_commit.unpack(memoryview(tagged), 0, 8, 10).group_id == "g"
    with pytest.raises(InvalidFrame, match="null"):
        offset_commit.unpack(memoryview(b"\0" + raw[2:]), 0, 8, 10)
