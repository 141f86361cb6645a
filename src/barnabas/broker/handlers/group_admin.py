"""ListGroups v0–5, DescribeGroups v0–6, ConsumerGroupDescribe v0–1, ShareGroupDescribe v1 and DeleteGroups v0–2: groups
seen from outside.

- ListGroups lists the groups that this broker coordinates, each as it is at its moment; v4+ by state, v5 by type
  (classic, consumer, share), both without regard to case. If one of its coordinators cannot answer, there is its error
  and no list; one that has just gone to another broker is left out, because that broker lists its groups.
- DescribeGroups is for classic groups. Any other, and one that does not exist, is described as Dead; from v6 on it has
  GROUP_ID_NOT_FOUND as well. v3+: authorized operations, when asked for.
- ConsumerGroupDescribe is for groups whose partitions the coordinator assigns; others are GROUP_ID_NOT_FOUND.
  UNSUPPORTED_VERSION while the feature group.version is 0.
- ShareGroupDescribe is for share groups; others are GROUP_ID_NOT_FOUND. UNSUPPORTED_VERSION while share.version is 0.
- DeleteGroups deletes empty groups with all their offsets. What share coordinators keep for a share group goes first;
  if that fails, the group stays.

Each group has its own error, and is described once, however often it is named.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from kio.schema.consumer_group_describe.v1 import response as consumer
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.describe_groups.v6 import response as classic
from kio.schema.list_groups.v5.response import ListGroupsResponse
from kio.schema.share_group_describe.v1 import response as share
from kio.schema.types import GroupId
from kio.static.primitive import i32

from barnabas.broker.coordinators.calls import Call
from barnabas.broker.serving.long_answers import PART
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.security.acls import GROUP_OPERATIONS
from barnabas.model.errors import ApiError, ErrorCode, GroupIdNotFound, NotCoordinator
from barnabas.protocol.wire.conversion import zero

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.list_groups.v5.request import ListGroupsRequest
    from kio.schema.list_groups.v5.response import ListedGroup
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.groups.coordinator import GroupCoordinator
    from barnabas.machines.groups.share.offsets import DeleteStates
    from barnabas.machines.groups.table import GroupOutcome
    from barnabas.machines.outcome import Response

DEAD: Final = "Dead"
SAYS_NOT_FOUND: Final = 6
"""From this version on DescribeGroups says that a group does not exist."""


async def list_groups(broker: BrokerContext, request: ListGroupsRequest, caller: Caller) -> ListGroupsResponse:
    """List groups."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    calls: list[Call[list[ListedGroup] | ApiError]] = []
    for shard in broker.groups.runtime.shards():
        ids = [] if shard.machine is None else list(shard.machine.table.groups)
        parts = [ids[start : start + PART] for start in range(0, len(ids) or 1, PART)]
        ask = partial(_ask_for_groups, shard, states, types)
        calls += await broker.long_answers.each(parts, ask, len)
    groups: list[ListedGroup] = []
    code = ErrorCode.none
    answers: list[list[ListedGroup] | ApiError] = await _all([call.result() for call in calls])
    for answer in answers:
        if not isinstance(answer, ApiError):
            groups += answer
        elif not isinstance(answer, NotCoordinator):  # else another broker lists them
            code = answer.code
    listed = tuple(groups) if code is ErrorCode.none else ()
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=code, groups=listed)


def _ask_for_groups(
    shard: Shard[GroupCoordinator], states: Collection[str], types: Collection[str], group_ids: Iterable[str]
) -> Call[list[ListedGroup] | ApiError]:
    call: Call[list[ListedGroup] | ApiError] = Call("", "", 0, lambda error: error)
    shard.read(lambda machine, call, now_ms: machine.list_groups(group_ids, states, types, call, now_ms), call)
    return call


async def describe_groups(
    broker: BrokerContext, request: DescribeGroupsRequest, caller: Caller, version: int
) -> classic.DescribeGroupsResponse:
    """Describe classic groups."""

    def failure(group_id: str, error: ApiError) -> Any:
        missing = isinstance(error, GroupIdNotFound)
        return zero(
            classic.DescribedGroup,
            group_id=group_id,
            group_state=DEAD if missing else "",
            error_code=ErrorCode.none if missing and version < SAYS_NOT_FOUND else error.code,
            error_message=str(error) if missing and version >= SAYS_NOT_FOUND else None,
        )

    described = await _ask_each(
        broker,
        dict.fromkeys(request.groups),
        lambda machine, group_id, call, now_ms: machine.describe_classic(group_id, call, now_ms),
        caller,
        failure,
        only_reads=True,
    )
    groups = await _authorized(broker, described, request.include_authorized_operations)
    return classic.DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=groups)


async def consumer_group_describe(
    broker: BrokerContext, request: ConsumerGroupDescribeRequest, caller: Caller
) -> consumer.ConsumerGroupDescribeResponse:
    """Describe groups whose partitions the coordinator assigns."""
    broker.groups.check_consumer_protocol()

    def failure(group_id: str, error: ApiError) -> Any:
        message = str(error) if isinstance(error, GroupIdNotFound) else None
        return zero(consumer.DescribedGroup, group_id=group_id, error_code=error.code, error_message=message)

    described = await _ask_each(
        broker,
        dict.fromkeys(request.group_ids),
        lambda machine, group_id, call, now_ms: machine.describe_consumer(group_id, call, now_ms),
        caller,
        failure,
        only_reads=True,
    )
    groups = await _authorized(broker, described, request.include_authorized_operations)
    return consumer.ConsumerGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


async def share_group_describe(
    broker: BrokerContext, request: ShareGroupDescribeRequest, caller: Caller
) -> share.ShareGroupDescribeResponse:
    """Describe share groups."""
    broker.groups.check_share_protocol()

    def failure(group_id: str, error: ApiError) -> Any:
        message = str(error) if isinstance(error, GroupIdNotFound) else None
        return zero(share.DescribedGroup, group_id=group_id, error_code=error.code, error_message=message)

    described = await _ask_each(
        broker,
        dict.fromkeys(request.group_ids),
        lambda machine, group_id, call, now_ms: machine.describe_share(group_id, call, now_ms),
        caller,
        failure,
        only_reads=True,
    )
    groups = await _authorized(broker, described, request.include_authorized_operations)
    return share.ShareGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


async def delete_groups(broker: BrokerContext, request: DeleteGroupsRequest, caller: Caller) -> DeleteGroupsResponse:
    """Delete groups."""
    group_ids: tuple[str, ...] = tuple(dict.fromkeys(request.groups_names))

    async def delete(group_ids: Iterable[str], states_deleted: bool) -> list[ErrorCode | DeleteStates]:
        return await _ask_each(
            broker,
            group_ids,
            lambda machine, group_id, call, now_ms: machine.delete_group(
                group_id, call, now_ms, states_deleted=states_deleted
            ),
            caller,
            lambda group_id, error: error.code,
        )

    answers = dict(zip(group_ids, await delete(group_ids, states_deleted=False), strict=True))
    begun = [answer for answer in answers.values() if not isinstance(answer, ErrorCode)]
    if begun:
        answers |= await _delete_states(broker, begun)
        done = [each.group_id for each in begun if answers[each.group_id] is ErrorCode.none]
        answers |= dict(zip(done, await delete(done, states_deleted=True), strict=True))
    codes = [cast("ErrorCode", answers[group_id]) for group_id in group_ids]
    return DeleteGroupsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            DeletableGroupResult(group_id=GroupId(group_id), error_code=code)
            for group_id, code in zip(group_ids, codes, strict=True)
        ),
    )


async def _delete_states(broker: BrokerContext, begun: list[DeleteStates]) -> dict[str, ErrorCode]:
    """Have the states of share groups deleted; by group, an error of one of its partitions, if there is one."""
    deleted = await asyncio.gather(*(broker.groups.persister.delete(*each) for each in begun))
    return {
        each.group_id: next((code for code in codes.values() if code is not ErrorCode.none), ErrorCode.none)
        for each, codes in zip(begun, deleted, strict=True)
    }


async def _ask_each(
    broker: BrokerContext,
    group_ids: Iterable[str],
    question: Callable[[GroupCoordinator, str, Call[Response], int], GroupOutcome],
    caller: Caller,
    failure: Callable[[str, ApiError], Response],
    *,
    only_reads: bool = False,
) -> list[Response]:
    """Ask the coordinator of each group the same; answers come in the order of the groups."""

    def ask(group_id: str) -> Response | asyncio.Future[Response]:
        return broker.groups.ask(
            group_id,
            lambda machine, call, now_ms: question(machine, group_id, call, now_ms),
            caller,
            0,
            lambda error: failure(group_id, error),
            only_reads=only_reads,
        )

    return await _all(await broker.long_answers.each(group_ids, ask))


async def _all(answers: Iterable[Response | asyncio.Future[Response]]) -> list[Response]:
    """All answers, those that are there and those that come."""
    return [await answer if asyncio.isfuture(answer) else answer for answer in answers]


async def _authorized(broker: BrokerContext, groups: list[Any], asked: bool) -> tuple[Any, ...]:
    if not asked:
        return tuple(groups)
    return tuple(await broker.long_answers.each(groups, _with_operations))


def _with_operations(group: Any) -> Any:
    if group.error_code is not ErrorCode.none:
        return group
    return replace(group, authorized_operations=i32(GROUP_OPERATIONS))
