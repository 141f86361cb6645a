"""Usual requests of members of groups, read by hand, are what the general way reads; it is left all others."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.consumer_group_heartbeat.v1 import request as consumer_heartbeat
from kio.schema.join_group.v9 import request as join_group
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

from barnabas.broker.serving.registry import BY_KEY
from barnabas.model.errors import InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import bounds, codec
from barnabas.protocol.wire.api_table import API_FORMATS, load
from barnabas.protocol.wire.conversion import convert
from barnabas.protocol.wire.durations import of_milliseconds
from tests.support.kio_messages import messages

KEYS = [ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT]
PLAIN = [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT]
"""Those that are read by hand whatever they say."""
VERSIONS = [(key, version) for key in KEYS for version in range(BY_KEY[key].oldest, BY_KEY[key].newest + 1)]
JOINING = [(key, version) for key in PLAIN for version in range(BY_KEY[key].oldest, BY_KEY[key].newest + 1)]
TEXT = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(["x" * size for size in (126, 127, 128)])
INT32 = st.integers(-(2**31), 2**31 - 1)


def written(message: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def read_generally(key: ApiKey, version: int, raw: bytes) -> Any:
    """A request, or that it is refused."""
    newest = codec.handled_request_class(key, BY_KEY[key].newest)
    try:
        return convert(bounds.read(load_request_schema(key, version), raw, 0, bounds.MAX_ELEMENTS), newest)
    except InvalidFrame:
        return InvalidFrame


def idle(key: ApiKey, version: int, group: str, member: str, epoch: int) -> Any:
    """A heartbeat with nothing but defaults after its member and epoch."""
    place = {"generation_id": epoch} if key is ApiKey.HEARTBEAT else {"member_epoch": epoch}
    partitions = {"topic_partitions": None} if key is ApiKey.CONSUMER_GROUP_HEARTBEAT else {}
    message_class: Any = load_request_schema(key, version)
    return message_class(group_id=group, member_id=member, **place, **partitions)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@given(group=TEXT, member=TEXT, epoch=INT32)
def test_idle_heartbeats_are_read_by_hand_as_by_kio(
    key: ApiKey, version: int, group: str, member: str, epoch: int
) -> None:
    raw = written(idle(key, version, group, member, epoch))
    by_hand = load(API_FORMATS[key].unpack_usual)(memoryview(b"head" + raw), 4, version)
    is_read = key in PLAIN or (len(group.encode()) < 127 and len(member.encode()) < 127)
    assert (by_hand is not None) is (is_read and version >= API_FORMATS[key].flexible_from)
    if by_hand is not None:
        assert by_hand == read_generally(key, version, raw)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "names", [b"\x02g\x10abc", b"\x02gabcdef", b"\x02g\x05abc", b"\x02g\x08abc", b"\x02g", b"\x7fg", b""]
)
@pytest.mark.parametrize("has_nulls", [True, False])
def test_a_heartbeat_whose_lengths_point_past_its_end_is_refused(version: int, names: bytes, has_nulls: bool) -> None:
    nulls = bytes.fromhex("0000ffffffff00000000") + bytes(version)
    raw = names + bytes(4) + nulls if has_nulls else names
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    assert load(API_FORMATS[key].unpack_usual)(memoryview(b"head" + raw), 4, version) is None
    assert read_generally(key, version, raw) is InvalidFrame


@pytest.mark.parametrize(("key", "version"), JOINING)
@given(data=st.data())
def test_joins_syncs_and_heartbeats_of_the_new_protocol_are_read_by_hand_as_by_kio(
    key: ApiKey, version: int, data: st.DataObject
) -> None:
    raw = written(data.draw(messages(load_request_schema(key, version))))
    by_hand = load(API_FORMATS[key].unpack_usual)(memoryview(b"head" + raw + b"behind"), 4, version)
    if version < API_FORMATS[key].flexible_from:
        assert by_hand is None
    else:
        assert by_hand == read_generally(key, version, raw)


@pytest.mark.parametrize("size", [0, 125, 126, 127, 128, 16382, 16383, 16384, 32767])
def test_a_join_is_read_by_hand_whatever_the_size_of_its_parts(size: int) -> None:
    text, metadata = "x" * size, b"x" * (2 * size)
    message = join_group.JoinGroupRequest(
        group_id=text,  # type: ignore[arg-type]  # a name for str
        session_timeout=of_milliseconds(-(2**31)),
        rebalance_timeout=of_milliseconds(2**31 - 1),
        member_id=text,
        group_instance_id=text,
        protocol_type=text,
        protocols=(join_group.JoinGroupRequestProtocol(name=text, metadata=metadata),) * 2,
        reason=text,
    )
    raw = written(message)
    by_hand = load(API_FORMATS[ApiKey.JOIN_GROUP].unpack_usual)(memoryview(raw), 0, 9)
    assert by_hand == read_generally(ApiKey.JOIN_GROUP, 9, raw) == convert(message, type(by_hand))


@pytest.mark.parametrize("size", [0, 125, 126, 127, 128, 16_382, 16_383, 16_384, 32_767])
def test_a_heartbeat_is_read_by_hand_whatever_the_size_of_its_parts(size: int) -> None:
    text: Any = "x" * size
    message = consumer_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=text,
        member_id=text,
        member_epoch=i32(-(2**31)),
        instance_id=text,
        rack_id=text,
        rebalance_timeout=of_milliseconds(2**31 - 1),
        subscribed_topic_names=(text,) * 2,
        subscribed_topic_regex=text,
        server_assignor=text,
        topic_partitions=(
            consumer_heartbeat.TopicPartitions(topic_id=UUID(int=1), partitions=tuple(map(i32, range(size)))),
            consumer_heartbeat.TopicPartitions(topic_id=None, partitions=()),
        ),
    )
    raw = written(message)
    by_hand = load(API_FORMATS[ApiKey.CONSUMER_GROUP_HEARTBEAT].unpack_usual)(memoryview(raw), 0, 1)
    assert by_hand == read_generally(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, raw) == convert(message, type(by_hand))


@pytest.mark.parametrize("too_many", [0, 1])
@pytest.mark.parametrize("names", [0, 1, bounds.MAX_ELEMENTS - 2])
def test_a_heartbeat_with_too_many_elements_is_read_by_nobody(names: int, too_many: int) -> None:
    topic = consumer_heartbeat.TopicPartitions(
        topic_id=None, partitions=(i32(0),) * (bounds.MAX_ELEMENTS - 1 - names + too_many)
    )
    raw = written(
        consumer_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=GroupId("g"),
            member_id="m",
            member_epoch=i32(1),
            subscribed_topic_names=(TopicName("t"),) * names,
            topic_partitions=(topic,),
        )
    )
    by_hand = load(API_FORMATS[ApiKey.CONSUMER_GROUP_HEARTBEAT].unpack_usual)(memoryview(raw), 0, 1)
    assert (by_hand is None) is bool(too_many)
    assert (read_generally(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, raw) is InvalidFrame) is bool(too_many)


@pytest.mark.parametrize(("key", "version"), VERSIONS + JOINING)
@given(data=st.data())
def test_whatever_is_read_by_hand_the_general_way_reads_alike(key: ApiKey, version: int, data: st.DataObject) -> None:
    anything: st.SearchStrategy[Any] = messages(load_request_schema(key, version))
    if key in KEYS:
        anything |= st.builds(idle, *map(st.just, (key, version)), TEXT, TEXT, INT32)
    message: Any = data.draw(anything)
    raw = bytearray(written(message))
    raw = raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))]
    for _ in range(data.draw(st.integers(0, 2)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 0x80]) | st.integers(0, 255))
    by_hand = load(API_FORMATS[key].unpack_usual)(memoryview(raw), 0, version)
    if by_hand is not None:
        assert by_hand == read_generally(key, version, bytes(raw))
