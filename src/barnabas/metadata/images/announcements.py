"""From images to messages: the metadata updates that a controller sends one broker.

`updates` goes the other way. A message has what differs from the image that the broker has acknowledged; without one,
or after a message whose answer was lost, it has everything (type FULL), and what it does not name does not exist.

    StopReplica      the partitions that the broker has no replica of any more; first, while it knows the old ones
    LeaderAndIsr     those that it has one of
    UpdateMetadata   all partitions, and the brokers that are up
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from kio.static.primitive import i8, i16, i32, i64

from barnabas.metadata.images.cache import difference
from barnabas.metadata.images.updates import DELETED, SECURITY_PROTOCOLS
from barnabas.protocol.messages import inter_broker
from barnabas.protocol.messages.inter_broker import FULL, INCREMENTAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

    from barnabas.machines.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage

Announcement = inter_broker.LeaderAndIsrRequest | inter_broker.StopReplicaRequest | inter_broker.UpdateMetadataRequest


class _Changed(NamedTuple):
    """A topic as it is now, and its partitions that are new or not what they were; each topic is there once."""

    topic: TopicImage
    partitions: tuple[PartitionImage, ...]


def announcements(before: ClusterImage | None, after: ClusterImage, broker: BrokerImage) -> Iterator[Announcement]:
    """The messages, in order, for a broker that knows `before`; none if nothing has changed."""
    if before is None:
        changed = [_Changed(topic, topic.partitions) for topic in after.topics.values()]
        yield _leadership(changed, after, broker, FULL)
        yield _metadata(changed, (), after, broker, FULL)
        return
    delta = difference(before, after)
    changed = [_Changed(topic, topic.partitions) for topic in delta.created]
    disks = _other_disks(before, after)
    created = {topic.name for topic in delta.created}
    touched = {topic.name: topic for topic in delta.changed} | {name: after.topics[name] for name in disks}
    changed += [
        _Changed(topic, _differing(before.topics[name], topic, disks.get(name, frozenset())))
        for name, topic in touched.items()
        if name not in created
    ]
    hosted = [each for each in changed if any(broker.broker_id in found.replicas for found in each.partitions)]
    stopped = list(_stopped(before, changed, delta.deleted, broker.broker_id))
    if stopped:
        yield inter_broker.StopReplicaRequest(
            controller_id=i32(after.controller_id),
            controller_epoch=i32(after.controller_epoch),
            broker_epoch=i64(broker.epoch),
            topic_states=tuple(stopped),
        )
    if hosted:
        yield _leadership(hosted, after, broker, INCREMENTAL)
    if changed or delta.deleted or _members(before) != _members(after):
        yield _metadata(changed, delta.deleted, after, broker, INCREMENTAL)


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
    changed: Iterable[_Changed], image: ClusterImage, broker: BrokerImage, kind: i8
) -> inter_broker.LeaderAndIsrRequest:
    hosted = [
        _Changed(topic, tuple(each for each in partitions if broker.broker_id in each.replicas))
        for topic, partitions in changed
    ]
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
            if partitions
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


def _stopped(
    before: ClusterImage, changed: Iterable[_Changed], deleted: Iterable[TopicImage], broker_id: int
) -> Iterator[inter_broker.StopReplicaTopicState]:
    """Replicas that are the broker's no more; their data goes."""
    for topic in deleted:
        gone = [each for each in topic.partitions if broker_id in each.replicas]
        if gone:
            yield _stop(topic.name, gone)
    for topic, partitions in changed:
        moved = [
            each
            for each in partitions
            if broker_id not in each.replicas
            and (known := before.partition(topic.name, each.index)) is not None
            and broker_id in known.replicas
            and before.topics[topic.name].topic_id == topic.topic_id
        ]
        if moved:
            yield _stop(topic.name, moved)


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
    changed: Iterable[_Changed], deleted: Iterable[TopicImage], image: ClusterImage, broker: BrokerImage, kind: i8
) -> inter_broker.UpdateMetadataRequest:
    """Deleted topics come first: one made again under its old name is named twice."""
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
        broker_epoch=i64(broker.epoch),
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
