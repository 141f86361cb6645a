"""OffsetCommit, packed by hand, is what kio writes and reads, in every version."""

from __future__ import annotations

import struct
from datetime import timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.groups import offset_commit
from barnabas.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.conversion import convert

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = 8
VERSIONS = range(2, 11)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NULLABLE = st.one_of(st.none(), TEXT)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.builds(UUID, int=st.integers(1, 2**128 - 1))
LIKE_AN_OFFSET = "\2" + "\0\0\0\1" + "\0" * 8 + "\0\0\0\2" + "\1"
"""Metadata that could be taken for a partition without any, and the number of partitions before it."""
PARTITIONS = st.builds(
    OffsetCommitRequestPartition,
    partition_index=INT32,
    committed_offset=INT64,
    committed_leader_epoch=INT32,
    committed_metadata=st.sampled_from(["", None, LIKE_AN_OFFSET, "x" + LIKE_AN_OFFSET]) | TEXT,
)
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
            partitions=st.lists(PARTITIONS, max_size=3).map(tuple) | st.tuples(PARTITIONS),
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


@given(st.sampled_from(VERSIONS), REQUESTS, st.binary(max_size=3))
def test_requests_are_read_as_kio_reads_them(version: int, request: OffsetCommitRequest, behind: bytes) -> None:
    message_class: Any = load_request_schema(KEY, version)
    raw = written(version, request)
    through_kio = convert(entity_reader(message_class)(raw, 0)[0], OffsetCommitRequest)
    for _ in range(2):  # the second time by what is remembered of the first
        assert codec.decode(ApiKey.OFFSET_COMMIT, version, 10, memoryview(raw + behind), 0) == through_kio


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
    raw = raw[: data.draw(st.just(len(raw)) | st.integers(0, len(raw)))]
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x80]) | st.integers(0, 255))
    read, reference = (
        _read(offset_commit.unpack, memoryview(raw), version),
        _read(offset_commit._unpack, bytes(raw), version),
    )
    assert read == reference


def _read(unpack: Callable[[Any, int, int, int], OffsetCommitRequest], raw: Any, version: int) -> Any:
    """A request, or that it is refused."""
    try:
        return unpack(raw, 0, version, 1000)
    except (InvalidFrame, struct.error, IndexError, UnicodeDecodeError):
        return InvalidFrame


@given(st.sampled_from([8, 9, 10]), st.sampled_from([0, 1, 125, 126, 127, 128, 300]), st.sampled_from(range(6)))
def test_requests_are_read_alike_whether_their_texts_are_short_or_long(version: int, length: int, long: int) -> None:
    texts = ["x" * length if number == long else "short" for number in range(6)]
    group, member, instance, topic, metadata, _ = texts
    place = OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata=metadata)
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member,
        group_instance_id=instance,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=(place,) * (length if long == 5 else 2)),) * 2,
    )
    raw = written(version, request)
    assert offset_commit.unpack(memoryview(raw), 0, version) == offset_commit._unpack(raw, 0, version, 1000)


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("metadata", ["", None, "m", "\0", LIKE_AN_OFFSET, "x" * 100 + LIKE_AN_OFFSET])
@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize(
    "end", [b"", b"\0", b"\1\5\0", LIKE_AN_OFFSET.encode() + b"\0\0\0", LIKE_AN_OFFSET.encode() + b"\0\0\1"]
)
def test_no_end_of_a_request_is_taken_for_its_only_offset(
    version: int, metadata: str | None, cut: int, end: bytes
) -> None:
    place = OffsetCommitRequestPartition(partition_index=7, committed_offset=8, committed_metadata=metadata)
    request = OffsetCommitRequest(
        group_id="g", topics=(OffsetCommitRequestTopic(topic_id=UUID(int=5), name="t", partitions=(place,)),)
    )
    raw = written(version, request)
    raw = raw[: len(raw) - cut] + end
    for _ in range(2):
        reference = _read(offset_commit._unpack, raw, version)
        assert _read(offset_commit.unpack, memoryview(raw), version) == reference


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


@pytest.mark.parametrize("version", range(8, 11))
@given(
    topic=st.text(st.characters(codec="utf-8"), max_size=249),
    topic_id=IDS,
    index=INT32,
    code=st.sampled_from(list(ErrorCode)),
    correlation_id=INT32,
)
def test_an_only_result_is_packed_as_any_response(
    version: int, topic: str, topic_id: UUID, index: int, code: ErrorCode, correlation_id: int
) -> None:
    one = offset_commit.OneOffset("g", -1, "", None, topic_id, topic, index, 5, -1)
    result = OffsetCommitResponsePartition(partition_index=index, error_code=code)
    whole = OffsetCommitResponse(
        topics=(OffsetCommitResponseTopic(topic_id=topic_id, name=topic, partitions=(result,)),)
    )
    assert offset_commit.pack_one(correlation_id, version, one, code) == offset_commit.pack(
        correlation_id, version, whole
    )
