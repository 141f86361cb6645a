"""AlterPartitionReassignments and what ListPartitionReassignments shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.controller.elections import NO_STATE, new_partition
from barnabas.machines.controller.replica_sets import begun, cancelled
from barnabas.machines.controller.topics import check_assignment
from barnabas.model.errors import ApiError, InvalidReplicationFactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.machines.controller.decision import Decision
    from barnabas.machines.controller.image import ClusterImage, PartitionImage, PartitionKey
    from barnabas.machines.controller.requests import Reassign


def reassign(decision: Decision, request: Reassign) -> None:
    """Decide for each partition on its own; the answer is the partition as it is then."""
    for (topic, index), target in request.partitions.items():
        try:
            partition = decision.find(topic, index)
            live = decision.live(topic, index)
            if target is None:
                wanted = cancelled(partition, unclean=live.unclean)
            else:
                check_assignment(target, decision.image.assignable)
                if not request.allow_replication_factor_change:
                    _check_factor(partition, target)
                wanted = begun(partition, target)
            if partition.partition_epoch == NO_STATE:
                after = new_partition(index, target or wanted.replicas, live.up)
                decision.put(topic, after)
            else:
                after = decision.settle(topic, partition, wanted, live)
            decision.answers[topic, index] = after
        except ApiError as error:
            decision.answers[topic, index] = error


def _check_factor(partition: PartitionImage, target: Sequence[int]) -> None:
    factor = len(partition.replicas) - len(partition.removing)
    if len(target) != factor:
        raise InvalidReplicationFactor(f"The replication factor is changed from {factor} to {len(target)}")


def reassignments(
    image: ClusterImage, wanted: Mapping[str, Iterable[int]] | None = None
) -> dict[PartitionKey, PartitionImage]:
    """Partitions that are being moved: of all, or of those asked for; what is not there is not moved either."""
    if wanted is None:
        topics = [topic for topic in image.topics.values() if any(each.is_reassigned for each in topic.partitions)]
        wanted = {topic.name: range(len(topic.partitions)) for topic in topics}
    found = {(topic, index): image.partition(topic, index) for topic, indexes in wanted.items() for index in indexes}
    return {key: partition for key, partition in found.items() if partition is not None and partition.is_reassigned}
