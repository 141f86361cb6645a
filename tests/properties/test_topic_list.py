"""The list of topics that is read by hand is what kio writes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v1.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from barnabas.clients.wire.topic_list import ListedTopic, parse
from tests.support.kio_messages import written

CORRELATION_ID = bytes(4)
BROKERS = st.lists(
    st.builds(
        MetadataResponseBroker,
        node_id=st.integers(0, 9).map(BrokerId),
        host=st.text(max_size=20),
        port=st.integers(0, 65535).map(i32),
        rack=st.none() | st.text(max_size=5),
    ),
    max_size=3,
).map(tuple)
IDS = st.lists(st.integers(0, 9).map(BrokerId), max_size=3).map(tuple)
PARTITIONS = st.lists(
    st.builds(
        MetadataResponsePartition,
        error_code=st.sampled_from([ErrorCode.none, ErrorCode.leader_not_available]),
        partition_index=st.integers(0, 9).map(i32),
        leader_id=st.integers(-1, 9).map(BrokerId),
        replica_nodes=IDS,
        isr_nodes=IDS,
    ),
    max_size=4,
).map(tuple)
TOPICS = st.lists(
    st.builds(
        MetadataResponseTopic,
        error_code=st.just(ErrorCode.none),
        name=st.text(max_size=20).map(TopicName),
        is_internal=st.booleans(),
        partitions=PARTITIONS,
    ),
    max_size=4,
).map(tuple)
ANSWERS = st.builds(MetadataResponse, brokers=BROKERS, controller_id=st.just(BrokerId(1)), topics=TOPICS)


@given(ANSWERS)
def test_answers_are_read_as_kio_writes_them(answer: MetadataResponse) -> None:
    assert parse(CORRELATION_ID + written(answer)) == [
        ListedTopic(
            topic.name, len(topic.partitions), len(topic.partitions[0].replica_nodes) if topic.partitions else 0
        )
        for topic in answer.topics
    ]


@given(ANSWERS, st.data())
def test_half_an_answer_is_none(answer: MetadataResponse, data: st.DataObject) -> None:
    frame = CORRELATION_ID + written(answer)
    with pytest.raises((struct.error, ValueError)):
        parse(frame[: data.draw(st.integers(0, len(frame) - 1))])
