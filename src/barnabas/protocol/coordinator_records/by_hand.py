"""Records of consumer groups, packed by hand: a rebalance of a thousand members writes some thousands of them.

Tests hold the bytes equal to what the schemas write. A value has the schema's newest version, which is flexible.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import InvalidRecord
from barnabas.model.ids import LONGEST_REMEMBERED
from barnabas.protocol.coordinator_records import messages
from barnabas.protocol.wire.framing import MAX_STRING
from barnabas.protocol.wire.packing import INT16, INT32, add_text
from barnabas.protocol.wire.varint import uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.protocol.coordinator_records.messages import (
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupMetadataValue,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupTargetAssignmentMetadataValue,
        CurrentTopicPartitions,
    )

_PLACE: Final = struct.Struct(">hiib")
_ONE_PARTITION: Final = struct.Struct(">BiBBBBi")
"""An array of one partition, and one tagged field, number 0, of five bytes: an array of its epoch."""
_NUMBER: Final = struct.Struct(">hiB")
_NUMBER_AND_TAG: Final = struct.Struct(">hiBBBq")
"""A number, and one tagged field, number 0, of eight bytes."""
_VERSION: Final = 0
_CURRENT: Final = 8
"""The type of the keys of members' assignments."""
_STABLE: Final = 0
"""The state of a member that has all that it is to have."""
_NOTHING_TO_REVOKE: Final = b"\1\0"
"""No partitions, and no tagged fields."""


def pack_key(number: int, names: Iterable[str]) -> bytes:
    """A key of this type, which consists of names."""
    parts = [INT16.pack(number)]
    for name in names:
        encoded = name.encode()
        if (size := len(encoded)) > MAX_STRING:
            raise InvalidRecord(f"a text of {size} bytes: records take no more than {MAX_STRING}")
        parts += INT16.pack(size), encoded
    return b"".join(parts)


def current_key(group_id: str, member_id: str) -> bytes:
    """The key of a member's assignment."""
    if len(group_id) <= LONGEST_REMEMBERED and len(member_id) <= LONGEST_REMEMBERED:
        return _remembered_current_key(group_id, member_id)
    return pack_key(_CURRENT, (group_id, member_id))


@lru_cache(maxsize=4096)
def _remembered_current_key(group_id: str, member_id: str) -> bytes:
    return pack_key(_CURRENT, (group_id, member_id))


def pack_assignment(topics: tuple[CurrentTopicPartitions, ...]) -> bytes:
    """What a member has, as it stands in the value of its assignment."""
    out = bytearray()
    _add_assignment(out, topics)
    return bytes(out)


def pack_kept(epoch: int, previous_epoch: int, assigned: bytes) -> bytes:
    """The value of the assignment of a member that is stable, of what `pack_assignment` gave."""
    return _PLACE.pack(_VERSION, epoch, previous_epoch, _STABLE) + assigned + _NOTHING_TO_REVOKE


def _pack_current(value: ConsumerGroupCurrentMemberAssignmentValue) -> bytes:
    out = bytearray(_PLACE.pack(_VERSION, value.member_epoch, value.previous_member_epoch, value.state))
    _add_assignment(out, value.assigned_partitions)
    _add_assignment(out, value.partitions_pending_revocation)
    out.append(0)
    return bytes(out)


def _add_assignment(out: bytearray, topics: tuple[CurrentTopicPartitions, ...]) -> None:
    out += uvarint(len(topics) + 1)
    for topic_id, partitions, epochs in topics:
        out += topic_id.bytes
        if epochs is None:
            _add_numbers(out, partitions)
            out.append(0)
        elif len(partitions) == len(epochs) == 1:
            out += _ONE_PARTITION.pack(2, partitions[0], 1, 0, 5, 2, epochs[0])
        else:
            _add_numbers(out, partitions)
            tagged = bytearray()
            _add_numbers(tagged, epochs)
            out += b"\1\0"
            out += uvarint(len(tagged))
            out += tagged


def _add_numbers(out: bytearray, numbers: tuple[int, ...]) -> None:
    count = len(numbers)
    out += uvarint(count + 1)
    out += struct.pack(f">{count}i", *numbers)


def _pack_target(value: ConsumerGroupTargetAssignmentMemberValue) -> bytes:
    out = bytearray(INT16.pack(_VERSION))
    out += uvarint(len(value.topic_partitions) + 1)
    for topic in value.topic_partitions:
        out += topic.topic_id.bytes
        _add_numbers(out, topic.partitions)
        out.append(0)
    out.append(0)
    return bytes(out)


def _pack_epoch(value: ConsumerGroupMetadataValue) -> bytes:
    return _number_and_tag(value.epoch, value.metadata_hash)


def _pack_target_epoch(value: ConsumerGroupTargetAssignmentMetadataValue) -> bytes:
    return _number_and_tag(value.assignment_epoch, value.assignment_timestamp)


def _number_and_tag(number: int, tagged: int) -> bytes:
    return _NUMBER_AND_TAG.pack(_VERSION, number, 1, 0, 8, tagged) if tagged else _NUMBER.pack(_VERSION, number, 0)


def _pack_member(value: ConsumerGroupMemberMetadataValue) -> bytes | None:
    """None if the value has what a member seldom has, or a text that is too long."""
    texts = (value.instance_id, value.rack_id, value.client_id, value.client_host)
    topics = value.subscribed_topic_names
    regex, assignor = value.subscribed_topic_regex, value.server_assignor
    if value.classic_member_metadata is not None or any(
        text is not None and len(text) > _SURELY_SHORT for text in (*texts, *topics, regex, assignor)
    ):
        return None
    out = bytearray(INT16.pack(_VERSION))
    for text in texts:
        add_text(out, text, True)
    out += uvarint(len(topics) + 1)
    for text in topics:
        add_text(out, text, True)
    add_text(out, regex, True)
    out += INT32.pack(value.rebalance_timeout_ms)
    add_text(out, assignor, True)
    out.append(0)
    return bytes(out)


_SURELY_SHORT: Final = MAX_STRING // 4
"""Characters of a text that fits a record whatever they are."""
PACKERS: Final[dict[type, Callable[..., bytes | None]]] = {
    messages.ConsumerGroupCurrentMemberAssignmentValue: _pack_current,
    messages.ConsumerGroupTargetAssignmentMemberValue: _pack_target,
    messages.ConsumerGroupMetadataValue: _pack_epoch,
    messages.ConsumerGroupTargetAssignmentMetadataValue: _pack_target_epoch,
    messages.ConsumerGroupMemberMetadataValue: _pack_member,
}
"""By the class of a value. None for a value is left to its schema."""
