"""AlterPartition: a leader asks that a partition's ISR become another.

It names the leadership that it acts in and the version of the state that it acts on. If either is not the current one
it is refused, and learns what is from the controller's messages. Whoever is to be in sync must be up, and be the same
registration that caught up: a broker that restarted meanwhile may have lost what it had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.model.errors import (
    ApiError,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
)

if TYPE_CHECKING:
    from barnabas.machines.controller.decision import Decision
    from barnabas.machines.controller.image import ClusterImage, PartitionImage
    from barnabas.machines.controller.requests import AlterIsr, IsrChange

_ANY_EPOCH = -1


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
    """Refuse a broker that has registered again since, or is not registered."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise StaleBrokerEpoch(f"Broker {broker_id} is not registered.")
    if broker.epoch != broker_epoch:
        raise StaleBrokerEpoch(f"Broker {broker_id} is registered with epoch {broker.epoch}, not {broker_epoch}.")


def alter_isr(decision: Decision, request: AlterIsr) -> None:
    """Decide each change on its own; a stale broker is refused in all of them."""
    for change in request.partitions:
        key = change.topic_id, change.index
        try:
            check_broker_epoch(decision.image, request.broker_id, request.broker_epoch)
            decision.answers[key] = _altered(decision, request.broker_id, change)
        except ApiError as error:
            decision.answers[key] = error


def _altered(decision: Decision, broker_id: int, change: IsrChange) -> PartitionImage | ApiError:
    topic = decision.image.topic_by_id(change.topic_id)
    if topic is None:
        raise UnknownTopicId(f"No topic has the id {change.topic_id}.")
    partition = decision.find(topic.name, change.index)
    _check_epochs(partition, broker_id, change)
    _check_members(decision, topic.name, partition, change)
    live = decision.live(topic.name, change.index)
    after = decision.settle(topic.name, partition, replace(partition, isr=change.isr), live, by_leader=True)
    if after.leader != partition.leader:
        return NewLeaderElected(f"{topic.name}-{change.index} has moved, and is led by broker {after.leader} now.")
    return after


def _check_epochs(partition: PartitionImage, broker_id: int, change: IsrChange) -> None:
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        raise NotController("The leader knows a newer state than this broker, which is no longer the controller.")
    if change.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"The leader epoch is {partition.leader_epoch}, not {change.leader_epoch}.")
    if broker_id != partition.leader:
        raise InvalidRequest(f"Broker {partition.leader} leads the partition, not {broker_id}.")
    if change.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersion(f"The partition epoch is {partition.partition_epoch}, not {change.partition_epoch}.")


def _check_members(decision: Decision, topic: str, partition: PartitionImage, change: IsrChange) -> None:
    isr = change.isr
    if len(set(isr)) < len(isr) or not set(partition.replicas).issuperset(isr) or partition.leader not in isr:
        raise InvalidRequest(f"{list(isr)} cannot be in sync: replicas are {list(partition.replicas)}.")
    image, up = decision.image, decision.live(topic, partition.index).up
    epochs = change.broker_epochs or (_ANY_EPOCH,) * len(isr)
    for replica, epoch in zip(isr, epochs, strict=True):
        if replica == partition.leader:
            continue
        if replica not in up:
            raise IneligibleReplica(f"Broker {replica} is not up.")
        if replica in image.leaving:
            raise IneligibleReplica(f"Broker {replica} is about to stop.")
        if epoch not in (_ANY_EPOCH, image.brokers[replica].epoch):
            raise IneligibleReplica(f"Broker {replica} has registered again since it caught up.")
