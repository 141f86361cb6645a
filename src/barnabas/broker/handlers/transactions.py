"""AddPartitionsToTxn v0–5, AddOffsetsToTxn v0–4, EndTxn v0–5, DescribeTransactions v0, ListTransactions v0–2.

The rules are in `machines/transactions`; here a request finds the coordinator of its transactional id.

AddPartitionsToTxn
- Up to v3 of a client, with one transaction; from v4 on of a broker, with many, to add or only to verify.
- One partition that does not exist keeps all of its transaction from being added (OPERATION_NOT_ATTEMPTED).

EndTxn
- v5+ gets the epoch of the next transaction, and with it the promise that a request that comes late ends nothing.

DescribeTransactions
- A transactional id that is named twice is described once.

Before v2 clients knew no PRODUCER_FENCED: they are told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TopicData
from kio.schema.describe_transactions.v0.response import TransactionState as Described
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.list_transactions.v2.response import ListTransactionsResponse
from kio.schema.list_transactions.v2.response import TransactionState as Listed
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta

from barnabas.broker.coordinators import internal_topics
from barnabas.broker.serving.answers import wait_for
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.groups.consumer.patterns import compile_pattern
from barnabas.machines.transactions.coordinator import BUMPS_IN_END_SINCE
from barnabas.machines.transactions.states import TransactionState
from barnabas.machines.transactions.steps import EPOCH_BUMPS_SINCE, FENCED_SINCE, state_of
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidRequest,
    TransactionalIdNotFound,
)
from barnabas.model.ids import TopicPartition
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.protocol.messages.add_partitions_to_txn import BATCHED_SINCE

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Callable, Mapping

    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.add_partitions_to_txn.v5.request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest
    from kio.static.primitive import TZAware

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.calls import Call
    from barnabas.broker.coordinators.transactions import Codes
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.transactions.coordinator import TransactionCoordinator, TransactionOutcome
    from barnabas.protocol.coordinator_records.transaction_state import TransactionLogValue

NOT_STORED: Final = frozenset({"PrepareEpochFence"})
"""States that Kafka has and Barnabas never uses."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


async def add_partitions_to_txn(
    broker: BrokerContext, request: AddPartitionsToTxnRequest, caller: Caller, version: int
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions, or verify that they were added.

    Other brokers ask for many transactions at once: one whose coordinator's followers hang does not hold back the rest.
    """
    asked = request.transactions
    begun = [_add_partitions(broker, each, version) for each in asked]
    if version >= BATCHED_SINCE:
        begun = await broker.transactions.in_time([each.transactional_id for each in asked], begun)
    results = [
        await _add_result(broker, each, await wait_for(codes), version)
        for each, codes in zip(asked, begun, strict=True)
    ]
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results_by_transaction=tuple(results)
    )


def _add_partitions(broker: BrokerContext, asked: AddPartitionsToTxnTransaction, version: int) -> Codes | Future[Codes]:
    """An error code for each partition, one for all of them, or a future of either."""
    partitions = _partitions(asked)
    image = broker.metadata.image
    unknown = {tp for tp in partitions if image.partition(*tp) is None}
    transactional_id, producer_id, epoch = asked.transactional_id, asked.producer_id, asked.producer_epoch
    if unknown:
        return {
            tp: ErrorCode.unknown_topic_or_partition if tp in unknown else ErrorCode.operation_not_attempted
            for tp in partitions
        }
    if not transactional_id:
        return ErrorCode.invalid_request
    client = EPOCH_BUMPS_SINCE if version >= BATCHED_SINCE else 0

    def decide(machine: TransactionCoordinator, call: Call[Codes], now_ms: int) -> TransactionOutcome:
        if asked.verify_only:
            return machine.verify_partitions(transactional_id, producer_id, epoch, partitions, call, now_ms)
        return machine.add_partitions(transactional_id, producer_id, epoch, partitions, client, call, now_ms)

    return broker.transactions.ask(transactional_id, decide, version, lambda error: error.code)


def _partitions(asked: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]


async def _add_result(
    broker: BrokerContext,
    asked: AddPartitionsToTxnTransaction,
    answer: Mapping[TopicPartition, ErrorCode] | ErrorCode,
    version: int,
) -> AddPartitionsToTxnResult:
    codes = dict.fromkeys(_partitions(asked), _code_for(answer, version)) if isinstance(answer, ErrorCode) else answer

    def topic_result(topic: AddPartitionsToTxnTopic) -> AddPartitionsToTxnTopicResult:
        return AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ),
        )

    results = await broker.long_answers.each(asked.topics, topic_result, lambda topic: len(topic.partitions))
    return AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=tuple(results))


async def add_offsets_to_txn(
    broker: BrokerContext, request: AddOffsetsToTxnRequest, caller: Caller, version: int
) -> AddOffsetsToTxnResponse:
    """Add a group's partition of __consumer_offsets to a transaction."""

    def answer(code: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=_code_for(code, version))

    if not request.transactional_id:
        return answer(ErrorCode.invalid_request)
    try:
        await internal_topics.make(broker, CONSUMER_OFFSETS)
    except ApiError:
        return answer(ErrorCode.coordinator_not_available)
    number = broker.groups.runtime.partition_for(request.group_id)
    if number is None:  # it was made, and is deleted again
        return answer(ErrorCode.coordinator_not_available)
    partitions = (TopicPartition(CONSUMER_OFFSETS, number),)
    return answer(
        await wait_for(
            broker.transactions.ask(
                request.transactional_id,
                lambda machine, call, now_ms: machine.add_partitions(
                    request.transactional_id, request.producer_id, request.producer_epoch, partitions, 0, call, now_ms
                ),
                version,
                lambda error: error.code,
            )
        )
    )


def end_txn(
    broker: BrokerContext, request: EndTxnRequest, caller: Caller, version: int
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    """Commit or abort; a coroutine when a new producer id is needed, which only clients get that get epochs."""
    if not request.transactional_id:
        return _not_ended(InvalidRequest("The transactional id must not be empty."))
    if version >= BUMPS_IN_END_SINCE and _is_used_up(broker, request.transactional_id):
        return _end_with_new_id(broker, request, version)
    return _end(broker, request, -1, version)


def _is_used_up(broker: BrokerContext, transactional_id: str) -> bool:
    """Whether a producer has no epochs left; if its coordinator is not here, that is told when it is to decide."""
    try:
        machine = broker.transactions.runtime.find(transactional_id).machine
    except ApiError:
        return False
    return machine is not None and machine.is_used_up(transactional_id)


async def _end_with_new_id(broker: BrokerContext, request: EndTxnRequest, version: int) -> EndTxnResponse:
    return await wait_for(_end(broker, request, await broker.producer_ids.next(), version))


def _end(
    broker: BrokerContext, request: EndTxnRequest, fresh_id: int, version: int
) -> EndTxnResponse | Future[EndTxnResponse]:
    return broker.transactions.ask(
        request.transactional_id,
        lambda machine, call, now_ms: machine.end_txn(request, fresh_id, call, now_ms),
        version,
        _not_ended,
    )


def _not_ended(error: ApiError) -> EndTxnResponse:
    return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=error.code)


def _code_for(code: ErrorCode, version: int) -> ErrorCode:
    if version < FENCED_SINCE and code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    return code


# Transactions seen from outside


async def describe_transactions(
    broker: BrokerContext, request: DescribeTransactionsRequest, caller: Caller
) -> DescribeTransactionsResponse:
    """Describe transactional ids."""
    named = dict.fromkeys(request.transactional_ids)
    described = await broker.long_answers.each(named, lambda each: _describe(broker, each))
    return DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=tuple(described))


def _describe(broker: BrokerContext, transactional_id: TransactionalId) -> Described:
    try:
        if not transactional_id:
            raise InvalidRequest("The transactional id must not be empty.")
        shard = broker.transactions.runtime.find(transactional_id)
        if shard.machine is None:
            raise shard.failure
        value = shard.machine.transactions.get(transactional_id)
        if value is None:
            raise TransactionalIdNotFound(f"The coordinator has no transactional id {transactional_id}.")
    except ApiError as error:
        return Described(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout=i32Timedelta.parse(timedelta(0)),
            transaction_start_time=_time(0),
            producer_id=ProducerId(0),
            producer_epoch=i16(0),
            topics=(),
        )
    return Described(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=state_of(value).label,
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=value.transaction_timeout_ms)),
        transaction_start_time=_time(value.transaction_start_timestamp_ms),
        producer_id=ProducerId(value.producer_id),
        producer_epoch=i16(value.producer_epoch),
        topics=tuple(
            TopicData(topic=TopicName(each.topic), partitions=tuple(map(i32, each.partition_ids)))
            for each in value.transaction_partitions or ()
        ),
    )


def _time(milliseconds: int) -> TZAware:
    """A time as it is sent, -1 for none; kio's own check lets only whole seconds pass."""
    return cast("TZAware", _EPOCH + timedelta(milliseconds=milliseconds))


async def list_transactions(
    broker: BrokerContext, request: ListTransactionsRequest, caller: Caller
) -> ListTransactionsResponse:
    """List the transactional ids that this broker coordinates."""
    states = {state.label: state for state in TransactionState}
    unknown = tuple(name for name in request.state_filters if name not in states and name not in NOT_STORED)
    try:
        wanted = _filter(request, broker.clock.now_ms())
        known = [
            transaction
            for shard in broker.transactions.runtime.shards()
            for transaction in _ready(shard.machine).transactions.items()
        ]
    except ApiError as error:
        return ListTransactionsResponse(throttle_time=NO_THROTTLE, error_code=error.code, transaction_states=())
    listed = await broker.long_answers.each(known, lambda each: _listed(*each) if wanted(*each) else None)
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=unknown,
        transaction_states=tuple(each for each in listed if each is not None),
    )


def _listed(transactional_id: str, value: TransactionLogValue) -> Listed:
    return Listed(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(value.producer_id),
        transaction_state=state_of(value).label,
    )


def _ready(machine: TransactionCoordinator | None) -> TransactionCoordinator:
    if machine is None:
        raise CoordinatorLoadInProgress("A partition of __transaction_state is being loaded. Try again.")
    return machine


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[str, TransactionLogValue], bool]:
    """Which transactional ids a request asks for. Raises InvalidRegularExpression."""
    pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def wanted(transactional_id: str, value: TransactionLogValue) -> bool:
        if request.producer_id_filters and value.producer_id not in request.producer_id_filters:
            return False
        if request.state_filters and state_of(value).label not in request.state_filters:
            return False
        if request.duration_filter >= 0 and now_ms - value.transaction_start_timestamp_ms <= request.duration_filter:
            return False
        return pattern is None or pattern.matches(transactional_id)

    return wanted
