"""FindCoordinator v0–6: which broker coordinates a group, a transactional id or a share partition.

- A group is coordinated by the leader of one partition of `__consumer_offsets`, a transactional id by that of one of
  `__transaction_state`, a share partition (v6+) by that of one of `__share_group_state`, found by the hash of the key.
  The topic is made when it is first needed, and the answer is given then; Apache Kafka answers
  COORDINATOR_NOT_AVAILABLE and lets the client come again.
- The key of a share partition is group:topicId:partition. Another form, and any other kind of key, is an
  INVALID_REQUEST.
- Up to v3 a request has one key, from v4 on a list of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from barnabas.broker.coordinators import internal_topics
from barnabas.broker.coordinators.shares import key_of
from barnabas.broker.serving.long_answers import PART
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.model.errors import ApiError, CoordinatorNotAvailable, ErrorCode, InvalidRequest
from barnabas.model.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.runtime import Runtime
    from barnabas.broker.serving.caller import Caller

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
SHARE_SINCE: Final = 6
"""The version from which on share partitions have coordinators."""
TOPICS: Final = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE, SHARE: SHARE_GROUP_STATE}


def find_coordinator(
    broker: BrokerContext, request: FindCoordinatorRequest, caller: Caller, version: int
) -> FindCoordinatorResponse | Coroutine[None, None, FindCoordinatorResponse]:
    """Name the coordinators; a coroutine when their topic must be created first, or when there are many."""
    if request.key_type == SHARE and version < SHARE_SINCE:
        old = InvalidRequest(f"Share partitions are found from version {SHARE_SINCE} of FindCoordinator on.")
        return _response([_failure(key, old) for key in request.coordinator_keys])
    topic = TOPICS.get(request.key_type)
    if topic is not None and broker.metadata.topic(topic) is None:
        return _create_topic_first(broker, topic, request, caller)
    if len(request.coordinator_keys) > PART:
        return _answer_in_parts(broker, request, caller)
    return _response([_find_or_failure(broker, request.key_type, key, caller) for key in request.coordinator_keys])


async def _create_topic_first(
    broker: BrokerContext, topic: str, request: FindCoordinatorRequest, caller: Caller
) -> FindCoordinatorResponse:
    try:
        await internal_topics.make(broker, topic)
    except ApiError as error:
        failure = CoordinatorNotAvailable(f"{topic} cannot be created: {error}")
        return _response([_failure(key, failure) for key in request.coordinator_keys])
    return await _answer_in_parts(broker, request, caller)


async def _answer_in_parts(
    broker: BrokerContext, request: FindCoordinatorRequest, caller: Caller
) -> FindCoordinatorResponse:
    kind = request.key_type
    each = broker.long_answers.each
    return _response(await each(request.coordinator_keys, lambda key: _find_or_failure(broker, kind, key, caller)))


def _find_or_failure(broker: BrokerContext, kind: int, key: str, caller: Caller) -> Coordinator:
    try:
        return _find(broker, kind, key, caller)
    except ApiError as error:
        return _failure(key, error)


def _find(broker: BrokerContext, kind: int, key: str, caller: Caller) -> Coordinator:
    topic = TOPICS.get(kind)
    if topic is None:
        raise InvalidRequest(
            f"There is no coordinator for key type {kind}; it should be 0 (group), 1 (transaction) or 2."
        )
    if kind == SHARE:
        key_of(key)
    image = broker.metadata.image
    number = _RUNTIMES[kind](broker).partition_for(key)
    partition = None if number is None else image.partition(topic, number)
    leader = None if partition is None else image.brokers.get(partition.leader)
    endpoint = None if leader is None else leader.endpoints.get(caller.listener)
    if leader is None or endpoint is None:
        raise CoordinatorNotAvailable(f"{topic}-{number} has no leader on this listener. Try again.")
    return Coordinator(
        key=key,
        node_id=BrokerId(leader.broker_id),
        host=endpoint.host,
        port=i32(endpoint.port),
        error_code=ErrorCode.none,
        error_message=None,
    )


_RUNTIMES: Final[dict[int, Callable[[BrokerContext], Runtime[Any]]]] = {
    GROUP: lambda broker: broker.groups.runtime,
    TRANSACTION: lambda broker: broker.transactions.runtime,
    SHARE: lambda broker: broker.share_coordinators.runtime,
}


def _failure(key: str, error: ApiError) -> Coordinator:
    return Coordinator(
        key=key, node_id=BrokerId(-1), host="", port=i32(-1), error_code=error.code, error_message=str(error)
    )


def _response(coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=tuple(coordinators))
