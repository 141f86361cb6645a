"""FindCoordinator v0–6: which broker coordinates a group or a transactional id.

- None does yet: groups and transactions are answered with COORDINATOR_NOT_AVAILABLE, and a message where there is room
  for one (v1+). Clients go on asking until their own timeout, and say then what they waited for.
- Any other kind of key (share groups are one) is an INVALID_REQUEST.
- Up to v3 a request has one key, from v4 on a list of them.

Not implemented: the coordinators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from barnabas.broker.throttle import NO_THROTTLE
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker

ABSENT: Final = {
    0: "this broker has no group coordinator yet: assign partitions by hand instead of subscribing",
    1: "this broker has no transaction coordinator yet: leave transactional.id unset",
}
"""By kind of key: what is missing, and what works meanwhile."""


def find_coordinator(broker: Broker, request: FindCoordinatorRequest, caller: Caller) -> FindCoordinatorResponse:
    """Say honestly that there is none."""
    missing = ABSENT.get(request.key_type)
    if missing is None:
        error, message = ErrorCode.invalid_request, f"coordinators of kind {request.key_type} are not known here"
    else:
        error, message = ErrorCode.coordinator_not_available, missing
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple(
            Coordinator(key=key, node_id=BrokerId(-1), host="", port=i32(-1), error_code=error, error_message=message)
            for key in request.coordinator_keys
        ),
    )
