"""All checks of CreateTopics and CreatePartitions, but for configs. Each function decides one topic, and may raise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.machines.controller.elections import new_partition
from barnabas.machines.controller.image import TopicImage
from barnabas.machines.controller.names import check_name
from barnabas.machines.controller.placement import place, ring
from barnabas.machines.controller.requests import DEFAULT, NewPartitions, TopicToCreate
from barnabas.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    PolicyViolation,
)
from barnabas.model.internal_topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from barnabas.machines.controller.image import BrokerImage

MAX_PARTITIONS_PER_REQUEST = 10_000

_KRAFT_TOPIC = "__cluster_metadata"


class TopicDefaults(NamedTuple):
    """What a topic gets that leaves it open."""

    partitions: int = 1
    """num.partitions."""
    replication_factor: int = 1
    """default.replication.factor."""
    unclean_elections: bool = False
    """unclean.leader.election.enable, as the broker's own settings have it."""


def check_new_name(name: str) -> None:
    """Refuse names that no topic may have."""
    check_name(name)
    if name == _KRAFT_TOPIC:
        raise InvalidRequest(f"Creation of internal topic {name} is prohibited.")


def check_may_grow(name: str) -> None:
    """Refuse more partitions of an internal topic: the number of partitions decides which one has a key."""
    if name in INTERNAL_TOPICS:
        raise InvalidRequest(
            f"Topic {name} cannot have more partitions: their number decides in which partition a group or a "
            "transactional id is kept."
        )


def check_partition_limit(partitions: Iterable[int]) -> None:
    """One request may not ask for more partitions than a broker can make in reasonable time."""
    if sum(partitions) > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolation("Excessively large number of partitions per request.")


def requested_partitions(topic: TopicToCreate, defaults: TopicDefaults) -> int:
    """How many partitions a new topic would have; never negative, whatever was asked."""
    if topic.assignments:
        return len(topic.assignments)
    return defaults.partitions if topic.partitions == DEFAULT else max(0, topic.partitions)


def new_topic(
    topic: TopicToCreate,
    topic_id: UUID,
    brokers: Mapping[int, BrokerImage],
    up: Collection[int],
    defaults: TopicDefaults,
    turn: int,
) -> TopicImage:
    """A topic with all of its partitions; the first is led by whose turn it is, and everyone leads who is `up`."""
    replicas = _manual(topic, brokers, up) if topic.assignments else _placed(topic, brokers, up, defaults, turn)
    return TopicImage(
        topic.name, topic_id, tuple(new_partition(index, chosen, up) for index, chosen in enumerate(replicas))
    )


def _placed(
    topic: TopicToCreate, brokers: Mapping[int, BrokerImage], up: Collection[int], defaults: TopicDefaults, turn: int
) -> list[tuple[int, ...]]:
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    if topic.partitions < DEFAULT or topic.partitions == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    factor = defaults.replication_factor if topic.replication_factor == DEFAULT else topic.replication_factor
    return place(_racks(brokers), turn, range(requested_partitions(topic, defaults)), factor, up=up)


def _manual(topic: TopicToCreate, brokers: Mapping[int, BrokerImage], up: Collection[int]) -> list[tuple[int, ...]]:
    if topic.replication_factor != DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.partitions != DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    replicas: dict[int, tuple[int, ...]] = {}
    factor = None
    for index, chosen in topic.assignments:
        if index in replicas:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {index}")
        replicas[index] = check_assignment(chosen, brokers, factor)
        _check_one_is_up(index, chosen, up)
        factor = len(chosen)
    if replicas.keys() != set(range(len(replicas))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return [replicas[index] for index in range(len(replicas))]


def more_partitions(
    topic: TopicImage, request: NewPartitions, brokers: Mapping[int, BrokerImage], up: Collection[int]
) -> TopicImage:
    """The topic with as many partitions as asked for; those it has stay as they are."""
    present = len(topic.partitions)
    if request.count == present:
        raise InvalidPartitions(f"Topic already has {present} partition(s).")
    if request.count < present:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {present} partition(s); {request.count} would not be an increase."
        )
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        racks = _racks(brokers)
        first = _turn_of(topic.partitions[0].replicas[0], {broker: racks[broker] for broker in up})
        replicas = place(racks, first, range(present, request.count), factor, up=up)
    else:
        added = request.count - present
        if len(request.assignments) != added:
            raise InvalidReplicaAssignment(
                f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} "
                "assignment(s) were specified."
            )
        replicas = [check_assignment(chosen, brokers, factor) for chosen in request.assignments]
        for index, chosen in enumerate(replicas, present):
            _check_one_is_up(index, chosen, up)
    new = tuple(new_partition(present + index, chosen, up) for index, chosen in enumerate(replicas))
    return replace(topic, partitions=topic.partitions + new)


def _turn_of(leader: int, racks: Mapping[int, str | None]) -> int:
    """From where a topic's leaders were dealt out, so that added partitions go on in turn."""
    order = ring(racks)
    return order.index(leader) if leader in order else 0


def check_assignment(
    chosen: Sequence[int], brokers: Mapping[int, BrokerImage], factor: int | None = None
) -> tuple[int, ...]:
    """A manual assignment of one partition, if it can be used. Raises InvalidReplicaAssignment."""
    if not chosen:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    for broker in sorted(chosen):
        if broker not in brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if chosen.count(broker) > 1:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
    if factor is not None and len(chosen) != factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(chosen)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    return tuple(chosen)


def _check_one_is_up(index: int, chosen: Sequence[int], up: Collection[int]) -> None:
    if not any(broker in up for broker in chosen):
        raise InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )


def _racks(brokers: Mapping[int, BrokerImage]) -> dict[int, str | None]:
    return {broker.broker_id: broker.rack for broker in brokers.values()}
