"""A producer with transactions over the real logs of one broker, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest

from barnabas.broker.coordinators import internal_topics
from barnabas.broker.handlers import transactions as handlers
from barnabas.broker.handlers.produce import produce
from barnabas.broker.handlers.producers import init_producer_id
from barnabas.broker.handlers.transaction_offsets import txn_offset_commit
from barnabas.machines.transactions.states import TransactionState
from barnabas.machines.transactions.steps import state_of
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.net.channel import Channel
from barnabas.protocol.messages.groups.txn_offset_commit import TxnOffsetCommitRequest
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from barnabas.protocol.wire.conversion import zero
from tests.support.group_handlers import committed
from tests.support.images import CALLER
from tests.support.parts import answer_of, make_topic, running_parts
from tests.support.produce_fetch import produce_request, produced
from tests.support.wire import build

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.controller.peers import MakeChannel
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.net.reply import Answer, Parked

NOW = 1_700_000_000_000
ID = "payments"
PROPERTIES = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@asynccontextmanager
async def transacting(tmp_path: Path, make_channel: MakeChannel = Channel) -> AsyncIterator[Transactor]:
    """A producer of a broker with a topic `t` of two partitions that coordinates groups and transactions."""
    async with running_parts(tmp_path, PROPERTIES, make_channel=make_channel) as broker:
        await make_topic(broker, "t", 2)
        for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            await internal_topics.make(broker, name)
        await broker.groups.runtime.loaded()
        await broker.transactions.runtime.loaded()
        yield Transactor(broker)


class Transactor:
    """A producer with transactions, one request at a time."""

    def __init__(self, broker: BrokerContext, name: str = ID) -> None:
        self.broker = broker
        self.name = name
        self.producer = (-1, -1)

    @property
    def partition(self) -> LeaderPartition:
        return self.broker.replicas.find("t", 0)

    async def begin(self) -> None:
        """A transaction with one record."""
        assert await self.init() is ErrorCode.none
        assert await self.send() is ErrorCode.none

    async def commit(self) -> None:
        """End the transaction, and wait until all its markers are written."""
        assert await self.end() is ErrorCode.none
        assert await asyncio.wait_for(self.settle(), 30) is TransactionState.COMPLETE_COMMIT

    async def init(self, **values: Any) -> ErrorCode:
        fields = {"transactional_id": self.name, "transaction_timeout": timedelta(minutes=1)} | values
        response = await init_producer_id(self.broker, zero(InitProducerIdRequest, **fields), CALLER, 5)
        if response.error_code is ErrorCode.none:
            self.producer = response.producer_id, response.producer_epoch
        return response.error_code

    async def send(
        self,
        sequence: int = 0,
        version: int = 12,
        producer: tuple[int, int] | None = None,
        transactional_id: str | None = None,
    ) -> ErrorCode:
        (code,) = await self.answer(self.produce((0,), sequence, version, producer, transactional_id), version)
        return code

    def produce(
        self,
        indexes: tuple[int, ...],
        sequence: int = 0,
        version: int = 12,
        producer: tuple[int, int] | None = None,
        transactional_id: str | None = None,
    ) -> Answer | Parked:
        """Send a batch to each of these partitions in one request; `answer` waits for what becomes of them."""
        producer_id, epoch = producer or self.producer
        batch = build_batch(
            [Record(0, 0, b"k", b"v")],
            base_timestamp=NOW,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        topic = self.broker.metadata.topic("t")
        assert topic is not None
        batches = {("t", topic.topic_id, index): batch for index in indexes}
        frame = produce_request(version, batches, transactional_id=transactional_id or self.name)
        return produce(self.broker, CALLER, version, 5, frame, 0)

    async def answer(self, answer: Answer | Parked, version: int = 12) -> list[ErrorCode]:
        return [result.error_code for result in produced(version, await answer_of(answer))]

    async def add(self, index: int = 0, version: int = 3, *, verify_only: bool = False) -> ErrorCode:
        transaction = {
            "transactional_id": ID,
            "producer_id": self.producer[0],
            "producer_epoch": self.producer[1],
            "verify_only": verify_only,
            "topics": [{"name": "t", "partitions": [index]}],
        }
        request = build(AddPartitionsToTxnRequest, {"transactions": [transaction]})
        response = await handlers.add_partitions_to_txn(self.broker, request, CALLER, version)
        return response.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code

    async def end(self, *, commit: bool = True, version: int = 5) -> ErrorCode:
        request = zero(
            EndTxnRequest,
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=commit,
        )
        response = handlers.end_txn(self.broker, request, CALLER, version)
        if isinstance(response, Awaitable):
            response = await response
        if response.error_code is ErrorCode.none and version >= 5:
            self.producer = response.producer_id, response.producer_epoch
        code: ErrorCode = response.error_code
        return code

    async def commit_offset(
        self, offset: int, version: int = 5, topic: str = "t", generation_id: int = -1
    ) -> ErrorCode:
        response = self.answer_to_commit(offset, version, topic, generation_id)
        if isinstance(response, Awaitable):
            response = await response
        code: ErrorCode = response.topics[0].partitions[0].error_code
        return code

    def answer_to_commit(self, offset: int, version: int = 5, topic: str = "t", generation_id: int = -1) -> Any:
        """A response to TxnOffsetCommit, or what has to be awaited for it."""
        request = build(
            TxnOffsetCommitRequest,
            {
                "transactional_id": ID,
                "group_id": "g",
                "producer_id": self.producer[0],
                "producer_epoch": self.producer[1],
                "generation_id": generation_id,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": 0, "committed_offset": offset, "committed_metadata": None},
                        ],
                    }
                ],
            },
        )
        return txn_offset_commit(self.broker, request, CALLER, version)

    async def settle(self) -> TransactionState:
        """The state that is reached when all markers are written."""
        (machine,) = (machine for _, machine in self.broker.transactions.runtime.machines())
        while (state := state_of(machine.transactions[self.name])).is_open and state is not TransactionState.ONGOING:
            await asyncio.sleep(0)
        return state

    async def offset(self) -> int | None:
        """The committed offset of the group."""
        return (await committed(self.broker, "g")).get(("t", 0))
