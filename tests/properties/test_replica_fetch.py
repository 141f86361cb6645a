"""A follower's fetch, packed and read by hand, is what kio writes and reads."""

from __future__ import annotations

from io import BytesIO
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.messages.replica_fetch import VERSION, FetchPosition, Place, pack_request, read_response
from barnabas.protocol.wire.conversion import zero

FETCH = 1
REQUEST = load_request_schema(FETCH, VERSION)
RESPONSE: type = load_response_schema(FETCH, VERSION)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PLACES = st.tuples(st.integers(1, 5).map(lambda number: UUID(int=number).bytes), st.integers(0, 10))
POSITIONS = st.builds(FetchPosition, INT32, INT64, INT32, INT64)


def nested(message_class: type, name: str) -> Any:
    return get_args(message_class.__dataclass_fields__[name].type)[0]  # type: ignore[attr-defined]


TOPIC = nested(RESPONSE, "responses")
PARTITION = nested(TOPIC, "partitions")
DIVERGING = PARTITION.__dataclass_fields__["diverging_epoch"].type


@given(st.dictionaries(PLACES, POSITIONS), st.lists(PLACES, unique=True), st.tuples(INT32, INT32), INT32, INT64)
def test_requests(
    positions: dict[Place, FetchPosition], forgotten: list[Place], session: tuple[int, int], replica: int, epoch: int
) -> None:
    raw = pack_request(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        partition_max_bytes=100,
        session=session,
        positions=positions,
        forgotten=forgotten,
        replica=(replica, epoch),
    )
    message: Any = entity_reader(REQUEST)(raw, 0)[0]
    assert (message.session_id, message.session_epoch) == session
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (replica, epoch)
    assert {
        (topic.topic_id.bytes, part.partition): FetchPosition(
            part.current_leader_epoch, part.fetch_offset, part.last_fetched_epoch, part.log_start_offset
        )
        for topic in message.topics
        for part in topic.partitions
    } == positions
    gone = [(topic.topic_id.bytes, index) for topic in message.forgotten_topics_data for index in topic.partitions]
    assert sorted(gone) == sorted(forgotten)
    written = BytesIO()
    entity_writer(REQUEST)(written, message)
    default_replica = (replica, epoch) == (-1, -1)  # kio leaves a default out
    assert default_replica or written.getvalue() == raw


@given(
    st.dictionaries(
        PLACES,
        st.tuples(
            st.sampled_from([0, 1, 6]),
            INT64,
            INT64,
            st.one_of(st.none(), st.binary(max_size=300)),
            st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(0, 999))),
            st.integers(0, 3),
        ),
    ),
    st.integers(0, 2**31 - 1),
)
def test_responses(results: dict[Place, tuple[int, int, int, bytes | None, Any, int]], session_id: int) -> None:
    aborted_class = nested(PARTITION, "aborted_transactions")
    if aborted_class is None or not isinstance(aborted_class, type):
        aborted_class = get_args(aborted_class)[0]
    topics: dict[bytes, list[Any]] = {}
    for (topic_id, index), (error, high_watermark, log_start, records, diverging, aborted) in results.items():
        fields: dict[str, Any] = {
            "partition_index": index,
            "error_code": ErrorCode(error),
            "high_watermark": high_watermark,
            "log_start_offset": log_start,
            "records": records,
            "aborted_transactions": tuple(zero(aborted_class) for _ in range(aborted)) or None,
        }
        if diverging is not None:
            fields["diverging_epoch"] = DIVERGING(epoch=diverging[0], end_offset=diverging[1])
        topics.setdefault(topic_id, []).append(zero(PARTITION, **fields))
    message = zero(
        RESPONSE,
        session_id=session_id,
        responses=tuple(
            zero(TOPIC, topic_id=UUID(bytes=topic_id), partitions=tuple(each)) for topic_id, each in topics.items()
        ),
    )
    written = BytesIO(b"\0")
    written.seek(1)
    entity_writer(RESPONSE)(written, message)
    read = read_response(memoryview(written.getvalue()))
    assert (read.error, read.session_id) == (0, session_id)
    assert {
        (each.topic_id, each.partition): (each.error, each.high_watermark, each.log_start, bytes(each.records))
        for each in read.partitions
    } == {place: (error, mark, start, records or b"") for place, (error, mark, start, records, _, _) in results.items()}
    for each in read.partitions:
        assert each.diverging == results[each.topic_id, each.partition][4]


@given(st.binary(max_size=80))
def test_noise_is_refused_and_nothing_else(raw: bytes) -> None:
    try:
        read_response(memoryview(raw))
    except InvalidFrame:
        return


def test_records_that_go_beyond_the_response_are_refused() -> None:
    message = zero(
        RESPONSE,
        responses=(zero(TOPIC, topic_id=UUID(int=1), partitions=(zero(PARTITION, records=b"x" * 100),)),),
    )
    written = BytesIO(b"\0")
    written.seek(1)
    entity_writer(RESPONSE)(written, message)
    with pytest.raises(InvalidFrame):
        read_response(memoryview(written.getvalue()[:-20]))
