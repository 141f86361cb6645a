"""TxnOffsetCommit, packed by hand, is what kio reads and writes, in every version, whatever bytes come."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.groups import txn_offset_commit
from barnabas.protocol.messages.groups.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.groups.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.protocol.wire import bounds, codec
from barnabas.protocol.wire.conversion import convert
from tests.properties.test_group_responses import same_as_kio

KEY = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = range(6)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(["x" * size for size in (126, 127, 128)])
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
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
    TxnOffsetCommitRequest,
    transactional_id=TEXT,
    group_id=TEXT,
    producer_id=INT64,
    producer_epoch=st.integers(-(2**15), 2**15 - 1),
    generation_id=INT32,
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    topics=st.lists(
        st.builds(
            OffsetCommitRequestTopic,
            name=TEXT,
            partitions=st.lists(PARTITIONS, max_size=3).map(tuple) | st.tuples(PARTITIONS),
        ),
        max_size=2,
    ).map(tuple),
)
ONE = TxnOffsetCommitRequest(
    transactional_id="t",
    group_id="g",
    producer_id=1,
    producer_epoch=2,
    topics=(
        OffsetCommitRequestTopic(
            name="t",
            partitions=(OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata=""),),
        ),
    ),
)
RESPONSES = st.builds(
    TxnOffsetCommitResponse,
    topics=st.lists(
        st.builds(
            OffsetCommitResponseTopic,
            name=TEXT,
            partitions=st.lists(
                st.builds(OffsetCommitResponsePartition, partition_index=INT32, error_code=st.sampled_from(ErrorCode)),
                max_size=2,
            ).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)


def written(version: int, request: TxnOffsetCommitRequest) -> bytes:
    message_class: Any = load_request_schema(KEY, version)
    buffer = BytesIO()
    entity_writer(message_class)(buffer, convert(request, message_class))
    return buffer.getvalue()


def by_kio(version: int, raw: bytes) -> Any:
    """A request, or that it is refused."""
    try:
        read = bounds.read(load_request_schema(KEY, version), raw, 0, bounds.MAX_ELEMENTS)
    except InvalidFrame:
        return InvalidFrame
    return convert(read, TxnOffsetCommitRequest)


def by_hand(version: int, raw: bytes) -> Any:
    try:
        return txn_offset_commit.unpack(memoryview(b"head" + raw), 4, version)
    except InvalidFrame:
        return InvalidFrame


@given(st.sampled_from(VERSIONS), REQUESTS, st.binary(max_size=3))
@example(5, ONE, b"")
def test_requests_are_read_as_kio_reads_them(version: int, request: TxnOffsetCommitRequest, behind: bytes) -> None:
    raw = written(version, request) + behind
    for _ in range(2):  # the second time by what is remembered of the first
        assert by_hand(version, raw) == by_kio(version, raw) != InvalidFrame


@settings(max_examples=300)
@given(st.sampled_from([3, 5]) | st.sampled_from(VERSIONS), REQUESTS | st.just(ONE), st.data())
def test_a_cut_or_damaged_request_is_read_as_kio_reads_it_or_refused(
    version: int, request: TxnOffsetCommitRequest, data: st.DataObject
) -> None:
    raw = bytearray(written(version, request))
    raw = raw[: data.draw(st.just(len(raw)) | st.integers(0, len(raw)))]
    for _ in range(data.draw(st.integers(0, 2)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    assert by_hand(version, bytes(raw)) == by_kio(version, bytes(raw))


@given(st.sampled_from(VERSIONS), RESPONSES)
def test_responses_are_written_as_kio_writes_them(version: int, response: TxnOffsetCommitResponse) -> None:
    same_as_kio(KEY, version, response)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_version_does_not_have_is_what_kafka_takes_for_it(version: int) -> None:
    read = codec.decode(KEY, version, 5, memoryview(written(version, ONE)), 0)
    assert (read.generation_id, read.member_id, read.group_instance_id) == (-1, "", None)
    assert read.topics[0].partitions[0].committed_leader_epoch == -1


def test_arrays_are_bounded() -> None:
    (topic,) = ONE.topics
    many = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=2,
        topics=(OffsetCommitRequestTopic(name="t", partitions=topic.partitions * 20),),
    )
    raw = memoryview(written(5, many))
    assert txn_offset_commit.unpack(raw, 0, 5, 21) == many
    with pytest.raises(InvalidFrame, match="array length"):
        txn_offset_commit.unpack(raw, 0, 5, 20)
