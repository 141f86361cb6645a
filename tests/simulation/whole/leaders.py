"""A rule about brokers from within: who leads a partition has all that it knew to be committed.

Clients see a leader that lacks records only if one of them asks it in the moment before the cluster replaces it. So
each broker is watched: when it ceases to lead or to follow a partition, its high watermark is noted, and a log that it
leads later, of the same topic, does not end before that. A topic that may lose records is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.whole import loose

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.app import App
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.model.ids import TopicPartition
    from barnabas.storage.log.log import Log as PartitionLog
    from tests.simulation.whole.history import Log


def watch_leaders(app: App, log: Log, name: str) -> None:
    """Hold a broker that is about to start to the rule, for as long as its process lives."""
    partitions = app.broker.replicas.partitions
    add_leader, remove_leader, remove_follower = (
        partitions.add_leader,
        partitions.remove_leader,
        partitions.remove_follower,
    )
    committed: dict[tuple[TopicPartition, UUID], int] = {}

    def note(of: PartitionLog) -> None:
        key = of.tp, of.topic_id
        committed[key] = max(committed.get(key, 0), of.high_watermark)

    def add(partition: LeaderPartition) -> None:
        known = committed.get((partition.tp, partition.topic_id), 0)
        end = partition.log.log_end_offset
        if end < known and partition.tp.topic != loose.TOPIC:
            epoch = partition.leader.leader_epoch
            log.violate(f"{name} leads {partition.tp} in epoch {epoch} up to {end}, and had {known} committed records")
        add_leader(partition)

    def remove(partition: LeaderPartition) -> None:
        note(partition.log)
        remove_leader(partition)

    def unfollow(tp: TopicPartition) -> None:
        if (follower := partitions.follower(tp)) is not None:
            note(follower.log)
        remove_follower(tp)

    partitions.add_leader, partitions.remove_leader, partitions.remove_follower = add, remove, unfollow  # type: ignore[method-assign]
