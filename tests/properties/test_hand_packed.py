"""The hand-packed hot paths equal kio, byte for byte."""

from __future__ import annotations

import contextlib
import struct
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.messages import fetch_request, fetch_response, produce
from barnabas.protocol.wire import bounds
from tests.support.kio_messages import messages, written

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=20)
IDS = st.uuids().filter(lambda value: value.int != 0)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_produce_requests_are_read_as_kio_reads_them(version: int, data: st.DataObject) -> None:
    message: Any = data.draw(messages(load_request_schema(0, version)))
    raw = written(message)
    ours = produce.unpack(memoryview(raw), 0, version)
    theirs: Any = entity_reader(type(message))(raw, 0)[0]
    assert ours.transactional_id == theirs.transactional_id
    assert ours.acks == theirs.acks
    assert ours.timeout_ms == round(theirs.timeout.total_seconds() * 1000)
    assert [(topic, index, None if r is None else bytes(r)) for topic, index, r in ours.partitions] == [
        ((topic.topic_id or UUID(int=0)).bytes if version >= produce.TOPIC_IDS else topic.name, p.index, p.records)
        for topic in theirs.topic_data
        for p in topic.partition_data
    ]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=15, deadline=None)
@given(
    names=st.lists(st.text(max_size=150), max_size=2),
    indexes=st.lists(I32, max_size=2),
    records=st.none() | st.binary(max_size=200) | st.integers(0, 20_000).map(bytes),
    transactional_id=st.none() | NAMES,
    acks=st.integers(-1, 1),
)
def test_a_produce_request_of_one_partition_is_read_as_any_other(
    version: int, names: list[str], indexes: list[int], records: bytes | None, transactional_id: str | None, acks: int
) -> None:
    schema = sys.modules[load_request_schema(0, version).__module__]
    by_id = version >= produce.TOPIC_IDS
    partitions = tuple(schema.PartitionProduceData(index=index, records=records) for index in indexes)
    topics = tuple(
        schema.TopicProduceData(
            **({"topic_id": UUID(int=len(name) + 1)} if by_id else {"name": name}), partition_data=partitions
        )
        for name in names
    )
    raw = written(
        schema.ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout=timedelta(milliseconds=77), topic_data=topics
        )
    )
    one = produce.unpack_one(memoryview(raw), 0, version)
    usual = len(names) == len(indexes) == 1 and records is not None and transactional_id is None
    if version >= produce.FLEXIBLE and usual and (by_id or 0 < len(names[0].encode()) < produce.SHORT):
        assert one is not None
    if one is not None:
        acks, timeout_ms, topic, index, batch = one
        assert produce.unpack(memoryview(raw), 0, version) == (None, acks, timeout_ms, [(topic, index, batch)])


@settings(max_examples=100, deadline=None)
@given(topic=st.text(max_size=249) | IDS, index=I32, base_offset=I64, append_time=I64, log_start_offset=I64)
def test_a_produce_response_of_one_partition_is_written_as_any_other(
    topic: str | UUID, index: int, base_offset: int, append_time: int, log_start_offset: int
) -> None:
    name, version = (topic, 9) if isinstance(topic, str) else (topic.bytes, 13)
    result = name, index, 0, base_offset, append_time, log_start_offset, None, ()
    one = produce.pack_one(7, name, index, base_offset, append_time, log_start_offset)
    assert one == produce.pack(7, version, [result])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_fetch_requests_are_read_as_kio_reads_them(version: int, data: st.DataObject) -> None:
    message: Any = data.draw(messages(load_request_schema(1, version)))
    raw = written(message)
    ours = fetch_request.unpack(memoryview(raw), 0, version)
    theirs: Any = entity_reader(type(message))(raw, 0)[0]
    by_id = version >= fetch_response.TOPIC_IDS

    def key(topic: Any) -> str | bytes:
        return (topic.topic_id or UUID(int=0)).bytes if by_id else topic.topic

    assert [tuple(p) for p in ours.partitions] == [
        (
            key(topic),
            p.partition,
            getattr(p, "current_leader_epoch", -1),
            p.fetch_offset,
            getattr(p, "last_fetched_epoch", -1),
            getattr(p, "log_start_offset", -1),
            p.partition_max_bytes,
        )
        for topic in theirs.topics
        for p in topic.partitions
    ]
    assert ours.forgotten == [
        (key(topic), p) for topic in getattr(theirs, "forgotten_topics_data", ()) for p in topic.partitions
    ]
    assert ours.max_bytes == theirs.max_bytes
    assert ours.min_bytes == theirs.min_bytes
    assert ours.read_committed == (theirs.isolation_level == 1)
    assert ours.session_id == getattr(theirs, "session_id", 0)
    assert ours.session_epoch == getattr(theirs, "session_epoch", -1)
    replica = theirs.replica_state.replica_id if version >= fetch_request.REPLICA_STATE else theirs.replica_id
    assert ours.replica_id == replica


@pytest.mark.parametrize("version", range(fetch_response.TOPIC_IDS, FETCH_VERSIONS.stop))
@settings(max_examples=15, deadline=None)
@given(
    numbers=st.tuples(I32, I32, I32, st.integers(-1, 3), I32, I32),
    wanted=st.tuples(IDS, I32, I32, I64, I32, I64, I32),
    forgotten=st.booleans(),
    rack=st.sampled_from(["", "a"]),
    replica=st.sampled_from([-1, 3]),
)
def test_a_fetch_request_for_one_partition_is_read_as_any_other(
    version: int, numbers: tuple[int, ...], wanted: tuple[Any, ...], forgotten: bool, rack: str, replica: int
) -> None:
    max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch = numbers
    topic_id, *fields = wanted
    body = struct.pack(">iiib", max_wait, min_bytes, max_bytes, isolation)
    if version < fetch_request.REPLICA_STATE:
        body = struct.pack(">i", replica) + body
    body += struct.pack(">ii", session_id, session_epoch) + b"\x02" + topic_id.bytes + b"\x02"
    body += struct.pack(">iiqiqi", *fields) + b"\0\0"
    body += b"\x02" + topic_id.bytes + b"\x02" + struct.pack(">i", 5) + b"\0" if forgotten else b"\x01"
    body += bytes((len(rack) + 1,)) + rack.encode()
    if version >= fetch_request.REPLICA_STATE and replica >= 0:
        body += b"\x01\x01\x0d" + struct.pack(">iq", replica, 7) + b"\0"
    else:
        body += b"\0"
    assert fetch_request.unpack(memoryview(body), 0, version)[:10] == (
        replica,
        max_wait,
        min_bytes,
        max_bytes,
        isolation == 1,
        session_id,
        session_epoch,
        [(topic_id.bytes, *fields)],
        [(topic_id.bytes, 5)] if forgotten else [],
        rack,
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=15, deadline=None)
@given(
    topics=st.lists(
        st.tuples(
            NAMES,
            IDS,
            st.lists(
                st.tuples(
                    I32,
                    st.sampled_from([int(code) for code in ErrorCode]),
                    I64,
                    st.integers(0, 2**40) | st.just(-1),
                    I64,
                    st.none() | st.text(max_size=30),
                    st.lists(st.tuples(I32, st.none() | st.text(max_size=30)), max_size=3),
                ),
                min_size=1,
                max_size=4,
            ),
        ),
        max_size=3,
        unique_by=(lambda topic: topic[0], lambda topic: topic[1]),
    )
)
def test_produce_responses_are_written_as_kio_writes_them(version: int, topics: list[tuple[str, UUID, Any]]) -> None:
    by_id = version >= produce.TOPIC_IDS
    results: Any = [
        (topic_id.bytes if by_id else name, *values) for name, topic_id, partitions in topics for values in partitions
    ]
    ours = produce.pack(7, version, results)
    prefix = 9 if version >= produce.FLEXIBLE else 8
    assert int.from_bytes(ours[:4], "big") == len(ours) - 4
    read: Any = entity_reader(load_response_schema(0, version))(ours, prefix)[0]
    assert written(read) == ours[prefix:]
    for topic, (name, topic_id, partitions) in zip(read.responses, topics, strict=True):
        assert (topic.topic_id if by_id else topic.name) == (topic_id if by_id else name)
        for theirs, (index, code, base_offset, _, _, message, refused) in zip(
            topic.partition_responses, partitions, strict=True
        ):
            assert (theirs.index, theirs.error_code, theirs.base_offset) == (index, code, base_offset)
            if version >= produce.RECORD_ERRORS:
                assert theirs.error_message == message
                told = [(each.batch_index, each.batch_index_error_message) for each in theirs.record_errors]
                assert told == refused


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=15, deadline=None)
@given(
    error=st.sampled_from([int(code) for code in ErrorCode]),
    topics=st.lists(
        st.tuples(
            NAMES,
            IDS,
            st.lists(
                st.tuples(
                    I32,
                    st.sampled_from([int(code) for code in ErrorCode]),
                    I64,
                    I64,
                    I64,
                    st.none() | st.lists(st.tuples(I64, I64), max_size=2),
                    st.lists(st.binary(min_size=1, max_size=200), max_size=2),
                    st.none() | st.tuples(st.integers(0, 2**31 - 1), I32),
                    st.none() | st.tuples(st.integers(0, 2**31 - 1), I64),
                ),
                min_size=1,
                max_size=4,
            ),
        ),
        max_size=3,
        unique_by=(lambda topic: topic[0], lambda topic: topic[1]),
    ),
)
def test_fetch_responses_are_written_as_kio_writes_them(version: int, error: int, topics: list[Any]) -> None:
    by_id = version >= fetch_response.TOPIC_IDS
    results = [
        fetch_response.FetchedPartition(
            fetch_request.WantedPartition(topic_id.bytes if by_id else name, index, -1, 0, -1, -1, 0),
            code, hw, lso, start, aborted, sum(map(len, slices)), slices, *tags,
        )
        for name, topic_id, partitions in topics
        for index, code, hw, lso, start, aborted, slices, *tags in partitions
    ]  # fmt: skip
    packed = fetch_response.pack(9, version, error, 3, results)
    ours = b"".join(packed)
    prefix = 9 if version >= fetch_response.FLEXIBLE else 8
    assert int.from_bytes(ours[:4], "big") == len(ours) - 4
    read: Any = entity_reader(load_response_schema(1, version))(ours, prefix)[0]
    assert written(read) == ours[prefix:]
    for topic, (_, _, partitions) in zip(read.responses, topics, strict=True):
        assert [(p.partition_index, p.error_code, p.high_watermark, p.records) for p in topic.partitions] == [
            (index, code, hw, b"".join(slices)) for index, code, hw, _, _, _, slices, *_ in partitions
        ]


@pytest.mark.parametrize("unpack", [produce.unpack, fetch_request.unpack])
@settings(max_examples=150, deadline=None)
@given(raw=st.binary(max_size=120), version=st.sampled_from([4, 8, 9, 12, 13]))
def test_garbage_is_refused_or_read_and_nothing_else(unpack: Any, raw: bytes, version: int) -> None:
    with contextlib.suppress(InvalidFrame):
        unpack(memoryview(raw), 0, version)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_cut_produce_request_is_refused(data: st.DataObject) -> None:
    message: Any = data.draw(messages(load_request_schema(0, 11)))
    raw = written(replace(message, transactional_id=None))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(InvalidFrame):
        produce.unpack(memoryview(raw)[:cut], 0, 11)
    assert produce.unpack_one(memoryview(raw)[:cut], 0, 11) is None
    with pytest.raises(InvalidFrame):
        bounds.check(type(message), memoryview(raw)[:cut], 0, 1000)
