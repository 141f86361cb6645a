"""JoinGroup v0–9, SyncGroup v0–5, Heartbeat v0–4, LeaveGroup v0–5, ConsumerGroupHeartbeat v0–1, ShareGroupHeartbeat v1:
members of groups.

The rules are in `machines/groups`; here a request finds the coordinator of its group. JoinGroup and SyncGroup may be
answered much later, when the other members have come.

A coordinator that is not here, is being loaded or cannot store anything has its own error (NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE): clients then ask FindCoordinator and try again.
ConsumerGroupHeartbeat is UNSUPPORTED_VERSION while the feature group.version is 0, ShareGroupHeartbeat while
share.version is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.serving.registry import BY_KEY
from barnabas.machines.security.acls import Operation
from barnabas.model.errors import CoordinatorLoadInProgress, ErrorCode, InconsistentGroupProtocol, InvalidRequest
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.groups.sync_group import NAMES_PROTOCOL
from barnabas.protocol.wire.error_responses import top_level_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.leave_group.v5.response import LeaveGroupResponse
    from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
    from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.answers import HandlerResult
    from barnabas.broker.serving.caller import Caller
    from barnabas.model.errors import ApiError
    from barnabas.protocol.messages.groups.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from barnabas.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
    from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse


def join_group(
    broker: BrokerContext, request: JoinGroupRequest, caller: Caller, version: int
) -> HandlerResult[JoinGroupResponse]:
    """Become a member, or take part in a rebalance."""
    return broker.groups.ask_at_once(
        request.group_id,
        lambda machine, call, now_ms: machine.join_group(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.JOIN_GROUP),
        may_see=_may_see(broker, caller),
    )


def sync_group(
    broker: BrokerContext, request: SyncGroupRequest, caller: Caller, version: int
) -> HandlerResult[SyncGroupResponse]:
    """Get what the leader assigned; the leader brings it. From v5 on a member says which protocol it means."""
    if version >= NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocol("SyncGroup v5 and newer must have a protocol type and a protocol name.")
    return broker.groups.ask_at_once(
        request.group_id,
        lambda machine, call, now_ms: machine.sync_group(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.SYNC_GROUP),
    )


def heartbeat(
    broker: BrokerContext, request: HeartbeatRequest, caller: Caller, version: int
) -> HandlerResult[HeartbeatResponse]:
    """Keep a member in its group, and tell it of a rebalance."""
    return broker.groups.ask_at_once(
        request.group_id,
        lambda machine, call, now_ms: machine.heartbeat(request, call, now_ms),
        caller,
        version,
        _heartbeat_failure,
    )


def leave_group(
    broker: BrokerContext, request: LeaveGroupRequest, caller: Caller, version: int
) -> HandlerResult[LeaveGroupResponse]:
    """Remove members from a group."""
    return broker.groups.ask_at_once(
        request.group_id,
        lambda machine, call, now_ms: machine.leave_group(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.LEAVE_GROUP),
    )


def consumer_group_heartbeat(
    broker: BrokerContext, request: ConsumerGroupHeartbeatRequest, caller: Caller, version: int
) -> HandlerResult[ConsumerGroupHeartbeatResponse]:
    """Join a consumer group, stay in it, or leave it."""
    broker.groups.check_consumer_protocol()
    if not request.group_id:
        raise InvalidRequest("GroupId can't be empty.")
    return broker.groups.ask_at_once(
        request.group_id,
        lambda machine, call, now_ms: machine.consumer_group_heartbeat(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.CONSUMER_GROUP_HEARTBEAT),
        may_see=_may_see(broker, caller),
    )


def share_group_heartbeat(
    broker: BrokerContext, request: ShareGroupHeartbeatRequest, caller: Caller, version: int
) -> HandlerResult[ShareGroupHeartbeatResponse]:
    """Join a share group, stay in it, or leave it."""
    broker.groups.check_share_protocol()
    if not request.group_id:
        raise InvalidRequest("GroupId can't be empty.")
    return broker.groups.ask_at_once(
        request.group_id,
        lambda machine, call, now_ms: machine.share_group_heartbeat(request, call, now_ms),
        caller,
        version,
        _failure(ApiKey.SHARE_GROUP_HEARTBEAT),
    )


def _may_see(broker: BrokerContext, caller: Caller) -> Callable[[str], bool] | None:
    """Whether a member may know of a topic that its pattern matches; None if of all."""
    if broker.permissions is None:
        return None
    access = broker.permissions.of(caller, ApiKey.CONSUMER_GROUP_HEARTBEAT.name)
    return lambda topic: access.allows_topic(Operation.DESCRIBE, topic, quiet=True)


def _heartbeat_failure(error: ApiError) -> Any:
    """While the group is loaded a heartbeat is answered as if all were well: its member has done nothing wrong."""
    code = ErrorCode.none if isinstance(error, CoordinatorLoadInProgress) else error.code
    return top_level_error(ApiKey.HEARTBEAT, BY_KEY[ApiKey.HEARTBEAT].newest, code, str(error))


def _failure(key: ApiKey) -> Callable[[ApiError], Any]:
    """Makes the response that tells nothing but an error."""
    return lambda error: top_level_error(key, BY_KEY[key].newest, error.code, str(error))
