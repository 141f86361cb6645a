"""The consumer protocol inside JoinGroup and SyncGroup: subscriptions and assignments of classic members.

In a classic group only clients read and write these bytes. In a consumer group the broker takes the leader's place: it
reads the subscriptions of classic members, and writes their assignments in the version that they support.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment, TopicPartition
from kio.schema.consumer_protocol_subscription import v0, v1, v2, v3
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

from barnabas.model.errors import InvalidFrame, InvalidRecord
from barnabas.protocol.wire import bounds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from barnabas.machines.controller.image import ClusterImage
    from barnabas.machines.groups.assignors.spec import Partitions

_NEWEST: Final = 3
_SUBSCRIPTIONS: Final = tuple(version.ConsumerProtocolSubscription for version in (v0, v1, v2, v3))
_write_assignment: Final = entity_writer(ConsumerProtocolAssignment)


@dataclass(frozen=True, slots=True)
class ClassicSubscription:
    """What a classic consumer wants to read, and what it still has."""

    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    """Empty of members that give everything back before they join, as those of version 0 do."""
    rack_id: str | None


@dataclass(frozen=True, slots=True)
class ClassicAssignment:
    """What a classic consumer was assigned by the leader of its group."""

    partitions: Mapping[str, frozenset[int]]
    has_user_data: bool
    """Whether the leader's assignor added user data, which the broker cannot make."""


def read_subscription(data: bytes) -> ClassicSubscription:
    """The subscription in these bytes; a version that is not known is read as the newest. Raises InvalidRecord."""
    read = _read(_SUBSCRIPTIONS[min(_version(data), _NEWEST)], data)
    return ClassicSubscription(
        topics=frozenset(read.topics),
        owned=_by_topic(getattr(read, "owned_partitions", ())),
        rack_id=getattr(read, "rack_id", None) or None,
    )


def read_assignment(data: bytes) -> ClassicAssignment:
    """The assignment in these bytes; none at all is empty. All versions have the same fields. Raises InvalidRecord."""
    if not data:
        return ClassicAssignment({}, has_user_data=False)
    _version(data)
    read = _read(ConsumerProtocolAssignment, data)
    return ClassicAssignment(_by_topic(read.assigned_partitions), has_user_data=bool(read.user_data))


def write_assignment(partitions: Partitions, image: ClusterImage, subscription: bytes) -> bytes:
    """An assignment in the version that a member's subscription is in; topics that are gone are left out.

    Nobody has to say legibly what it subscribes to in every protocol that it names: who does not in this one is written
    the oldest version, which has all the fields.
    """
    try:
        version = min(_version(subscription), _NEWEST)
    except InvalidRecord:
        version = 0
    topics = tuple(
        TopicPartition(
            topic=TopicName(image.topic_names[topic_id]),
            partitions=tuple(i32(partition) for partition in sorted(partitions[topic_id])),
        )
        for topic_id in sorted(partitions)
        if topic_id in image.topic_names
    )
    out = BytesIO()
    out.write(version.to_bytes(bounds.VERSION_BYTES, "big"))
    _write_assignment(out, ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None))
    return out.getvalue()


def by_id(partitions: Mapping[str, frozenset[int]], image: ClusterImage) -> dict[UUID, frozenset[int]]:
    """Partitions by the id of their topic instead of its name; topics that are gone are left out."""
    found = ((image.topic(name), indexes) for name, indexes in partitions.items())
    return {topic.topic_id: indexes for topic, indexes in found if topic is not None and indexes}


def _version(data: bytes) -> int:
    version = int.from_bytes(data[: bounds.VERSION_BYTES], "big", signed=True)
    if len(data) < bounds.VERSION_BYTES or version < 0:
        raise InvalidRecord("A consumer protocol message has no version.")
    return version


def _read(message: type[Any], data: bytes) -> Any:
    try:
        return bounds.read(message, data, bounds.VERSION_BYTES, bounds.MAX_ELEMENTS)
    except InvalidFrame as error:
        raise InvalidRecord(f"A consumer protocol message cannot be read: {error}") from None


def _by_topic(topics: Any) -> dict[str, frozenset[int]]:
    return {topic.topic: frozenset(topic.partitions) for topic in topics}
