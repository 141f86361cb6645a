"""Responses by which groups rebalance, packed by hand, are what kio writes, in every version."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.serial import entity_writer
from kio.static.primitive import i32, i32Timedelta

from barnabas.broker.serving.registry import BY_KEY
from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.groups import consumer_group_heartbeat as consumer_heartbeat
from barnabas.protocol.messages.groups.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.groups.sync_group import SyncGroupResponse
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.api_table import API_FORMATS
from barnabas.protocol.wire.conversion import convert

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
NULLABLE = st.one_of(st.none(), TEXT)
INT32 = st.integers(-(2**31), 2**31 - 1).map(i32)
BYTES = st.binary(max_size=200)
TIME = st.integers(0, 10**6).map(lambda number: i32Timedelta.parse(timedelta(milliseconds=number)))
CODES = st.sampled_from([ErrorCode.none, ErrorCode.illegal_generation, ErrorCode.unknown_server_error])
HEAD: dict[str, Any] = {"throttle_time": TIME, "error_code": CODES}

JOINS = st.builds(
    JoinGroupResponse,
    **HEAD,
    generation_id=INT32,
    protocol_type=NULLABLE,
    protocol_name=TEXT,
    leader=TEXT,
    skip_assignment=st.booleans(),
    member_id=TEXT,
    members=st.lists(
        st.builds(JoinGroupResponseMember, member_id=TEXT, group_instance_id=NULLABLE, metadata=BYTES), max_size=3
    ).map(tuple),
)
SYNCS = st.builds(SyncGroupResponse, **HEAD, protocol_type=NULLABLE, protocol_name=NULLABLE, assignment=BYTES)
HEARTBEATS = st.builds(HeartbeatResponse, **HEAD)
CONSUMER_HEARTBEATS = st.builds(
    consumer_heartbeat.ConsumerGroupHeartbeatResponse,
    **HEAD,
    error_message=NULLABLE,
    member_id=NULLABLE,
    member_epoch=INT32,
    heartbeat_interval=TIME,
    assignment=st.one_of(
        st.none(),
        st.builds(
            consumer_heartbeat.HeartbeatAssignment,
            topic_partitions=st.lists(
                st.builds(
                    consumer_heartbeat.TopicPartitions,
                    topic_id=st.builds(UUID, int=st.integers(1, 2**128 - 1)),
                    partitions=st.lists(INT32, max_size=200).map(tuple),
                ),
                max_size=3,
            ).map(tuple),
        ),
    ),
)
RESPONSES: dict[ApiKey, st.SearchStrategy[Any]] = {
    ApiKey.JOIN_GROUP: JOINS,
    ApiKey.SYNC_GROUP: SYNCS,
    ApiKey.HEARTBEAT: HEARTBEATS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: CONSUMER_HEARTBEATS,
    ApiKey.SHARE_GROUP_HEARTBEAT: CONSUMER_HEARTBEATS.map(lambda told: convert(told, ShareGroupHeartbeatResponse)),
}


def same_as_kio(key: ApiKey, version: int, response: Any) -> None:
    message_class: Any = codec.response_class(key, version)
    buffer = BytesIO()
    entity_writer(message_class)(buffer, convert(response, message_class))
    frame = codec.encode(key, version, 77, response)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    assert frame[9 if codec.has_flexible_header(key, version) else 8 :] == buffer.getvalue()


@given(st.data())
def test_responses_are_written_as_kio_writes_them(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(list(RESPONSES)))
    api = BY_KEY[key.value]
    same_as_kio(key, data.draw(st.integers(api.oldest, api.newest)), data.draw(RESPONSES[key]))


def test_every_response_that_is_packed_by_hand_is_compared_with_kio() -> None:
    tested_elsewhere = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.OFFSET_COMMIT, ApiKey.END_TXN}
    tested_elsewhere |= {ApiKey.TXN_OFFSET_COMMIT}
    of_shares = {ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}  # in test_share_messages
    assert {key for key, form in API_FORMATS.items() if form.pack} == RESPONSES.keys() | tested_elsewhere | of_shares


@given(JOINS)
def test_a_protocol_that_is_not_chosen_yet_has_an_empty_name_in_old_versions(response: JoinGroupResponse) -> None:
    """Which had no null."""
    for version in range(7):
        nothing, empty = (replace(response, protocol_name=name) for name in (None, ""))
        assert codec.encode(ApiKey.JOIN_GROUP, version, 1, nothing) == codec.encode(
            ApiKey.JOIN_GROUP, version, 1, empty
        )
