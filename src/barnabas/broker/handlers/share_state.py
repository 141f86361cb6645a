"""InitializeShareGroupState v0, ReadShareGroupState v0, WriteShareGroupState v0–1, DeleteShareGroupState v0,
ReadShareGroupStateSummary v0–1.

Brokers among themselves: the group coordinator begins, looks at and deletes the state of share partitions, and the
leaders of partitions read and write it. With an authorizer, anybody with ClusterAction may ask, as in Kafka. Without
one, only brokers of this cluster that have proved it: a stranger's epoch would fence the leader for good, and its
offset would skip messages. What changes nothing anybody may ask then, as operators do: ReadShareGroupStateSummary, and
ReadShareGroupState with the leader epoch that is known.

The rules are in `machines/shares/coordinator`; here each partition of a request finds its own coordinator, and has its
own error.

Read: a leader epoch that is higher than the one known is stored, and fences leaders before it; a stranger's is refused
with CLUSTER_AUTHORIZATION_FAILED.
A request without a group is answered with no partitions, as in Kafka.
Write: v1+ has the number of complete deliveries, which only is passed on by ReadShareGroupStateSummary v1+.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kio.schema.delete_share_group_state.v0 import response as deleting
from kio.schema.initialize_share_group_state.v0 import response as initializing
from kio.schema.read_share_group_state.v0 import response as reading
from kio.schema.read_share_group_state_summary.v1 import response as summing_up
from kio.schema.write_share_group_state.v1 import response as writing
from kio.static.primitive import i8, i16, i32, i64

from barnabas.machines.shares.coordinator import Initialization, ShareKey, StateUpdate
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_ID
from barnabas.protocol.coordinator_records.share_state import StateBatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from kio.schema.delete_share_group_state.v0.request import DeleteShareGroupStateRequest
    from kio.schema.initialize_share_group_state.v0.request import InitializeShareGroupStateRequest
    from kio.schema.read_share_group_state.v0.request import ReadShareGroupStateRequest
    from kio.schema.read_share_group_state_summary.v1.request import ReadShareGroupStateSummaryRequest
    from kio.schema.write_share_group_state.v1.request import WriteShareGroupStateRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.shares import Answered
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.shares.coordinator import StoredState

    Ask = Callable[[ShareKey, Any], Answered | asyncio.Future[Answered]]
    """Asks the coordinator of a share partition what a partition of a request asks for."""


async def initialize_share_group_state(
    broker: BrokerContext, request: InitializeShareGroupStateRequest, caller: Caller
) -> initializing.InitializeShareGroupStateResponse:
    """Begin states."""

    def ask(key: ShareKey, part: Any) -> Answered | asyncio.Future[Answered]:
        begin = Initialization(part.state_epoch, part.start_offset)
        return broker.share_coordinators.ask(
            key, lambda machine, call, now_ms: machine.initialize(key, begin, call, now_ms)
        )

    return initializing.InitializeShareGroupStateResponse(
        results=await _results(request, ask, initializing.InitializeStateResult, initializing.PartitionResult)
    )


async def write_share_group_state(
    broker: BrokerContext, request: WriteShareGroupStateRequest, caller: Caller
) -> writing.WriteShareGroupStateResponse:
    """Store changes of states."""

    def ask(key: ShareKey, part: Any) -> Answered | asyncio.Future[Answered]:
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in part.state_batches
        )
        update = StateUpdate(
            part.state_epoch, part.leader_epoch, part.start_offset, batches, part.delivery_complete_count
        )
        return broker.share_coordinators.ask(
            key, lambda machine, call, now_ms: machine.write(key, update, call, now_ms)
        )

    return writing.WriteShareGroupStateResponse(
        results=await _results(request, ask, writing.WriteStateResult, writing.PartitionResult)
    )


async def read_share_group_state(
    broker: BrokerContext, request: ReadShareGroupStateRequest, caller: Caller
) -> reading.ReadShareGroupStateResponse:
    """Give states to the leaders that go on with them, and to those who only look."""
    may_fence = caller.broker_id is not None or broker.permissions is not None  # an authorizer was asked before

    def ask(key: ShareKey, part: Any) -> Answered | asyncio.Future[Answered]:
        leader_epoch = part.leader_epoch
        return broker.share_coordinators.ask(
            key, lambda machine, call, now_ms: machine.read(key, leader_epoch, call, now_ms, may_fence=may_fence)
        )

    def describe(state: StoredState | None) -> dict[str, Any]:
        if state is None:
            return {"state_epoch": i32(0), "start_offset": i64(0), "state_batches": ()}
        batches = tuple(
            reading.StateBatch(
                first_offset=i64(each.first_offset),
                last_offset=i64(each.last_offset),
                delivery_state=i8(each.delivery_state),
                delivery_count=i16(each.delivery_count),
            )
            for each in state.batches
        )
        return {
            "state_epoch": i32(state.state_epoch),
            "start_offset": i64(state.start_offset),
            "state_batches": batches,
        }

    return reading.ReadShareGroupStateResponse(
        results=await _results(request, ask, reading.ReadStateResult, reading.PartitionResult, describe)
    )


async def read_share_group_state_summary(
    broker: BrokerContext, request: ReadShareGroupStateSummaryRequest, caller: Caller
) -> summing_up.ReadShareGroupStateSummaryResponse:
    """Tell how far share partitions are."""

    def ask(key: ShareKey, part: Any) -> Answered | asyncio.Future[Answered]:
        return broker.share_coordinators.ask(
            key, lambda machine, call, now_ms: machine.read_summary(key, call), only_reads=True
        )

    def describe(state: StoredState | None) -> dict[str, Any]:
        if state is None:
            return {"state_epoch": i32(0), "leader_epoch": i32(0), "start_offset": i64(0)}
        return {
            "state_epoch": i32(state.state_epoch),
            "leader_epoch": i32(state.leader_epoch),
            "start_offset": i64(state.start_offset),
            "delivery_complete_count": i32(state.complete_count),
        }

    return summing_up.ReadShareGroupStateSummaryResponse(
        results=await _results(request, ask, summing_up.ReadStateSummaryResult, summing_up.PartitionResult, describe)
    )


async def delete_share_group_state(
    broker: BrokerContext, request: DeleteShareGroupStateRequest, caller: Caller
) -> deleting.DeleteShareGroupStateResponse:
    """Forget states."""

    def ask(key: ShareKey, part: Any) -> Answered | asyncio.Future[Answered]:
        return broker.share_coordinators.ask(key, lambda machine, call, now_ms: machine.delete(key, call))

    return deleting.DeleteShareGroupStateResponse(
        results=await _results(request, ask, deleting.DeleteStateResult, deleting.PartitionResult)
    )


def _nothing(state: StoredState | None) -> dict[str, Any]:
    return {}


async def _results(
    request: Any,
    ask: Ask,
    topic_class: type[Any],
    partition_class: type[Any],
    describe: Callable[[StoredState | None], dict[str, Any]] = _nothing,
) -> tuple[Any, ...]:
    """The response's topics: every partition is asked for before the first answer is waited for.

    `describe` gives the fields of a partition beside its error.
    """
    asked = [
        (
            topic.topic_id,
            part.partition,
            ask(ShareKey(request.group_id, topic.topic_id or NO_ID, part.partition), part),
        )
        for topic in (request.topics if request.group_id else ())
        for part in topic.partitions
    ]
    results: dict[UUID | None, list[Any]] = {}
    for topic_id, partition, begun in asked:
        answer = await begun if asyncio.isfuture(begun) else begun
        if isinstance(answer, ApiError):
            code, message, fields = answer.code, str(answer), describe(None)
        else:
            code, message, fields = ErrorCode.none, None, describe(answer)
        results.setdefault(topic_id, []).append(
            partition_class(partition=partition, error_code=code, error_message=message, **fields)
        )
    return tuple(topic_class(topic_id=topic_id, partitions=tuple(parts)) for topic_id, parts in results.items())
