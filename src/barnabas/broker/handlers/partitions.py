"""ElectLeaders v0–2, AlterPartitionReassignments v0–1, ListPartitionReassignments v0: who leads, where replicas are.

Only the controller answers these; other brokers forward them to it.

ElectLeaders
- Preferred (all of v0) or unclean, for the partitions named, or for all of them (null). Of all,
  only those that needed an election are in the response; one that is named and needs none has ELECTION_NOT_NEEDED.

AlterPartitionReassignments
- Moves each partition to the brokers given, or stops moving it (null). v1: a request may forbid that the number of
  replicas changes. The answer says that the move has begun.

ListPartitionReassignments
- What is being moved, of the partitions named or of all (null).

A response is sent when the change is written and applied by this broker, so the timeouts in requests are not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from kio.schema.alter_partition_reassignments.v1 import response as altered
from kio.schema.elect_leaders.v2 import response as elected
from kio.schema.list_partition_reassignments.v0 import response as listed
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from barnabas.broker.serving.long_answers import portions
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.controller.reassignment import reassignments
from barnabas.machines.controller.requests import ElectLeaders, Reassign
from barnabas.model.errors import ApiError, ErrorCode, InvalidRequest, NotController

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import PartitionKey
    from barnabas.machines.controller.machine import Answer, Key
    from barnabas.machines.controller.requests import Request

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def elect_leaders(
    broker: BrokerContext, request: ElectLeadersRequest, caller: Caller
) -> elected.ElectLeadersResponse:
    """Elect leaders."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"Unknown election type {request.election_type}.")
    partitions = None
    if request.topic_partitions is not None:
        partitions = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    unclean = request.election_type == UNCLEAN
    kind: Literal["unclean", "preferred"] = "unclean" if unclean else "preferred"
    if partitions is None:
        answers = await broker.controller.decide(ElectLeaders(kind, None))
    else:
        answers = await _decide_each(broker, [ElectLeaders(kind, some) for some in portions(partitions) or [()]])
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
    broker: BrokerContext, request: AlterPartitionReassignmentsRequest, caller: Caller
) -> altered.AlterPartitionReassignmentsResponse:
    """Start or cancel reassignments."""
    wanted: dict[PartitionKey, tuple[int, ...] | None] = {
        (topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
        for topic in request.topics
        for each in topic.partitions
    }
    may_change = request.allow_replication_factor_change
    answers = await _decide_each(
        broker, [Reassign(dict(some), may_change) for some in portions(list(wanted.items())) or [()]]
    )
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


async def _decide_each(broker: BrokerContext, requests: Iterable[Request]) -> dict[Key, Answer]:
    """The controller's answers to portions of one request; each partition is decided on its own."""
    answers: dict[Key, Answer] = {}
    for request in requests:
        answers |= await broker.controller.decide(request)
    return answers


def _by_topic(answers: Iterable[tuple[object, object]]) -> dict[str, list[tuple[int, ErrorCode, str | None]]]:
    """The results, by topic."""
    topics: dict[str, list[tuple[int, ErrorCode, str | None]]] = {}
    for key, answer in answers:
        assert isinstance(key, tuple)
        topic, index = key
        error = answer if isinstance(answer, ApiError) else None
        result = index, ErrorCode.none if error is None else error.code, None if error is None else str(error)
        topics.setdefault(topic, []).append(result)
    return topics


async def list_partition_reassignments(
    broker: BrokerContext, request: ListPartitionReassignmentsRequest, caller: Caller
) -> listed.ListPartitionReassignmentsResponse:
    """List reassignments in progress."""
    if not broker.controller.is_active:
        raise NotController("This broker is not the controller, which knows the reassignments.")
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
