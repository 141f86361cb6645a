"""JoinGroup v0–9, SyncGroup v0–5, Heartbeat v0–4, LeaveGroup v0–5, ConsumerGroupHeartbeat v0–1, ShareGroupHeartbeat v1:
members of groups.

The rules are in `machines/groups`; here a request finds the coordinator of its group. JoinGroup and SyncGroup may be
answered much later, when the other members have come.

A coordinator that is not here, is being loaded or cannot store anything has its own error (NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE): clients then ask FindCoordinator and try again.
ConsumerGroupHeartbeat is UNSUPPORTED_VERSION while the feature group.version is 0, ShareGroupHeartbeat while
share.version is.

A function `usual_...` asks the coordinator for the same and answers with a frame, where there are neither permissions
nor quotas: half of what such a request costs otherwise is its way to the coordinator and back. It gives None, with
nothing done, for whatever is not as nearly all members send it, and for what is refused before the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators.calls import PackedCall
from barnabas.broker.serving.registry import BY_KEY
from barnabas.machines.groups.consumer.rules import Stepped
from barnabas.machines.security.acls import Operation
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    ErrorCode,
    InconsistentGroupProtocol,
    InvalidRequest,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.groups import consumer_group_heartbeat as consumer_heartbeats
from barnabas.protocol.messages.groups import heartbeat as heartbeats
from barnabas.protocol.messages.groups import join_group as join_groups
from barnabas.protocol.messages.groups import sync_group as sync_groups
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
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.broker.serving.answers import HandlerResult
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.groups.coordinator import GroupCoordinator
    from barnabas.machines.groups.table import GroupOutcome, PackedOutcome
    from barnabas.machines.outcome import OneRecord
    from barnabas.net.reply import Answer, Parked
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


def usual_join_group(
    broker: BrokerContext, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> Answer | Parked:
    """JoinGroup."""
    request = join_groups.unpack_plain(frame, body, version)
    return _ask(broker, caller, version, correlation_id, request, _decide_join, _pack_join)


def usual_sync_group(
    broker: BrokerContext, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> Answer | Parked:
    """SyncGroup."""
    request = sync_groups.unpack_plain(frame, body, version)
    if request is None or (
        version >= NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None)
    ):
        return None
    return _ask(broker, caller, version, correlation_id, request, _decide_sync, _pack_sync)


def usual_heartbeat(
    broker: BrokerContext, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> Answer | Parked:
    """Heartbeat."""
    request = heartbeats.unpack_idle(frame, body, version)
    return _ask(broker, caller, version, correlation_id, request, _decide_heartbeat, _pack_heartbeat)


def usual_consumer_group_heartbeat(
    broker: BrokerContext, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> Answer | Parked:
    """ConsumerGroupHeartbeat."""
    if not broker.groups.has_consumer_protocol:
        return None
    idle = consumer_heartbeats.read_idle(frame, body, version)
    if idle is None:
        request = consumer_heartbeats.unpack_plain(frame, body, version)
        return _ask(
            broker, caller, version, correlation_id, request, _decide_consumer_heartbeat, _pack_consumer_heartbeat
        )
    group_id, member_id, epoch = idle
    if (shard := _find(broker, group_id)) is None or (machine := shard.machine) is None:
        return None
    if shard.is_settled() and (
        there := machine.still_there(group_id, member_id, epoch, caller.client_id or "", caller.host)
    ):
        shard.set_timer(there.session, there.session_timeout_ms, 0)
        return consumer_heartbeats.pack_still_there(correlation_id, member_id, epoch, there.interval_ms)
    call = PackedCall(caller, version, correlation_id, idle, _pack_idle_heartbeat)
    shard.ask(_decide_idle_heartbeat, call)
    return call.result()


def _ask(
    broker: BrokerContext,
    caller: Caller,
    version: int,
    correlation_id: int,
    request: Any,
    decide: Callable[[GroupCoordinator, PackedCall[Any], int], PackedOutcome],
    pack: Callable[[PackedCall[Any], Any], bytes],
) -> Answer | Parked:
    """What a coordinator that is here answers; None if the request is not a usual one."""
    if request is None or (shard := _find(broker, request.group_id)) is None:
        return None
    call = PackedCall(caller, version, correlation_id, request, pack)
    shard.ask(decide, call)
    return call.result()


def _find(broker: BrokerContext, group_id: str) -> Shard[GroupCoordinator] | None:
    """The coordinator of a group, if it is here and in no group's deletion."""
    if not group_id:
        return None
    try:
        shard = broker.groups.runtime.find(group_id)
    except ApiError:
        return None
    machine = shard.machine
    return None if machine is None or machine.deletions.under_way else shard


def _decide_join(machine: GroupCoordinator, call: PackedCall[JoinGroupRequest], now_ms: int) -> GroupOutcome:
    return machine.join_group(call.request, call, now_ms)


def _decide_sync(machine: GroupCoordinator, call: PackedCall[SyncGroupRequest], now_ms: int) -> GroupOutcome:
    return machine.sync_group(call.request, call, now_ms)


def _decide_heartbeat(machine: GroupCoordinator, call: PackedCall[HeartbeatRequest], now_ms: int) -> GroupOutcome:
    return machine.heartbeat(call.request, call, now_ms)


def _decide_consumer_heartbeat(
    machine: GroupCoordinator, call: PackedCall[ConsumerGroupHeartbeatRequest], now_ms: int
) -> PackedOutcome:
    return machine.consumer_group_heartbeat(call.request, call, now_ms)


def _decide_idle_heartbeat(
    machine: GroupCoordinator, call: PackedCall[tuple[str, str, int]], now_ms: int
) -> PackedOutcome | OneRecord:
    group_id, member_id, epoch = call.request
    step = machine.step(group_id, member_id, epoch, call.client_id, call.client_host, now_ms)
    if step is not None:
        return step
    return machine.consumer_group_heartbeat(consumer_heartbeats.idle_request(group_id, member_id, epoch), call, now_ms)


def _pack_idle_heartbeat(call: PackedCall[tuple[str, str, int]], response: Any) -> bytes:
    if isinstance(response, Stepped):
        _, member_id, _ = call.request
        return consumer_heartbeats.pack_still_there(
            call.correlation_id, member_id, response.epoch, response.interval_ms
        )
    return _pack_consumer_heartbeat(call, response)


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


def _packer(
    pack: Callable[[int, int, Any], bytes], failure: Callable[[ApiError], Any]
) -> Callable[[PackedCall[Any], Any], bytes]:
    """Packs responses, and what is answered with an error in their place."""

    def pack_answer(call: PackedCall[Any], response: Any) -> bytes:
        if isinstance(response, ApiError):
            response = failure(response)
        return pack(call.correlation_id, call.version, response)

    return pack_answer


_pack_join: Final = _packer(join_groups.pack, _failure(ApiKey.JOIN_GROUP))
_pack_sync: Final = _packer(sync_groups.pack, _failure(ApiKey.SYNC_GROUP))
_pack_heartbeat: Final = _packer(heartbeats.pack, _heartbeat_failure)
_pack_consumer_heartbeat: Final = _packer(consumer_heartbeats.pack, _failure(ApiKey.CONSUMER_GROUP_HEARTBEAT))
