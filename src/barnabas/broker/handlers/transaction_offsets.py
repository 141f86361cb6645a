"""TxnOffsetCommit v0–5: offsets that count when the transaction is committed.

- They are stored at once, in a batch of the transaction. Until its marker comes they are pending: a fetch of
  stable offsets is refused (UNSTABLE_OFFSET_COMMIT) and must be tried again.
- v5+: the group's partition becomes part of the transaction by this request. Before, AddOffsetsToTxn had to come
  first, and that it came is verified.
- v3+: member id and generation are checked as for OffsetCommit.
"""

from __future__ import annotations

from asyncio import sleep
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.calls import Call
from barnabas.broker.coordinators.groups import check_not_deleted
from barnabas.broker.serving.long_answers import DECISION, divided, merged
from barnabas.machines.transactions.steps import EPOCH_BUMPS_SINCE
from barnabas.model.errors import ApiError, ErrorCode, InvalidGroupId, InvalidRequest
from barnabas.protocol.messages.groups.offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from barnabas.protocol.messages.groups.txn_offset_commit import TxnOffsetCommitResponse

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Coroutine
    from typing import Any

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.broker.replication.verification_guards import VerificationGuard
    from barnabas.broker.serving.answers import HandlerResult
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.machines.groups.coordinator import GroupCoordinator
    from barnabas.model.ids import TopicPartition
    from barnabas.protocol.coordinator_records import CoordinatorRecord
    from barnabas.protocol.messages.groups.offset_commit import OffsetCommitRequestTopic
    from barnabas.protocol.messages.groups.txn_offset_commit import TxnOffsetCommitRequest

    Answered = TxnOffsetCommitResponse | Future[TxnOffsetCommitResponse] | Coroutine[Any, Any, TxnOffsetCommitResponse]
    """A response, now or later."""

ADDS_SINCE: Final = 5
ABORTABLE_SINCE: Final = 4
"""The version from which on clients know TRANSACTION_ABORTABLE."""
TRY_AGAIN: Final = {
    ErrorCode.network_exception: ErrorCode.coordinator_load_in_progress,
    ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch,
    ErrorCode.not_coordinator: ErrorCode.coordinator_not_available,
}
"""What is told of an error of the transaction's coordinator, which is not the coordinator that was asked."""


def txn_offset_commit(
    broker: BrokerContext, request: TxnOffsetCommitRequest, caller: Caller, version: int
) -> HandlerResult[TxnOffsetCommitResponse]:
    """Store offsets of a transaction; those of partitions that do not exist are refused, the others stored."""
    if len(request.topics) == 1 and _is_known(request.topics[0], broker.metadata.image):
        return _commit_part(broker, request, caller, version)
    return _commit_in_parts(broker, request, caller, version)


async def _commit_in_parts(
    broker: BrokerContext, request: TxnOffsetCommitRequest, caller: Caller, version: int
) -> TxnOffsetCommitResponse:
    """Store the offsets of those partitions that there are, some in each turn of the event loop."""
    image = broker.metadata.image
    known = _only(request, lambda topic, index: image.partition(topic, index) is not None)
    unknown = _only(request, lambda topic, index: image.partition(topic, index) is None)
    refused = _refusal(unknown, ErrorCode.unknown_topic_or_partition)
    if not known.topics:
        return refused
    topics = list(refused.topics)
    for number, part in enumerate(divided(known.topics)):
        if number:
            await sleep(0)
        answer = _commit_part(broker, replace(known, topics=part), caller, version)
        topics += (answer if isinstance(answer, TxnOffsetCommitResponse) else await answer).topics
    return TxnOffsetCommitResponse(topics=merged(topics, lambda topic: topic.name))


def _is_known(topic: OffsetCommitRequestTopic, image: ClusterImage) -> bool:
    """Whether all partitions exist for which a topic has offsets, and these are some and not many."""
    found = image.topics.get(topic.name)
    if found is None or not 0 < len(topic.partitions) <= DECISION:
        return False
    count = len(found.partitions)
    return all(0 <= each.partition_index < count for each in topic.partitions)


def _commit_part(broker: BrokerContext, request: TxnOffsetCommitRequest, caller: Caller, version: int) -> Answered:
    """Store some of the offsets. They count when the transaction is committed, and it is not if some were refused.

    Only the first commit of a transaction in a group's partition has to wait, for the transaction to be verified.
    """
    try:
        if not request.group_id:
            raise InvalidGroupId("The group id must not be empty.")
        if not request.transactional_id:
            raise InvalidRequest("The transactional id must not be empty.")
        shard = broker.groups.runtime.find(request.group_id)
        producer = request.producer_id, request.producer_epoch
        guard = shard.partition.verification.begin(*producer, broker.clock.monotonic())
        if guard is None:
            return _store(shard, request, caller, version)
    except ApiError as error:
        return _refusal(request, error.code)
    return _commit_verified(broker, shard, guard, request, caller, version)


async def _commit_verified(
    broker: BrokerContext,
    shard: Shard[GroupCoordinator],
    guard: VerificationGuard,
    request: TxnOffsetCommitRequest,
    caller: Caller,
    version: int,
) -> TxnOffsetCommitResponse:
    """Store the offsets if the group's partition is part of the transaction."""
    try:
        code = await _verify(broker, request, shard.partition.tp, version)
        if code is not ErrorCode.none:
            return _refusal(request, code)
        shard.partition.verification.check(request.producer_id, request.producer_epoch, guard)
        answer = _store(shard, request, caller, version)
    except ApiError as error:
        return _refusal(request, error.code)
    return answer if isinstance(answer, TxnOffsetCommitResponse) else await answer


def _only(request: TxnOffsetCommitRequest, wanted: Callable[[str, int], bool]) -> TxnOffsetCommitRequest:
    topics = (
        replace(topic, partitions=tuple(each for each in topic.partitions if wanted(topic.name, each.partition_index)))
        for topic in request.topics
    )
    return replace(request, topics=tuple(topic for topic in topics if topic.partitions))


def _store(
    shard: Shard[GroupCoordinator], request: TxnOffsetCommitRequest, caller: Caller, version: int
) -> TxnOffsetCommitResponse | Future[TxnOffsetCommitResponse]:
    """Store the offsets in the transaction, which is known here. Raises ApiError."""
    check_not_deleted(shard, request.group_id)
    call = Call(caller.client_id or "", caller.host, version, lambda error: _refusal(request, error.code))

    def replay(machine: GroupCoordinator, record: CoordinatorRecord) -> None:
        machine.replay_pending(record, request.producer_id)

    shard.ask_in_transaction(
        lambda machine, call, now_ms: machine.txn_offset_commit(request, call, now_ms),
        call,
        (request.producer_id, request.producer_epoch),
        replay,
    )
    return call.result()


async def _verify(
    broker: BrokerContext, request: TxnOffsetCommitRequest, tp: TopicPartition, version: int
) -> ErrorCode:
    codes = await broker.transactions.add_or_verify(
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        (tp,),
        EPOCH_BUMPS_SINCE if version >= ADDS_SINCE else None,
    )
    code = codes[tp]
    if code is ErrorCode.transaction_abortable and version < ABORTABLE_SINCE:
        return ErrorCode.invalid_txn_state
    return TRY_AGAIN.get(code, code)


def _refusal(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
