"""ElectLeaders v0–2, AlterPartitionReassignments v0–1, ListPartitionReassignments v0: who leads, where replicas are.

Only the controller answers these; other brokers hand them on to it.

ElectLeaders
- Preferred (all of v0) or unclean, for the partitions named, or for all of them (null). Of all, those that need no
  election are not told; one that is named and needs none is told ELECTION_NOT_NEEDED.

AlterPartitionReassignments
- Moves each partition to the brokers given, or stops moving it (null). v1: a request may forbid that the number of
  replicas changes. The answer says that the move has begun.

ListPartitionReassignments
- What is being moved, of the partitions named or of all (null).

An answer is sent when the change is written and this broker acts by it; timeouts are not waited for.

Not implemented: access control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.alter_partition_reassignments.v1 import response as altered
from kio.schema.elect_leaders.v2 import response as elected
from kio.schema.list_partition_reassignments.v0 import response as listed
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from barnabas.broker.throttle import NO_THROTTLE
from barnabas.machines.controller.reassignment import reassignments
from barnabas.machines.controller.requests import ElectLeaders, Reassign
from barnabas.model.errors import ApiError, ErrorCode, InvalidRequest, NotController

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.machines.controller.image import PartitionKey

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def elect_leaders(broker: Broker, request: ElectLeadersRequest, caller: Caller) -> elected.ElectLeadersResponse:
    """Let partitions be led anew."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"Election type {request.election_type} is not known.")
    partitions = None
    if request.topic_partitions is not None:
        partitions = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    unclean = request.election_type == UNCLEAN
    answers = await broker.controller.decide(ElectLeaders("unclean" if unclean else "preferred", partitions))
    await broker.controller.delivered()
    return elected.ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        replica_election_results=tuple(
            elected.ReplicaElectionResult(
                topic=TopicName(topic),
                partition_result=tuple(
                    elected.PartitionResult(partition_id=i32(index), error_code=code, error_message=message)
                    for index, code, message in results
                ),
            )
            for topic, results in _by_topic(answers.items()).items()
        ),
    )


async def alter_partition_reassignments(
    broker: Broker, request: AlterPartitionReassignmentsRequest, caller: Caller
) -> altered.AlterPartitionReassignmentsResponse:
    """Begin to move partitions, or stop it."""
    wanted: dict[PartitionKey, tuple[int, ...] | None] = {
        (topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
        for topic in request.topics
        for each in topic.partitions
    }
    answers = await broker.controller.decide(Reassign(wanted, request.allow_replication_factor_change))
    return altered.AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(
            altered.ReassignableTopicResponse(
                name=TopicName(topic),
                partitions=tuple(
                    altered.ReassignablePartitionResponse(
                        partition_index=i32(index), error_code=code, error_message=message
                    )
                    for index, code, message in results
                ),
            )
            for topic, results in _by_topic(answers.items()).items()
        ),
    )


def _by_topic(answers: Iterable[tuple[object, object]]) -> dict[str, list[tuple[int, ErrorCode, str | None]]]:
    """Per topic, what became of its partitions."""
    topics: dict[str, list[tuple[int, ErrorCode, str | None]]] = {}
    for key, answer in answers:
        assert isinstance(key, tuple)
        topic, index = key
        error = answer if isinstance(answer, ApiError) else None
        result = index, ErrorCode.none if error is None else error.code, None if error is None else str(error)
        topics.setdefault(topic, []).append(result)
    return topics


async def list_partition_reassignments(
    broker: Broker, request: ListPartitionReassignmentsRequest, caller: Caller
) -> listed.ListPartitionReassignmentsResponse:
    """Tell what is being moved."""
    if not broker.controller.is_active:
        raise NotController("Only the controller knows what is being moved.")
    wanted = None
    if request.topics is not None:
        wanted = {str(topic.name): tuple(topic.partition_indexes) for topic in request.topics}
    topics: dict[str, list[listed.OngoingPartitionReassignment]] = {}
    for (topic, index), partition in reassignments(broker.metadata.image, wanted).items():
        topics.setdefault(topic, []).append(
            listed.OngoingPartitionReassignment(
                partition_index=i32(index),
                replicas=tuple(map(BrokerId, partition.replicas)),
                adding_replicas=tuple(map(BrokerId, partition.adding)),
                removing_replicas=tuple(map(BrokerId, partition.removing)),
            )
        )
    return listed.ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            listed.OngoingTopicReassignment(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )
