"""Elections by hand and for balance.

A preferred election gives a partition back to its first replica. An unclean one gives a partition without a leader to
a replica that is not in sync, which loses the records that only other replicas have. `balance` asks for preferred
elections where too many partitions of a broker are led by others, for instance after it was down.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.machines.controller.elections import NO_STATE
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.controller.requests import ElectLeaders
from barnabas.model.errors import (
    ApiError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
)

if TYPE_CHECKING:
    from barnabas.machines.controller.decision import Decision
    from barnabas.machines.controller.image import ClusterImage, PartitionImage, PartitionKey


def elect_leaders(decision: Decision, request: ElectLeaders) -> None:
    """Decide for each partition on its own."""
    unclean = request.kind == "unclean"
    if request.partitions is None:
        keys = [(topic, partition.index) for topic, partition in decision.partitions()]
    else:
        keys = list(dict.fromkeys(request.partitions))
    for topic, index in keys:
        try:
            decision.answers[topic, index] = _elect(decision, topic, index, unclean=unclean)
        except ElectionNotNeeded as error:
            if request.partitions is not None:
                decision.answers[topic, index] = error
        except ApiError as error:
            decision.answers[topic, index] = error


def _elect(decision: Decision, topic: str, index: int, *, unclean: bool) -> PartitionImage:
    partition = decision.find(topic, index)
    if partition.leader != NO_LEADER and (unclean or partition.leader == partition.replicas[0]):
        raise ElectionNotNeeded("Leader election not needed for topic partition.")
    live = decision.live(topic, index, unclean=unclean, preferred=not unclean)
    after = partition
    if partition.partition_epoch != NO_STATE:
        after = decision.settle(topic, partition, partition, live)
    if after.leader == partition.leader:
        if unclean:
            raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")
        raise PreferredLeaderNotAvailable("The preferred leader was not available.")
    return after


def elect_where_allowed(decision: Decision) -> None:
    """Give leaders to partitions without one, now that an unclean election may be allowed."""
    for topic, partition in list(decision.partitions()):
        if partition.leader == NO_LEADER and partition.partition_epoch != NO_STATE:
            decision.settle(topic, partition, partition, decision.live(topic, partition.index))


def balance(image: ClusterImage, percentage: int) -> ElectLeaders | None:
    """Preferred elections for every broker that lacks more than `percentage` of what it should lead; None if none does.

    Partitions that are being moved, and those whose first replica cannot lead, stay as they are.
    """
    should_lead: Counter[int] = Counter()
    led_by_others: dict[int, list[PartitionKey]] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            first = partition.replicas[0]
            should_lead[first] += 1
            if partition.leader != first:
                led_by_others.setdefault(first, []).append((topic.name, partition.index))
    due = [
        key
        for broker, keys in led_by_others.items()
        if broker in image.brokers
        and broker not in image.leaving
        and len(keys) * 100 > percentage * should_lead[broker]
        for key in keys
        if _may_go_back(image, broker, key)
    ]
    return ElectLeaders("preferred", tuple(due)) if due else None


def _may_go_back(image: ClusterImage, broker: int, key: PartitionKey) -> bool:
    partition = image.partition(*key)
    return (
        partition is not None
        and not partition.is_reassigned
        and broker in partition.isr
        and key not in image.failed.get(broker, ())
    )
