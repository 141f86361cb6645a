"""FindCoordinator v0–6: which broker coordinates a group or a transactional id.

- A group is coordinated by the leader of one partition of `__consumer_offsets`, a transactional id by that of one of
  `__transaction_state`, found by the hash of the id. The topic is made when it is first needed, and the answer is given
  then; Apache Kafka answers COORDINATOR_NOT_AVAILABLE and lets the client come again.
- Any other kind of key (share groups are one) is an INVALID_REQUEST.
- Up to v3 a request has one key, from v4 on a list of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from barnabas.broker import internal_topics
from barnabas.broker.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.broker.throttle import NO_THROTTLE
from barnabas.model.errors import ApiError, CoordinatorNotAvailable, ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker

GROUP: Final = 0
TRANSACTION: Final = 1
TOPICS: Final = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}


def find_coordinator(
    broker: Broker, request: FindCoordinatorRequest, caller: Caller
) -> FindCoordinatorResponse | Coroutine[None, None, FindCoordinatorResponse]:
    """Name the coordinators; a coroutine when their topic must be made first."""
    topic = TOPICS.get(request.key_type)
    if topic is not None and broker.metadata.topic(topic) is None:
        return _make_first(broker, topic, request, caller)
    return _answer(broker, request, caller)


async def _make_first(
    broker: Broker, topic: str, request: FindCoordinatorRequest, caller: Caller
) -> FindCoordinatorResponse:
    try:
        await internal_topics.make(broker, topic)
    except ApiError as error:
        failure = CoordinatorNotAvailable(f"{topic} cannot be made: {error}")
        return _response([_failed(key, failure) for key in request.coordinator_keys])
    return _answer(broker, request, caller)


def _answer(broker: Broker, request: FindCoordinatorRequest, caller: Caller) -> FindCoordinatorResponse:
    found = []
    for key in request.coordinator_keys:
        try:
            found.append(_find(broker, request.key_type, key, caller))
        except ApiError as error:
            found.append(_failed(key, error))
    return _response(found)


def _find(broker: Broker, kind: int, key: str, caller: Caller) -> Coordinator:
    topic = TOPICS.get(kind)
    if topic is None:
        raise InvalidRequest(f"coordinators of kind {kind} are not known here")
    image = broker.metadata.image
    runtime = broker.groups.runtime if kind == GROUP else broker.transactions.runtime
    number = runtime.partition_for(key)
    partition = None if number is None else image.partition(topic, number)
    leader = None if partition is None else image.brokers.get(partition.leader)
    endpoint = None if leader is None else leader.endpoints.get(caller.listener)
    if leader is None or endpoint is None:
        raise CoordinatorNotAvailable(f"{topic}-{number} has no leader that can be reached: try again")
    return Coordinator(
        key=key,
        node_id=BrokerId(leader.broker_id),
        host=endpoint.host,
        port=i32(endpoint.port),
        error_code=ErrorCode.none,
        error_message=None,
    )


def _failed(key: str, error: ApiError) -> Coordinator:
    return Coordinator(
        key=key, node_id=BrokerId(-1), host="", port=i32(-1), error_code=error.code, error_message=str(error)
    )


def _response(coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=tuple(coordinators))
