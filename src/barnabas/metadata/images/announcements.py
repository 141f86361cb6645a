"""From images to messages: the metadata updates that a controller sends one broker.

`updates` goes the other way. A message has what differs from the image that the broker has acknowledged; without one,
or after a message whose answer was lost, it has everything (type FULL), and what it does not name does not exist.

    StopReplica      the partitions that the broker has no replica of any more; first, while it knows the old ones
    LeaderAndIsr     those that it has one of
    UpdateMetadata   all partitions, and the brokers that are up
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from kio.static.primitive import i8, i16, i32, i64

from barnabas.machines.controller.image import DELETED
from barnabas.metadata.images.cache import difference
from barnabas.metadata.images.updates import SECURITY_PROTOCOLS
from barnabas.protocol.messages import controller_updates, inter_broker
from barnabas.protocol.messages.inter_broker import FULL, INCREMENTAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

    from barnabas.machines.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
    from barnabas.metadata.images.cache import Delta

Announcement = inter_broker.LeaderAndIsrRequest | inter_broker.StopReplicaRequest | inter_broker.UpdateMetadataRequest


class _Changed(NamedTuple):
    """A topic as it is now, and its partitions that are new or not what they were; each topic is there once."""

    topic: TopicImage
    partitions: tuple[PartitionImage, ...]


class _Common(NamedTuple):
    """What the messages of all brokers are made of."""

    hosted: dict[int, list[_Changed]]
    """By broker, the partitions that it has a replica of."""
    stopped: dict[int, list[inter_broker.StopReplicaTopicState]]
    """By broker, the replicas that are its own no more; their data goes."""
    metadata: inter_broker.UpdateMetadataRequest | None
    """What all brokers are told, for none of them; None if there is nothing to tell."""


class Packed(NamedTuple):
    """A message for the wire, but for its tagged fields: the number that it gets when it is sent."""

    api_key: int
    version: int
    body: tuple[bytes, ...]


class Announcements:
    """The messages from one image to another, for all brokers: what brokers have in common is made and packed once."""

    def __init__(self, before: ClusterImage | None, after: ClusterImage) -> None:
        """Without `before`, for brokers of which nothing is known."""
        self.before = before
        self.after = after
        self._changed: list[_Changed]
        self._deleted: tuple[TopicImage, ...] = ()
        if before is None:
            self._changed = [_Changed(topic, topic.partitions) for topic in after.topics.values()]
        else:
            delta = difference(before, after)
            self._changed, self._deleted = _changed(before, after, delta), delta.deleted
        self.size = sum(len(partitions) for _, partitions in self._changed)
        """How many partitions it takes to say it."""
        self._common: _Common | None = None
        self._packed_metadata: bytes | None = None

    def messages(self, broker: BrokerImage) -> Iterator[Announcement]:
        """The messages for one broker, in order; none if nothing has changed."""
        common = self._in_common()
        stopped = common.stopped.get(broker.broker_id)
        if stopped:
            yield inter_broker.StopReplicaRequest(
                controller_id=i32(self.after.controller_id),
                controller_epoch=i32(self.after.controller_epoch),
                broker_epoch=i64(broker.epoch),
                topic_states=tuple(stopped),
            )
        hosted = common.hosted.get(broker.broker_id, [])
        if hosted or self.before is None:
            yield _leadership(hosted, self.after, broker, self._kind)
        if common.metadata is not None:
            yield replace(common.metadata, broker_epoch=i64(broker.epoch))

    def packed(self, broker: BrokerImage) -> list[Packed]:
        """The same messages for the wire."""
        return [Packed(each.__api_key__, each.__version__, self._body(each)) for each in self.messages(broker)]

    def _body(self, message: Announcement) -> tuple[bytes, ...]:
        match message:
            case inter_broker.UpdateMetadataRequest():
                if self._packed_metadata is None:
                    self._packed_metadata = controller_updates.shared(message)
                return controller_updates.update_metadata(message), self._packed_metadata
            case inter_broker.LeaderAndIsrRequest():
                return (controller_updates.leader_and_isr(message),)
            case inter_broker.StopReplicaRequest():
                return (controller_updates.stop_replica(message),)

    @property
    def _kind(self) -> i8:
        return FULL if self.before is None else INCREMENTAL

    def _in_common(self) -> _Common:
        """No `cached_property`: in Python 3.11 that has a lock, for which small updates would wait for large ones."""
        if self._common is None:
            self._common = _Common(self._hosted(), self._stopped(), self._metadata())
        return self._common

    def _hosted(self) -> dict[int, list[_Changed]]:
        found: dict[int, list[_Changed]] = {}
        for topic, partitions in self._changed:
            of_topic: dict[int, list[PartitionImage]] = {}
            for each in partitions:
                for broker_id in each.replicas:
                    of_topic.setdefault(broker_id, []).append(each)
            for broker_id, hosted in of_topic.items():
                found.setdefault(broker_id, []).append(_Changed(topic, tuple(hosted)))
        return found

    def _stopped(self) -> dict[int, list[inter_broker.StopReplicaTopicState]]:
        found: dict[int, list[inter_broker.StopReplicaTopicState]] = {}
        if self.before is None:
            return found
        for topic in self._deleted:
            _add_stopped(found, topic.name, ((each, each.replicas) for each in topic.partitions))
        for topic, partitions in self._changed:
            old = self.before.topics.get(topic.name)
            if old is not None and old.topic_id == topic.topic_id:
                moved = (
                    (each, set(old.partitions[each.index].replicas) - set(each.replicas))
                    for each in partitions
                    if each.index < len(old.partitions)
                )
                _add_stopped(found, topic.name, moved)
        return found

    def _metadata(self) -> inter_broker.UpdateMetadataRequest | None:
        before, after = self.before, self.after
        if before is None or self._changed or self._deleted or _members(before) != _members(after):
            return _metadata(self._changed, self._deleted, after, self._kind)
        return None


def announcements(before: ClusterImage | None, after: ClusterImage, broker: BrokerImage) -> Iterator[Announcement]:
    """The messages, in order, for a broker that knows `before`; none if nothing has changed."""
    return Announcements(before, after).messages(broker)


def _changed(before: ClusterImage, after: ClusterImage, delta: Delta) -> list[_Changed]:
    disks = _other_disks(before, after)
    created = {topic.name for topic in delta.created}
    touched = {topic.name: topic for topic in delta.changed} | {name: after.topics[name] for name in disks}
    return [_Changed(topic, topic.partitions) for topic in delta.created] + [
        _Changed(topic, _differing(before.topics[name], topic, disks.get(name, frozenset())))
        for name, topic in touched.items()
        if name not in created
    ]


def _members(image: ClusterImage) -> tuple[object, ...]:
    return image.controller_id, image.controller_epoch, dict(image.brokers)


def _differing(before: TopicImage, after: TopicImage, disks: Set[int]) -> tuple[PartitionImage, ...]:
    known = before.partitions
    return tuple(
        each
        for each in after.partitions
        if each.index >= len(known) or each != known[each.index] or each.index in disks
    )


def _other_disks(before: ClusterImage, after: ClusterImage) -> dict[str, set[int]]:
    """By topic, the partitions of which a replica was lost with its disk, or is back."""
    found: dict[str, set[int]] = {}
    if before.failed == after.failed:
        return found
    for broker_id in sorted(before.failed.keys() | after.failed.keys()):
        was, now = (image.failed.get(broker_id, frozenset()) for image in (before, after))
        for name, index in sorted(was ^ now):
            if after.partition(name, index) is not None:
                found.setdefault(name, set()).add(index)
    return found


def _leadership(
    hosted: Iterable[_Changed], image: ClusterImage, broker: BrokerImage, kind: i8
) -> inter_broker.LeaderAndIsrRequest:
    return inter_broker.LeaderAndIsrRequest(
        controller_id=i32(image.controller_id),
        controller_epoch=i32(image.controller_epoch),
        broker_epoch=i64(broker.epoch),
        type=kind,
        topic_states=tuple(
            inter_broker.LeaderAndIsrTopicState(
                topic_name=topic.name,
                topic_id=topic.topic_id,
                partition_states=tuple(_leadership_state(each, image.controller_epoch) for each in partitions),
            )
            for topic, partitions in hosted
        ),
        live_leaders=(),
    )


def _leadership_state(partition: PartitionImage, controller_epoch: int) -> inter_broker.LeaderAndIsrPartitionState:
    return inter_broker.LeaderAndIsrPartitionState(
        partition_index=_i32(partition.index),
        controller_epoch=_i32(controller_epoch),
        leader=_i32(partition.leader),
        leader_epoch=_i32(partition.leader_epoch),
        isr=_ids(partition.isr),
        partition_epoch=_i32(partition.partition_epoch),
        replicas=_ids(partition.replicas),
        adding_replicas=_ids(partition.adding),
        removing_replicas=_ids(partition.removing),
    )


def _add_stopped(
    found: dict[int, list[inter_broker.StopReplicaTopicState]],
    topic: str,
    left: Iterable[tuple[PartitionImage, Iterable[int]]],
) -> None:
    """Note, for each broker, the partitions of a topic that it has left."""
    by_broker: dict[int, list[PartitionImage]] = {}
    for partition, brokers in left:
        for broker_id in brokers:
            by_broker.setdefault(broker_id, []).append(partition)
    for broker_id, partitions in by_broker.items():
        found.setdefault(broker_id, []).append(_stop(topic, partitions))


def _stop(topic: str, partitions: Iterable[PartitionImage]) -> inter_broker.StopReplicaTopicState:
    return inter_broker.StopReplicaTopicState(
        topic_name=topic,
        partition_states=tuple(
            inter_broker.StopReplicaPartitionState(
                partition_index=i32(each.index), leader_epoch=i32(each.leader_epoch), delete_partition=True
            )
            for each in partitions
        ),
    )


def _metadata(
    changed: Iterable[_Changed], deleted: Iterable[TopicImage], image: ClusterImage, kind: i8
) -> inter_broker.UpdateMetadataRequest:
    """For no broker yet. Deleted topics come first: one made again under its old name is named twice."""
    epoch = image.controller_epoch
    gone = [
        inter_broker.UpdateMetadataTopicState(
            topic_name=topic.name,
            topic_id=topic.topic_id,
            partition_states=tuple(_state(each, epoch, DELETED) for each in topic.partitions),
        )
        for topic in deleted
    ]
    return inter_broker.UpdateMetadataRequest(
        controller_id=i32(image.controller_id),
        controller_epoch=i32(epoch),
        type=kind,
        topic_states=(
            *gone,
            *(
                inter_broker.UpdateMetadataTopicState(
                    topic_name=topic.name,
                    topic_id=topic.topic_id,
                    partition_states=tuple(
                        _state(each, epoch, each.leader, image.offline_replicas(topic.name, each))
                        for each in partitions
                    ),
                )
                for topic, partitions in changed
            ),
        ),
        live_brokers=tuple(_broker(each) for each in image.brokers.values()),
    )


def _state(
    partition: PartitionImage, controller_epoch: int, leader: int, offline: Iterable[int] = ()
) -> inter_broker.UpdateMetadataPartitionState:
    return inter_broker.UpdateMetadataPartitionState(
        partition_index=_i32(partition.index),
        controller_epoch=_i32(controller_epoch),
        leader=_i32(leader),
        leader_epoch=_i32(partition.leader_epoch),
        isr=_ids(partition.isr),
        zk_version=_i32(partition.partition_epoch),
        replicas=_ids(partition.replicas),
        offline_replicas=_ids(offline),
    )


def _broker(broker: BrokerImage) -> inter_broker.UpdateMetadataBroker:
    return inter_broker.UpdateMetadataBroker(
        id=i32(broker.broker_id),
        endpoints=tuple(
            inter_broker.UpdateMetadataEndpoint(
                port=i32(endpoint.port),
                host=endpoint.host,
                listener=name,
                security_protocol=i16(SECURITY_PROTOCOLS.index(endpoint.security_protocol)),
            )
            for name, endpoint in broker.endpoints.items()
        ),
        rack=broker.rack,
    )


def _i32(number: int) -> i32:
    """A number of an image, which is not checked again: for thousands of partitions that took longer than the rest."""
    return cast("i32", number)


def _ids(ids: Iterable[int]) -> tuple[i32, ...]:
    return cast("tuple[i32, ...]", tuple(ids))
