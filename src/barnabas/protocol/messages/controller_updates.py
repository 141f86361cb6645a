"""The controller's messages to brokers, packed by hand: LeaderAndIsr, StopReplica and UpdateMetadata.

A new controller sends every broker the whole cluster, and kio takes ten times as long for each partition. A body here
ends before the tagged fields of the message, of which there is only the number that it gets when it is sent
(`number_tag`). What UpdateMetadata tells all brokers alike (`shared`) can be packed once for all of them. Tests hold
the bytes equal to kio's.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from barnabas.protocol.messages.inter_broker import NUMBER_TAG
from barnabas.protocol.wire.packing import INT32, NO_ID, add_count, add_text
from barnabas.protocol.wire.varint import uvarint

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.protocol.messages.inter_broker import (
        LeaderAndIsrRequest,
        StopReplicaRequest,
        UpdateMetadataRequest,
    )

_SENDER: Final = struct.Struct(">i?iq")
"""The controller's id, whether it is KRaft's, its epoch, and the broker's."""
_SENDER_AND_TYPE: Final = struct.Struct(">i?iqb")
_SENDER_OF_METADATA: Final = struct.Struct(">i?biq")
_FOUR: Final = struct.Struct(">iiii")
_IS_NEW_AND_STATE: Final = struct.Struct(">?b")
_STOPPED: Final = struct.Struct(">ii?")
_PROTOCOL: Final = struct.Struct(">h")
_NO_TAGS: Final = b"\0"
_NUMBER: Final = struct.Struct(">q")


def number_tag(number: int) -> bytes:
    """The tagged fields of a message with this number."""
    return b"\1" + uvarint(NUMBER_TAG) + b"\x08" + _NUMBER.pack(number)


def leader_and_isr(request: LeaderAndIsrRequest) -> bytes:
    """The body of a LeaderAndIsr request."""
    out = bytearray(
        _SENDER_AND_TYPE.pack(
            request.controller_id,
            request.is_k_raft_controller,
            request.controller_epoch,
            request.broker_epoch,
            request.type,
        )
    )
    add_count(out, len(request.topic_states), True)
    for topic in request.topic_states:
        _add_topic(out, topic.topic_name, topic.topic_id, len(topic.partition_states))
        for each in topic.partition_states:
            out += _FOUR.pack(each.partition_index, each.controller_epoch, each.leader, each.leader_epoch)
            out += _ids(each.isr)
            out += INT32.pack(each.partition_epoch)
            out += _ids(each.replicas)
            out += _ids(each.adding_replicas)
            out += _ids(each.removing_replicas)
            out += _IS_NEW_AND_STATE.pack(each.is_new, each.leader_recovery_state)
            out += _NO_TAGS
        out += _NO_TAGS
    add_count(out, len(request.live_leaders), True)
    for leader in request.live_leaders:
        out += INT32.pack(leader.broker_id)
        add_text(out, leader.host_name, True)
        out += INT32.pack(leader.port)
        out += _NO_TAGS
    return bytes(out)


def stop_replica(request: StopReplicaRequest) -> bytes:
    """The body of a StopReplica request."""
    sender = request.controller_id, request.is_k_raft_controller, request.controller_epoch, request.broker_epoch
    out = bytearray(_SENDER.pack(*sender))
    add_count(out, len(request.topic_states), True)
    for topic in request.topic_states:
        add_text(out, topic.topic_name, True)
        add_count(out, len(topic.partition_states), True)
        for each in topic.partition_states:
            out += _STOPPED.pack(each.partition_index, each.leader_epoch, each.delete_partition)
            out += _NO_TAGS
        out += _NO_TAGS
    return bytes(out)


def update_metadata(request: UpdateMetadataRequest) -> bytes:
    """The body of an UpdateMetadata request up to `shared`."""
    return _SENDER_OF_METADATA.pack(
        request.controller_id,
        request.is_k_raft_controller,
        request.type,
        request.controller_epoch,
        request.broker_epoch,
    )


def shared(request: UpdateMetadataRequest) -> bytes:
    """The rest of that body, which is the same for all brokers: the topics, and the brokers that are up."""
    out = bytearray()
    add_count(out, len(request.topic_states), True)
    for topic in request.topic_states:
        _add_topic(out, topic.topic_name, topic.topic_id, len(topic.partition_states))
        for each in topic.partition_states:
            out += _FOUR.pack(each.partition_index, each.controller_epoch, each.leader, each.leader_epoch)
            out += _ids(each.isr)
            out += INT32.pack(each.zk_version)
            out += _ids(each.replicas)
            out += _ids(each.offline_replicas)
            out += _NO_TAGS
        out += _NO_TAGS
    add_count(out, len(request.live_brokers), True)
    for broker in request.live_brokers:
        out += INT32.pack(broker.id)
        add_count(out, len(broker.endpoints), True)
        for endpoint in broker.endpoints:
            out += INT32.pack(endpoint.port)
            add_text(out, endpoint.host, True)
            add_text(out, endpoint.listener, True)
            out += _PROTOCOL.pack(endpoint.security_protocol)
            out += _NO_TAGS
        add_text(out, broker.rack, True)
        out += _NO_TAGS
    return bytes(out)


def _add_topic(out: bytearray, name: str, topic_id: UUID | None, partitions: int) -> None:
    add_text(out, name, True)
    out += NO_ID if topic_id is None else topic_id.bytes
    add_count(out, partitions, True)


@lru_cache(4096)
def _ids(ids: tuple[int, ...]) -> bytes:
    """An array of broker ids; partitions have the same ones again and again."""
    return uvarint(len(ids) + 1) + struct.pack(f">{len(ids)}i", *ids)
