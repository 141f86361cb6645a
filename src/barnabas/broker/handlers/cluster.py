"""DescribeCluster v0–2: the brokers, the controller and the cluster's id. UnregisterBroker v0: remove a broker.

DescribeCluster

- A broker's address is the one of the listener that the caller is connected to.
- v1+: asked for controllers instead of brokers, it answers MISMATCHED_ENDPOINT_TYPE: every broker can be the
  controller, and none is only that.
- v2: a request can include fenced brokers: those that are down and were not unregistered.

UnregisterBroker
- Only the controller answers; other brokers forward the request to it.
- A broker that is up is refused (INVALID_REQUEST), since it would register again; an unknown one has
  BROKER_ID_NOT_REGISTERED. Replicas of an unregistered broker stay assigned to it until they are reassigned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.primitive import i32

from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.controller.requests import ForgetBroker
from barnabas.machines.security.acls import CLUSTER_OPERATIONS
from barnabas.metadata.images.loading import load_known_brokers
from barnabas.metadata.stores.store import StoreError
from barnabas.model.errors import ApiError, ErrorCode, RequestTimedOut
from barnabas.protocol.messages.metadata import NOT_ASKED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import BrokerImage

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def describe_cluster(
    broker: BrokerContext, request: DescribeClusterRequest, caller: Caller
) -> DescribeClusterResponse:
    """Describe the brokers and the controller."""
    if request.endpoint_type == CONTROLLERS:
        return _refusal(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return _refusal(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {request.endpoint_type}")
    image = broker.metadata.image
    known = {**await _load_known_brokers(broker), **image.brokers} if request.include_fenced_brokers else image.brokers
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
    listed = {each.broker_id for each in brokers}
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        cluster_id=image.cluster_id,
        controller_id=BrokerId(image.controller_id if image.controller_id in listed else NO_LEADER),
        brokers=brokers,
        cluster_authorized_operations=(
            i32(CLUSTER_OPERATIONS) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _load_known_brokers(broker: BrokerContext) -> Mapping[int, BrokerImage]:
    try:
        return await load_known_brokers(broker.membership.store)
    except StoreError as error:
        raise RequestTimedOut(f"The known brokers could not be read from the metadata store: {error}") from error


async def unregister_broker(
    broker: BrokerContext, request: UnregisterBrokerRequest, caller: Caller
) -> UnregisterBrokerResponse:
    """Remove a broker that is down from the cluster."""
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
