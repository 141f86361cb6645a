"""The list of topics that is packed by hand: equal to kio's, and given up where there is none to be had."""

from __future__ import annotations

import io
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v1.request import MetadataRequest
from kio.schema.metadata.v1.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from barnabas.clients.topic_list import ListedTopic, list_topics, parse, request

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


def written(answer: MetadataResponse) -> bytes:
    body = io.BytesIO()
    entity_writer(MetadataResponse)(body, answer)
    return struct.pack(">i", 0) + body.getvalue()


def test_the_request_is_kafkas() -> None:
    frame = request()
    assert struct.unpack_from(">ihhi", frame) == (len(frame) - 4, 3, 1, 0)
    asked, size = entity_reader(MetadataRequest)(frame, 4 + 8 + 2 + len("barnabas"))
    assert asked == MetadataRequest(topics=None)
    assert size == 4


@given(ANSWERS)
def test_answers_are_read_as_kio_writes_them(answer: MetadataResponse) -> None:
    assert parse(written(answer)) == [
        ListedTopic(
            topic.name, len(topic.partitions), len(topic.partitions[0].replica_nodes) if topic.partitions else 0
        )
        for topic in answer.topics
    ]


@given(ANSWERS, st.data())
def test_half_an_answer_is_none(answer: MetadataResponse, data: st.DataObject) -> None:
    frame = written(answer)
    with pytest.raises((struct.error, ValueError)):
        parse(frame[: data.draw(st.integers(0, len(frame) - 1))])


@pytest.mark.parametrize("bootstrap", ["", "localhost", "localhost:x", ":9092", "localhost:99999", "no.such.host.:1"])
def test_addresses_that_lead_nowhere(bootstrap: str) -> None:
    assert list_topics(bootstrap) is None


@pytest.mark.parametrize("spoken", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", 2) + b"xx"])
def test_something_that_is_no_broker(spoken: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(spoken)

        other = threading.Thread(target=serve)
        other.start()
        assert list_topics(f"127.0.0.1:{server.getsockname()[1]}", timeout=30) is None
        other.join()


def test_the_next_address_is_tried() -> None:
    answer = written(MetadataResponse(brokers=(), controller_id=BrokerId(1), topics=()))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as gone:
        dead = gone.getsockname()[1]
        gone.close()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(struct.pack(">i", len(answer)) + answer)

        other = threading.Thread(target=serve)
        other.start()
        assert list_topics(f"127.0.0.1:{dead}, 127.0.0.1:{server.getsockname()[1]}", timeout=30) == []
        other.join()
