"""DescribeCluster v0–2: the brokers, the controller and the cluster's id. UnregisterBroker v0: forget a broker.

DescribeCluster

- Brokers are told by the address of the listener that the caller came in on.
- v1+: asked for controllers instead of brokers, it answers MISMATCHED_ENDPOINT_TYPE: every broker can be the
  controller, and none is only that.
- v2: fenced brokers can be asked for: those that are away and not forgotten, as the metadata tree has them.

UnregisterBroker
- Only the controller answers; other brokers hand the request on to it.
- A broker that is up is refused (INVALID_REQUEST), since it would register again; one that nobody knows has
  BROKER_ID_NOT_REGISTERED. Replicas that a forgotten broker has stay assigned to it until they are moved.

Not implemented: access control (everything is authorized).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.primitive import i32

from barnabas.broker.throttle import NO_THROTTLE
from barnabas.machines.acls import CLUSTER_OPERATIONS
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.controller.requests import ForgetBroker
from barnabas.metadata.loading import load_known_brokers
from barnabas.metadata.store import StoreError
from barnabas.model.errors import ApiError, ErrorCode, RequestTimedOut
from barnabas.protocol.metadata import NOT_ASKED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.machines.controller.image import BrokerImage

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def describe_cluster(broker: Broker, request: DescribeClusterRequest, caller: Caller) -> DescribeClusterResponse:
    """Tell who is there."""
    if request.endpoint_type == CONTROLLERS:
        return _refusal(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return _refusal(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {request.endpoint_type}")
    image = broker.metadata.image
    known = {**await _known(broker), **image.brokers} if request.include_fenced_brokers else image.brokers
    brokers = tuple(
        DescribeClusterBroker(
            broker_id=BrokerId(broker_id),
            host=endpoint.host,
            port=i32(endpoint.port),
            rack=each.rack,
            is_fenced=broker_id not in image.brokers,
        )
        for broker_id, each in sorted(known.items())
        if (endpoint := each.endpoints.get(caller.listener)) is not None
    )
    told = {each.broker_id for each in brokers}
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        cluster_id=image.cluster_id,
        controller_id=BrokerId(image.controller_id if image.controller_id in told else NO_LEADER),
        brokers=brokers,
        cluster_authorized_operations=(
            i32(CLUSTER_OPERATIONS) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _known(broker: Broker) -> Mapping[int, BrokerImage]:
    try:
        return await load_known_brokers(broker.controller.store)
    except StoreError as error:
        raise RequestTimedOut(f"the metadata store does not tell which brokers are known: {error}") from error


async def unregister_broker(
    broker: Broker, request: UnregisterBrokerRequest, caller: Caller
) -> UnregisterBrokerResponse:
    """Forget a broker that is away."""
    answer = (await broker.controller.decide(ForgetBroker(request.broker_id)))[request.broker_id]
    return UnregisterBrokerResponse(
        throttle_time=NO_THROTTLE,
        error_code=answer.code if isinstance(answer, ApiError) else ErrorCode.none,
        error_message=str(answer) if isinstance(answer, ApiError) else None,
    )


def _refusal(error: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE, error_code=error, error_message=message, cluster_id="", brokers=()
    )
