"""JoinGroup v0–9, SyncGroup v0–5, Heartbeat v0–4, LeaveGroup v0–5 and ConsumerGroupHeartbeat v0–1: members of groups.

The rules are in `machines/groups`; here a request finds the coordinator of its group. JoinGroup and SyncGroup may be
answered much later, when the other members have come.

A coordinator that is not here, is being loaded or cannot store anything is told as such (NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE): clients ask FindCoordinator and come again.
ConsumerGroupHeartbeat is UNSUPPORTED_VERSION while the feature group.version is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.registry import BY_KEY
from barnabas.model.errors import CoordinatorLoadInProgress, ErrorCode, InconsistentGroupProtocol, InvalidRequest
from barnabas.protocol import codec
from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.sync_group.v5.request import SyncGroupRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.model.errors import ApiError

NAMES_PROTOCOL: Final = 5
"""From this version of SyncGroup on a member names the protocol that it was told of."""


def join_group(broker: Broker, request: JoinGroupRequest, caller: Caller, version: int) -> Any:
    """Become a member, or take part in a rebalance."""
    return broker.groups.ask(
        request.group_id,
        lambda machine, call, now_ms: machine.join_group(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.JOIN_GROUP),
    )


def sync_group(broker: Broker, request: SyncGroupRequest, caller: Caller, version: int) -> Any:
    """Get what the leader assigned; the leader brings it. From v5 on a member says which protocol it means."""
    if version >= NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocol("a SyncGroup of this version must name the protocol's type and name")
    return broker.groups.ask(
        request.group_id,
        lambda machine, call, now_ms: machine.sync_group(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.SYNC_GROUP),
    )


def heartbeat(broker: Broker, request: HeartbeatRequest, caller: Caller, version: int) -> Any:
    """Show that a member lives, and hear of a rebalance."""
    return broker.groups.ask(
        request.group_id,
        lambda machine, call, now_ms: machine.heartbeat(request, call, now_ms),
        caller,
        version,
        _heartbeat_failure,
    )


def leave_group(broker: Broker, request: LeaveGroupRequest, caller: Caller, version: int) -> Any:
    """Members go."""
    return broker.groups.ask(
        request.group_id,
        lambda machine, call, now_ms: machine.leave_group(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.LEAVE_GROUP),
    )


def consumer_group_heartbeat(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, caller: Caller, version: int
) -> Any:
    """Join, live in and leave a group whose partitions the coordinator assigns."""
    broker.groups.check_consumer_protocol()
    if not request.group_id:
        raise InvalidRequest("GroupId can't be empty.")
    return broker.groups.ask(
        request.group_id,
        lambda machine, call, now_ms: machine.consumer_group_heartbeat(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.CONSUMER_GROUP_HEARTBEAT),
    )


def _heartbeat_failure(error: ApiError) -> Any:
    """While the group is loaded a heartbeat is answered as if all were well: its member has done nothing wrong."""
    code = ErrorCode.none if isinstance(error, CoordinatorLoadInProgress) else error.code
    return codec.error_response(ApiKey.HEARTBEAT, BY_KEY[ApiKey.HEARTBEAT].newest, code, str(error))


def _failure(key: ApiKey) -> Callable[[ApiError], Any]:
    """Makes the response that tells nothing but an error."""
    return lambda error: codec.error_response(key, BY_KEY[key].newest, error.code, str(error))
