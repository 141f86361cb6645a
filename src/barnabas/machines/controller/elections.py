"""Who leads a partition, given which brokers are up.

A leader comes from the in-sync replicas, in the order of the replicas. If none of them is up the partition has no
leader, and its ISR stays as it was: those replicas alone hold all committed records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.machines.controller.image import NO_LEADER, PartitionImage, TopicImage

if TYPE_CHECKING:
    from collections.abc import Collection

NO_STATE = -1
"""As a partition epoch: the partition is assigned, but nothing of its leadership is stored yet."""


def new_partition(index: int, replicas: tuple[int, ...], up: Collection[int]) -> PartitionImage:
    """A partition's first state: everyone that is up is in sync, because there is nothing to have missed.

    If nobody is up it waits for the first replica to come, in no state at all.
    """
    isr = tuple(replica for replica in replicas if replica in up)
    if not isr:
        return PartitionImage(index, NO_LEADER, NO_STATE, replicas, (), NO_STATE)
    return PartitionImage(index, isr[0], 0, replicas, isr)


def elect(partition: PartitionImage, up: frozenset[int]) -> PartitionImage:
    """The partition with the brokers that are up; the same object if nothing is different."""
    if partition.leader in up and up.issuperset(partition.isr):
        return partition
    if partition.partition_epoch == NO_STATE:
        started = new_partition(partition.index, partition.replicas, up)
        if started.partition_epoch == NO_STATE:
            return partition
        return replace(started, adding=partition.adding, removing=partition.removing)
    isr = tuple(replica for replica in partition.isr if replica in up) or partition.isr
    leader = partition.leader
    if leader not in up:
        leader = next((replica for replica in partition.replicas if replica in isr and replica in up), NO_LEADER)
    if leader == partition.leader and isr == partition.isr:
        return partition
    return replace(
        partition,
        leader=leader,
        isr=isr,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def elect_all(topic: TopicImage, up: frozenset[int]) -> TopicImage:
    """A topic's partitions with the brokers that are up; the same object if nothing is different."""
    partitions = tuple(elect(partition, up) for partition in topic.partitions)
    if all(new is old for new, old in zip(partitions, topic.partitions, strict=True)):
        return topic
    return replace(topic, partitions=partitions)
