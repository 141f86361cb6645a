"""Metadata responses, packed by hand, are what kio writes, in every version."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.metadata.v13.response import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.serial import entity_writer

from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import metadata
from barnabas.protocol.messages.metadata import MetadataResponse, down
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.conversion import convert

VERSIONS = range(14)
NULLABLE_SINCE = 12
"""The first version in which a topic may have no name."""
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
INT32 = st.integers(-(2**31), 2**31 - 1)
ERRORS = st.sampled_from([ErrorCode.none, ErrorCode.leader_not_available, ErrorCode.listener_not_found])
NODES = st.lists(st.integers(0, 4), max_size=200, unique=True).map(tuple) | st.lists(INT32, max_size=150).map(tuple)
PARTITIONS = st.builds(
    MetadataResponsePartition,
    error_code=ERRORS,
    partition_index=INT32,
    leader_id=INT32,
    leader_epoch=INT32,
    replica_nodes=NODES,
    isr_nodes=NODES,
    offline_replicas=NODES,
)
BROKERS = st.builds(MetadataResponseBroker, node_id=st.integers(0, 4), host=TEXT, port=INT32, rack=st.none() | TEXT)


def topics(version: int) -> st.SearchStrategy[MetadataResponseTopic]:
    return st.builds(
        MetadataResponseTopic,
        error_code=ERRORS,
        name=TEXT if version < NULLABLE_SINCE else st.none() | TEXT,
        topic_id=st.none() | st.uuids(),
        is_internal=st.booleans(),
        partitions=st.lists(PARTITIONS, max_size=3).map(tuple),
        topic_authorized_operations=INT32,
    )


@given(st.sampled_from(VERSIONS), st.data())
def test_responses_are_written_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    response = data.draw(
        st.builds(
            MetadataResponse,
            throttle_time=st.just(NO_THROTTLE),
            brokers=st.lists(BROKERS, max_size=2).map(tuple),
            cluster_id=st.none() | TEXT,
            controller_id=INT32,
            topics=st.lists(topics(version), max_size=3).map(tuple),
            error_code=ERRORS,
            cluster_authorized_operations=INT32,
        )
    )
    message_class: Any = load_response_schema(ApiKey.METADATA, version)
    buffer = BytesIO()
    entity_writer(message_class)(buffer, convert(down(response, version), message_class))
    frame = codec.encode(ApiKey.METADATA, version, 77, response)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    assert frame[9 if version >= metadata.FLEXIBLE else 8 :] == buffer.getvalue()
