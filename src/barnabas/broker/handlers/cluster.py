"""DescribeCluster v0–2: the brokers, the controller and the cluster's id.

- Brokers are told by the address of the listener that the caller came in on.
- v1+: asked for controllers instead of brokers, it answers MISMATCHED_ENDPOINT_TYPE: every broker can be the
  controller, and none is only that.
- v2: fenced brokers can be asked for; there are none, since a broker that is not registered is not known.

Not implemented: access control (everything is authorized).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from barnabas.broker.throttle import NO_THROTTLE
from barnabas.machines.acls import CLUSTER_OPERATIONS
from barnabas.machines.controller.image import NO_LEADER
from barnabas.model.errors import ErrorCode
from barnabas.protocol.metadata import NOT_ASKED

if TYPE_CHECKING:
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker

BROKERS: Final = 1
CONTROLLERS: Final = 2


def describe_cluster(broker: Broker, request: DescribeClusterRequest, caller: Caller) -> DescribeClusterResponse:
    """Tell who is there."""
    if request.endpoint_type == CONTROLLERS:
        return _refusal(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return _refusal(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {request.endpoint_type}")
    image = broker.metadata.image
    brokers = tuple(
        DescribeClusterBroker(
            broker_id=BrokerId(broker_id), host=endpoint.host, port=i32(endpoint.port), rack=known.rack, is_fenced=False
        )
        for broker_id, known in sorted(image.brokers.items())
        if (endpoint := known.endpoints.get(caller.listener)) is not None
    )
    told = {known.broker_id for known in brokers}
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


def _refusal(error: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE, error_code=error, error_message=message, cluster_id="", brokers=()
    )
