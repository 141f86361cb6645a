"""From messages to images: a broker applies the metadata updates of the controller.

A message is applied to the image that the broker has. Partitions that it names replace those known before if their
epochs are higher: every write raises one, so what has the same epochs is the same. A full message has everything: what
it does not name does not exist. Configuration and feature levels come from the metadata tree itself, so they stay as
they are, but for those of topics that are gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.machines.controller.image import (
    DELETED,
    NO_LEADER,
    BrokerImage,
    ConfigResource,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from barnabas.model.errors import InvalidRequest
from barnabas.model.ids import NO_ID
from barnabas.protocol.messages.inter_broker import FULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from barnabas.machines.controller.image import ClusterImage, PartitionKey
    from barnabas.protocol.messages.inter_broker import (
        LeaderAndIsrPartitionState,
        LeaderAndIsrRequest,
        StopReplicaRequest,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
    )

MOST_PARTITIONS: Final = 1 << 20
"""Of a topic; more are a mistake, and would take the memory of all up to the last."""
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def updated(image: ClusterImage, request: UpdateMetadataRequest) -> ClusterImage:
    """The image after UpdateMetadata: brokers that are up, and partitions for clients."""
    named: dict[str, TopicImage | None] = {}
    for state in request.topic_states:
        if any(partition.leader == DELETED for partition in state.partition_states):
            named[state.topic_name] = None
            continue
        known = named[state.topic_name] if state.topic_name in named else image.topics.get(state.topic_name)
        partitions = [_from_update(partition) for partition in state.partition_states]
        named[state.topic_name] = _merged(known, state.topic_name, state.topic_id or NO_ID, partitions)
    brokers: dict[int, BrokerImage] = {
        broker.id: _broker(broker, image.brokers.get(broker.id)) for broker in request.live_brokers
    }
    return replace(
        _with_topics(image, {**dict.fromkeys(image.topics if request.type == FULL else ()), **named}),
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        brokers=image.brokers if brokers == image.brokers else brokers,
        failed=_failed(image, request),
    )


def _failed(image: ClusterImage, request: UpdateMetadataRequest) -> Mapping[int, frozenset[PartitionKey]]:
    """Replicas that are offline although their broker is up: their log directories have failed."""
    offline: dict[int, set[PartitionKey]] = {broker.id: set() for broker in request.live_brokers}
    for state in request.topic_states:
        for partition in state.partition_states:
            for broker_id in partition.offline_replicas:
                if broker_id in offline:
                    offline[broker_id].add((state.topic_name, partition.partition_index))
    if request.type != FULL and image.failed:
        sent = {
            (state.topic_name, each.partition_index)
            for state in request.topic_states
            for each in state.partition_states
        }
        for holder, found in offline.items():
            found |= image.failed.get(holder, frozenset()) - sent
    return {holder: frozenset(found) for holder, found in offline.items() if found}


def led(image: ClusterImage, request: LeaderAndIsrRequest) -> ClusterImage:
    """The image after LeaderAndIsr: the partitions that this broker has a replica of."""
    topics: dict[str, TopicImage | None] = {}
    for state in request.topic_states:
        known = topics.get(state.topic_name, image.topics.get(state.topic_name))
        partitions = [_from_leadership(partition) for partition in state.partition_states]
        topics[state.topic_name] = _merged(known, state.topic_name, state.topic_id or NO_ID, partitions)
    return replace(
        _with_topics(image, topics), controller_id=request.controller_id, controller_epoch=request.controller_epoch
    )


def stopped(image: ClusterImage, request: StopReplicaRequest, broker_id: int) -> ClusterImage:
    """The image after StopReplica: this broker has no replica of these partitions, unless the image is newer.

    Which brokers have them is said by the next message that names them. It counts whatever its epochs are.
    """
    topics: dict[str, TopicImage | None] = {}
    for state in request.topic_states:
        if (known := topics.get(state.topic_name, image.topics.get(state.topic_name))) is None:
            continue
        epochs: dict[int, int] = {
            each.partition_index: each.leader_epoch for each in state.partition_states if each.delete_partition
        }
        partitions = tuple(
            _without(each, broker_id)
            if broker_id in each.replicas and each.leader_epoch <= epochs.get(each.index, -1)
            else each
            for each in known.partitions
        )
        if partitions != known.partitions:
            topics[state.topic_name] = replace(known, partitions=partitions)
    return image.with_topics(topics)


def _without(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """A partition without the replica of this broker, older than whatever the controller says of it next."""
    return replace(
        partition,
        leader=NO_LEADER if partition.leader == broker_id else partition.leader,
        replicas=tuple(each for each in partition.replicas if each != broker_id),
        isr=tuple(each for each in partition.isr if each != broker_id),
        partition_epoch=-1,
    )


def _merged(known: TopicImage | None, name: str, topic_id: UUID, partitions: Iterable[PartitionImage]) -> TopicImage:
    """A topic with these partitions instead of older ones; a topic made anew under its name has nothing of the old."""
    merged: dict[int, PartitionImage] = {}
    if known is not None and known.topic_id == topic_id:
        merged = {partition.index: partition for partition in known.partitions}
    for partition in partitions:
        before = merged.get(partition.index)
        if before is None or _age(partition) > _age(before):
            merged[partition.index] = partition
    if max(merged, default=0) > MOST_PARTITIONS or min(merged, default=0) < 0:
        raise InvalidRequest(f"Topic {name} cannot have partitions {min(merged)} to {max(merged)}.")
    ordered = [merged.get(index) for index in range(max(merged, default=-1) + 1)]
    complete = tuple(
        partition if partition is not None else PartitionImage(index, -1, -1, (), (), -1)
        for index, partition in enumerate(ordered)
    )
    if known is not None and known.topic_id == topic_id and complete == known.partitions:
        return known
    return TopicImage(name, topic_id, complete)


def _age(partition: PartitionImage) -> tuple[int, int]:
    return partition.leader_epoch, partition.partition_epoch


def _from_update(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        state.zk_version,
    )


def _from_leadership(state: LeaderAndIsrPartitionState) -> PartitionImage:
    return PartitionImage(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        state.partition_epoch,
        tuple(state.adding_replicas),
        tuple(state.removing_replicas),
    )


def _broker(broker: Any, known: BrokerImage | None) -> BrokerImage:
    endpoints = {
        each.listener: Endpoint(each.host, each.port, _security_protocol(each.security_protocol))
        for each in broker.endpoints
    }
    if known is not None and dict(known.endpoints) == endpoints and known.rack == broker.rack:
        return known
    return BrokerImage(
        broker_id=broker.id,
        epoch=-1 if known is None else known.epoch,
        endpoints=endpoints,
        rack=broker.rack,
        features={} if known is None else known.features,
    )


def _security_protocol(number: int) -> str:
    if not 0 <= number < len(SECURITY_PROTOCOLS):
        raise InvalidRequest(f"There is no security protocol {number}.")
    return SECURITY_PROTOCOLS[number]


def _with_topics(image: ClusterImage, changes: Mapping[str, TopicImage | None]) -> ClusterImage:
    """The image with these topics; the settings of one that is gone are gone, too."""
    gone: dict[ConfigResource, None] = {
        ConfigResource.topic(name): None for name, topic in changes.items() if topic is None
    }
    return image.with_topics(changes).with_configs(gone)
