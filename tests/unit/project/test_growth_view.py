"""The short way through a Metadata answer that scripts.growth takes says the same as kio."""

from __future__ import annotations

import io
import struct
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32, i32Timedelta
from scripts.growth import view


def _partition(
    index: int, leader: int, in_sync: tuple[int, ...], offline: tuple[int, ...]
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.none,
        partition_index=i32(index),
        leader_id=BrokerId(leader),
        leader_epoch=i32(7),
        replica_nodes=(BrokerId(1), BrokerId(2), BrokerId(3)),
        isr_nodes=tuple(map(BrokerId, in_sync)),
        offline_replicas=tuple(map(BrokerId, offline)),
    )


def _topic(name: str, *partitions: MetadataResponsePartition) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.none, name=TopicName(name), topic_id=UUID(int=1), is_internal=False, partitions=partitions
    )


def _answer(*topics: MetadataResponseTopic) -> bytes:
    body = io.BytesIO()
    message = MetadataResponse(
        throttle_time=i32Timedelta.parse(timedelta()),
        brokers=(
            MetadataResponseBroker(node_id=BrokerId(1), host="here", port=i32(1), rack=None),
            MetadataResponseBroker(node_id=BrokerId(2), host="there", port=i32(2), rack="r" * 200),
        ),
        cluster_id="some cluster",
        controller_id=BrokerId(2),
        topics=topics,
    )
    entity_writer(MetadataResponse)(body, message)
    return struct.pack(">iib", len(body.getvalue()) + 5, 0, 0) + body.getvalue()


def test_leaders_and_replicas_in_sync_are_counted() -> None:
    many = tuple(_partition(index, 1 + index % 3, (1, 2, 3), ()) for index in range(300))
    told = view.read(
        _answer(
            _topic("a", *many),
            _topic("b" * 200, _partition(0, -1, (), (1, 2)), _partition(1, 2, (2,), ())),
            _topic("c"),
        )
    )
    assert (told.controller, told.topics, told.partitions, told.in_sync) == (2, 3, 302, 300)
    assert told.leaders == Counter({1: 100, 2: 101, 3: 100, -1: 1})
    assert told.led_by([1, 3]) == 200


def test_an_answer_with_something_left_is_refused() -> None:
    with pytest.raises(RuntimeError, match="2 bytes are left"):
        view.read(_answer(_topic("a")) + b"\0")
