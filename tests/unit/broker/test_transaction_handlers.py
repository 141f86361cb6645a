"""Transactions from InitProducerId to the markers, over real logs on one broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest

from barnabas.broker import asked_markers, internal_topics, markers
from barnabas.broker.handlers import transactions as handlers
from barnabas.broker.handlers.produce import produce
from barnabas.broker.handlers.producers import init_producer_id
from barnabas.broker.handlers.transaction_markers import write_txn_markers
from barnabas.broker.handlers.transaction_offsets import txn_offset_commit
from barnabas.broker.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.broker.partition import GIVEN_UP, Marker, Partition
from barnabas.machines.partition import PartitionLeader
from barnabas.machines.transactions.coordinator import EXPIRY, TIMEOUT, TimerKey
from barnabas.machines.transactions.states import TransactionState
from barnabas.machines.transactions.steps import MAX_EPOCH, state_of
from barnabas.model.errors import ErrorCode, InvalidTxnState, NotLeaderOrFollower, OutOfOrderSequence, RequestTimedOut
from barnabas.net.reply import Parked
from barnabas.protocol import codec
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.conversion import zero
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from barnabas.protocol.transaction_records import TransactionLogKey, TransactionRecord
from tests.support.images import CALLER
from tests.support.parts import make_topic, running_parts
from tests.support.produce_fetch import produce_request, produced
from tests.support.wire import build

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.context import Broker
    from barnabas.machines.controller.image import PartitionImage
    from barnabas.model.ids import TopicPartition
    from barnabas.net.reply import Answer

NOW = 1_700_000_000_000
ID = "payments"
PROPERTIES = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


def run(tmp_path: Path, story: Callable[[Transactor], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_parts(tmp_path, PROPERTIES) as broker:
            await make_topic(broker, "t", 2)
            for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
                await internal_topics.make(broker, name)
            await broker.groups.runtime.loaded()
            await broker.transactions.runtime.loaded()
            await story(Transactor(broker))

    asyncio.run(main())


class Transactor:
    """A producer with transactions, one request at a time."""

    def __init__(self, broker: Broker, name: str = ID) -> None:
        self.broker = broker
        self.name = name
        self.producer = (-1, -1)

    @property
    def partition(self) -> Partition:
        return self.broker.replicas.find("t", 0)

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
        if isinstance(answer, Parked):
            if not answer.resolved:
                done = asyncio.Event()
                answer.notify = done.set
                await asyncio.wait_for(done.wait(), 10)
            assert not isinstance(answer.answer, Parked)
            answer = answer.answer
        return [result.error_code for result in produced(version, answer)]

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
        if asyncio.iscoroutine(response) or asyncio.isfuture(response):
            response = await response
        if response.error_code is ErrorCode.none and version >= 5:
            self.producer = response.producer_id, response.producer_epoch
        code: ErrorCode = response.error_code
        return code

    async def commit_offset(
        self, offset: int, version: int = 5, topic: str = "t", generation_id: int = -1
    ) -> ErrorCode:
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
        response = await txn_offset_commit(self.broker, request, CALLER, version)
        return response.topics[0].partitions[0].error_code

    async def settle(self) -> TransactionState:
        """The state that is reached when all markers are written."""
        (machine,) = (machine for _, machine in self.broker.transactions.runtime.machines())
        while (state := state_of(machine.transactions[self.name])).is_open and state is not TransactionState.ONGOING:
            await asyncio.sleep(0)
        return state

    def offset(self) -> int | None:
        """The committed offset of the group."""
        (machine,) = (machine for _, machine in self.broker.groups.runtime.machines())
        committed = machine._offsets.offsets.committed.get("g", {}).get("t", {}).get(0)
        return None if committed is None else committed.offset


def test_a_batch_adds_its_partition_and_the_end_is_a_marker_with_the_next_epoch(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        assert await transactor.init() is ErrorCode.none
        first = transactor.producer
        assert await transactor.send() is ErrorCode.none
        assert await transactor.send(1) is ErrorCode.none
        log = transactor.partition.log
        assert log.first_unstable_offset == 0
        assert await transactor.end() is ErrorCode.none
        assert await transactor.settle() is TransactionState.COMPLETE_COMMIT
        assert log.first_unstable_offset is None
        assert log.log_end_offset == 3
        assert transactor.producer == (first[0], first[1] + 1)
        assert await transactor.send(2, producer=first) is ErrorCode.invalid_producer_epoch
        assert await transactor.send(0) is ErrorCode.none

    run(tmp_path, story)


def test_whoever_registers_again_takes_no_producer_id(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        for _ in range(3):
            assert await transactor.init() is ErrorCode.none
        assert await transactor.broker.producer_ids.next() == transactor.producer[0] + 1

    run(tmp_path, story)


def test_an_end_of_an_id_that_nobody_registered_takes_no_producer_id(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        first = await transactor.broker.producer_ids.next()
        transactor.producer = first, 0
        assert await transactor.end() is ErrorCode.invalid_producer_id_mapping
        assert await transactor.broker.producer_ids.next() == first + 1

    run(tmp_path, story)


def test_older_producers_add_partitions_first(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        assert await transactor.send(version=10) is ErrorCode.invalid_txn_state
        assert await transactor.send(version=11) is ErrorCode.transaction_abortable
        assert transactor.partition.log.log_end_offset == 0
        assert await transactor.add() is ErrorCode.none
        assert await transactor.add(verify_only=True, version=5) is ErrorCode.none
        assert await transactor.add(1, verify_only=True, version=5) is ErrorCode.transaction_abortable
        assert await transactor.add(9) is ErrorCode.unknown_topic_or_partition
        assert await transactor.send(version=10) is ErrorCode.none
        assert await transactor.end(version=4, commit=False) is ErrorCode.none
        assert await transactor.settle() is TransactionState.COMPLETE_ABORT
        assert transactor.partition.log.has_aborted

    run(tmp_path, story)


def test_questions_of_one_request_are_answered_each_in_its_place(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        producer_id, epoch = transactor.producer
        asked = [
            {
                "transactional_id": ID,
                "producer_id": producer_id,
                "producer_epoch": each,
                "verify_only": False,
                "topics": [{"name": "t", "partitions": [0]}],
            }
            for each in (epoch + 1, epoch)
        ]
        request = build(AddPartitionsToTxnRequest, {"transactions": asked})
        response = await handlers.add_partitions_to_txn(transactor.broker, request, CALLER, 5)
        codes = [
            result.topic_results[0].results_by_partition[0].partition_error_code
            for result in response.results_by_transaction
        ]
        assert codes == [ErrorCode.producer_fenced, ErrorCode.none]

    run(tmp_path, story)


def test_a_new_producer_fences_the_old_one(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        zombie = transactor.producer
        await transactor.send()
        assert await transactor.init() is ErrorCode.concurrent_transactions
        await transactor.settle()
        assert await transactor.init() is ErrorCode.none
        heir, transactor.producer = transactor.producer, zombie
        assert await transactor.send(1) is ErrorCode.invalid_producer_epoch
        assert await transactor.add() is ErrorCode.producer_fenced
        assert await transactor.add(version=1) is ErrorCode.invalid_producer_epoch
        assert await transactor.end() is ErrorCode.producer_fenced
        assert await transactor.end(version=1) is ErrorCode.invalid_producer_epoch
        transactor.producer = heir
        assert await transactor.send(0) is ErrorCode.none

    run(tmp_path, story)


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_count_when_the_transaction_is_committed(tmp_path: Path, version: int) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        for offset, commit in ((5, False), (7, True)):
            if version < 5:
                assert await transactor.commit_offset(offset, version) is ErrorCode.invalid_txn_state
                request = zero(
                    AddOffsetsToTxnRequest,
                    transactional_id=ID,
                    group_id="g",
                    producer_id=transactor.producer[0],
                    producer_epoch=transactor.producer[1],
                )
                added = await handlers.add_offsets_to_txn(transactor.broker, request, CALLER, 3)
                assert added.error_code is ErrorCode.none
            assert await transactor.commit_offset(offset, version) is ErrorCode.none
            assert await transactor.commit_offset(1, version, "nowhere") is ErrorCode.unknown_topic_or_partition
            assert transactor.offset() is None
            assert await transactor.end(commit=commit, version=version) is ErrorCode.none
            await transactor.settle()
            assert transactor.offset() == (offset if commit else None)

    run(tmp_path, story)


def test_a_hanging_transaction_can_be_ended_by_hand(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()
        producer_id, epoch = transactor.producer
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "topics": [{"name": "t", "partition_indexes": [0, 9]}],
        }
        request = build(WriteTxnMarkersRequest, {"markers": [marker]})
        response = await write_txn_markers(transactor.broker, request, CALLER)
        codes = [part.error_code for part in response.markers[0].topics[0].partitions]
        assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        assert transactor.partition.log.first_unstable_offset is None

    run(tmp_path, story)


def test_a_partition_whose_followers_hang_does_not_hold_back_the_markers_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        assert await transactor.answer(transactor.produce((0, 1))) == [ErrorCode.none] * 2
        stuck = transactor.broker.replicas.find("t", 1)
        end = stuck.log.log_end_offset
        stuck.leader = PartitionLeader(
            broker_id=1, leader_epoch=0, replicas=(1, 7), isr=(1, 7), log_end_offset=end, high_watermark=end
        )
        producer_id, epoch = transactor.producer

        async def ask(*indexes: int) -> list[ErrorCode]:
            topics = [{"name": "t", "partition_indexes": list(indexes)}]
            marker = {"producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
            request = build(WriteTxnMarkersRequest, {"markers": [marker]})
            response = await asyncio.wait_for(write_txn_markers(transactor.broker, request, CALLER), 10)
            return [part.error_code for part in response.markers[0].topics[0].partitions]

        monkeypatch.setattr(asked_markers, "COMMIT_SECONDS", 0.01)
        assert await ask(1, 0) == [ErrorCode.request_timed_out, ErrorCode.none]
        monkeypatch.setattr(asked_markers, "COMMIT_SECONDS", 3600)
        assert await ask(1) == [ErrorCode.request_timed_out], "nobody waits for it once more"
        stuck.fetched_by(7, 5, 0, end + 1, 0.0)
        assert await ask(1) == [ErrorCode.none]
        assert stuck.log.log_end_offset == end + 1, "it is written but once"
        again = asyncio.ensure_future(ask(1))  # as for the next transaction of an older producer
        while stuck.log.log_end_offset == end + 1:
            await asyncio.sleep(0)
        stuck.fetched_by(7, 5, 0, end + 2, 0.0)
        assert await again == [ErrorCode.none]

    run(tmp_path, story)


def test_a_coordinator_asks_again_later_for_a_marker_that_was_not_committed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_LATER", 0.01)
    monkeypatch.setattr(markers, "RETRY", 3600)

    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()
        late = [RequestTimedOut("its followers hang")] * 2
        write = markers.MarkerWriter.write

        def late_twice(writer: markers.MarkerWriter, tp: TopicPartition, marker: Marker, done: Any) -> None:
            if late:
                done(late.pop())
            else:
                write(writer, tp, marker, done)

        monkeypatch.setattr(markers.MarkerWriter, "write", late_twice)
        assert await transactor.end() is ErrorCode.none
        assert await asyncio.wait_for(transactor.settle(), 10) is TransactionState.COMPLETE_COMMIT
        assert not late

    run(tmp_path, story)


def test_a_partition_that_knows_a_later_epoch_needs_no_marker(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()
        producer_id, epoch = transactor.producer
        transactor.partition.end_transaction(Marker(producer_id, epoch + 5, 0, commit=False, bumped=True), NOW)
        assert await transactor.end() is ErrorCode.none
        assert await transactor.settle() is TransactionState.COMPLETE_COMMIT
        assert await transactor.init() is ErrorCode.none

    run(tmp_path, story)


def test_a_marker_that_a_later_coordinator_forestalled_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_LATER", 0.01)

    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()
        producer_id, _ = transactor.producer
        entry = transactor.partition.log._producers._entries[producer_id]
        entry.coordinator_epoch = 9
        assert await transactor.end() is ErrorCode.none
        assert await transactor.init() is ErrorCode.concurrent_transactions
        entry.coordinator_epoch = 0
        assert await transactor.settle() is TransactionState.COMPLETE_COMMIT

    run(tmp_path, story)


@pytest.mark.parametrize("topic", ["t", CONSUMER_OFFSETS])
def test_a_marker_that_cannot_be_written_for_a_reason_that_nobody_foresaw_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    monkeypatch.setattr(markers, "RETRY_LATER", 0.01)

    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()
        await transactor.commit_offset(5)
        reasons = [ZeroDivisionError("nobody foresaw it")] * 2
        end_transaction = Partition.end_transaction

        def fails_twice(partition: Partition, marker: Marker, now_ms: int) -> int:
            if partition.tp.topic == topic and reasons:
                raise reasons.pop()
            return end_transaction(partition, marker, now_ms)

        monkeypatch.setattr(Partition, "end_transaction", fails_twice)
        assert await transactor.end() is ErrorCode.none
        assert await asyncio.wait_for(transactor.settle(), 10) is TransactionState.COMPLETE_COMMIT
        assert transactor.partition.log.first_unstable_offset is None
        assert transactor.offset() == 5

    run(tmp_path, story)


@pytest.mark.parametrize("behind", [False, True])
def test_a_partition_that_is_not_known_was_deleted_unless_the_broker_has_not_heard_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    monkeypatch.setattr(markers, "RETRY", 0.01)

    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()
        metadata, looked = transactor.broker.metadata, 0
        known = metadata.partition

        def unknown_at_first(topic: str, index: int) -> PartitionImage | None:
            nonlocal looked
            looked += topic == "t"
            return None if topic == "t" and looked < 3 else known(topic, index)

        monkeypatch.setattr(metadata, "partition", unknown_at_first)
        metadata.is_behind = behind
        assert await transactor.end() is ErrorCode.none
        assert await asyncio.wait_for(transactor.settle(), 10) is TransactionState.COMPLETE_COMMIT
        assert (transactor.partition.log.first_unstable_offset is None) == behind, "whether the marker was written"
        assert looked == (3 if behind else 1)

    run(tmp_path, story)


def test_a_batch_comes_again_whose_topic_the_coordinator_does_not_know_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        codes = [ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted]
        ask = transactor.broker.transactions._add_or_verify

        async def unknown_at_first(*question: Any) -> Any:
            return {transactor.partition.tp: codes.pop()} if codes else await ask(*question)

        monkeypatch.setattr(transactor.broker.transactions, "_add_or_verify", unknown_at_first)
        assert await transactor.send() is ErrorCode.not_enough_replicas
        assert await transactor.send() is ErrorCode.not_enough_replicas
        assert await transactor.send() is ErrorCode.none

    run(tmp_path, story)


def test_markers_that_cannot_be_sent_for_a_reason_that_nobody_foresaw_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_LATER", 0.01)

    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()
        reasons = [ZeroDivisionError("nobody foresaw it")]
        leaders = markers.MarkerWriter.leaders

        def elsewhere_at_first(writer: markers.MarkerWriter, places: list[TopicPartition]) -> Any:
            return {2: list(places)} if reasons else leaders(writer, places)

        async def ask(*args: object, **options: object) -> None:
            raise reasons.pop()

        monkeypatch.setattr(markers.MarkerWriter, "leaders", elsewhere_at_first)
        monkeypatch.setattr(transactor.broker.cluster.peers, "ask", ask)
        assert await transactor.end() is ErrorCode.none
        assert await asyncio.wait_for(transactor.settle(), 10) is TransactionState.COMPLETE_COMMIT
        assert not reasons

    run(tmp_path, story)


def test_what_comes_up_while_another_broker_is_asked_goes_to_it_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three producers write and commit at once; coordinator and partitions are taken for another broker's."""
    asked: list[int] = []
    may_answer = asyncio.Event()

    async def story(transactor: Transactor) -> None:
        broker = transactor.broker

        class Channel:
            """Leads to this very broker, through the bytes that go over the wire."""

            async def ask(
                self, key: int, version: int, body: list[bytes], *, flexible: bool, seconds: float
            ) -> memoryview:
                request = codec.decode(ApiKey(key), version, version, memoryview(body[0]), 0)
                response: Any
                if isinstance(request, WriteTxnMarkersRequest):
                    asked.append(len(request.markers))
                    await may_answer.wait()
                    response = await write_txn_markers(broker, request, CALLER)
                else:
                    asked.append(len(request.transactions))
                    response = await handlers.add_partitions_to_txn(broker, request, CALLER, version)
                return memoryview(codec.encode(ApiKey(key), version, 7, response))[8:]

        monkeypatch.setattr(broker.cluster.peers, "_channel", lambda leader, purpose: Channel())
        monkeypatch.setattr(broker.transactions, "_broker_id", 99)
        monkeypatch.setattr(markers.MarkerWriter, "leaders", lambda writer, places: {99: list(places)})
        producers = [Transactor(broker, f"{ID}-{number}") for number in range(3)]
        for producer in producers:
            assert await producer.init() is ErrorCode.none
        answers = [producer.answer(producer.produce((0, 1))) for producer in producers]
        assert await asyncio.gather(*answers) == [[ErrorCode.none] * 2] * 3
        assert asked == [3]
        assert [await producer.end() for producer in producers] == [ErrorCode.none] * 3
        for _ in range(10):  # markers leave some turns after the answer
            await asyncio.sleep(0)
        may_answer.set()
        states = [await asyncio.wait_for(producer.settle(), 10) for producer in producers]
        assert states == [TransactionState.COMPLETE_COMMIT] * 3
        assert asked == [3, 1, 2]

    run(tmp_path, story)


def test_an_overdue_transaction_of_a_producer_with_no_epoch_left_is_aborted_with_a_new_id(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        ((shard, machine),) = transactor.broker.transactions.runtime.machines()
        value = machine.transactions[ID]._replace(producer_epoch=MAX_EPOCH - 1)
        machine.replay(TransactionRecord(TransactionLogKey(ID), value))
        transactor.producer = old = value.producer_id, MAX_EPOCH - 1
        assert await transactor.send() is ErrorCode.none
        shard.apply(machine, machine.expire(TimerKey(TIMEOUT, ID), transactor.broker.clock.now_ms()))
        while machine.transactions[ID].producer_id == old[0]:
            await asyncio.sleep(0.001)
        assert await transactor.settle() is TransactionState.COMPLETE_ABORT
        assert transactor.partition.log.first_unstable_offset is None
        assert await transactor.end(commit=False) is ErrorCode.none
        assert transactor.producer == (machine.transactions[ID].producer_id, 0)
        assert await transactor.send() is ErrorCode.none

    run(tmp_path, story)


def test_transactions_are_listed_and_described(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()

        def listed(**values: Any) -> list[str]:
            request = zero(ListTransactionsRequest, **({"duration_filter": -1} | values))
            response = handlers.list_transactions(transactor.broker, request, CALLER)
            assert response.error_code is ErrorCode.none
            return [each.transactional_id for each in response.transaction_states]

        assert listed() == listed(state_filters=("Ongoing",)) == listed(transactional_id_pattern="pay.*") == [ID]
        assert listed(state_filters=("Empty",)) == listed(producer_id_filters=(99,)) == []
        assert listed(transactional_id_pattern="pay") == listed(duration_filter=10_000) == []
        request = zero(DescribeTransactionsRequest, transactional_ids=(ID, "nobody", ""))
        found, missing, empty = handlers.describe_transactions(transactor.broker, request, CALLER).transaction_states
        assert (found.transaction_state, found.topics[0].topic, found.topics[0].partitions) == ("Ongoing", "t", (0,))
        assert missing.error_code is ErrorCode.transactional_id_not_found
        assert empty.error_code is ErrorCode.invalid_request

    run(tmp_path, story)


def test_a_marker_that_comes_while_the_coordinator_is_asked_refuses_the_batch(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        partition = transactor.partition
        guard = partition.begin_verification(7, 0, 0.0, 0)
        assert guard is not None
        partition.end_transaction(Marker(7, 0, 0, commit=False, bumped=False), NOW)
        with pytest.raises(InvalidTxnState):
            partition.end_verification(7, 0, guard, 0)

    run(tmp_path, story)


def test_a_marker_that_comes_twice_leaves_the_next_transaction_alone(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        partition = transactor.partition
        marker = Marker(7, 1, 0, commit=True, bumped=True)
        partition.end_transaction(marker, NOW)
        guard = partition.begin_verification(7, 1, 0.0, 0)
        assert guard is not None
        partition.end_transaction(marker, NOW)
        partition.end_verification(7, 1, guard, 0)
        guard = partition.begin_verification(7, 1, 0.0, 0)
        assert guard is not None
        partition.end_transaction(Marker(7, 2, 0, commit=False, bumped=True), NOW)
        with pytest.raises(InvalidTxnState):
            partition.end_verification(7, 1, guard, 0)

    run(tmp_path, story)


@pytest.mark.parametrize("epoch", [0, 30_000])
def test_a_batch_of_another_epoch_leaves_a_question_alone(tmp_path: Path, epoch: int) -> None:
    async def story(transactor: Transactor) -> None:
        partition = transactor.partition
        guard = partition.begin_verification(7, 1, 0.0, 0)
        assert guard is not None
        assert partition.begin_verification(7, epoch, 0.0, 0) is not guard
        partition.end_verification(7, 1, guard, 0)

    run(tmp_path, story)


def test_a_batch_of_another_transactional_id_leaves_a_question_alone(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        guard = transactor.partition.begin_verification(*transactor.producer, 0.0, 0)
        assert guard is not None
        assert await transactor.send(transactional_id="stranger") is ErrorCode.invalid_producer_id_mapping
        transactor.partition.end_verification(*transactor.producer, guard, 0)

    run(tmp_path, story)


def test_offsets_that_a_group_refuses_leave_a_question_alone(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        partition = transactor.broker.replicas.find(CONSUMER_OFFSETS, 0)
        guard = partition.begin_verification(*transactor.producer, 0.0)
        assert guard is not None
        assert await transactor.commit_offset(5, generation_id=7) is ErrorCode.illegal_generation
        partition.end_verification(*transactor.producer, guard)

    run(tmp_path, story)


def test_questions_that_nobody_comes_back_to_are_forgotten(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        partition = transactor.partition
        for producer_id in range(100):
            partition.begin_verification(producer_id, 0, float(producer_id), 0)
        kept = partition.begin_verification(3, 0, 100.0, 0)
        assert kept is not None
        partition.begin_verification(100, 0, 99.5 + GIVEN_UP, 0)
        assert set(partition._verifying) == {(3, 0), (100, 0)}
        partition.end_verification(3, 0, kept, 0)

    run(tmp_path, story)


def test_a_batch_does_not_overtake_one_that_was_told_to_come_again(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        partition = transactor.partition
        guard = partition.begin_verification(7, 0, 0.0, 0)
        assert guard is not None
        assert partition.begin_verification(7, 0, 0.0, 5) is guard
        with pytest.raises(OutOfOrderSequence):
            partition.end_verification(7, 0, guard, 5)
        partition.end_verification(7, 0, guard, 0)
        late = partition.begin_verification(8, 1, 0.0, 5)
        assert late is not None
        with pytest.raises(OutOfOrderSequence):
            partition.end_verification(8, 1, late, 5, bumped=True)

    run(tmp_path, story)


def test_a_partition_that_is_led_while_the_coordinator_is_asked_for_another_has_its_batch_come_again(
    tmp_path: Path,
) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        led = transactor.broker.replicas._by_wire
        other = led.pop(("t", 1))
        coming = transactor.produce((0, 1))
        led["t", 1] = other
        assert await transactor.answer(coming) == [ErrorCode.none, ErrorCode.not_enough_replicas]
        assert other.log.first_unstable_offset is None
        assert await transactor.answer(transactor.produce((1,))) == [ErrorCode.none]
        assert await transactor.end() is ErrorCode.none
        assert await transactor.settle() is TransactionState.COMPLETE_COMMIT
        assert transactor.partition.log.first_unstable_offset is other.log.first_unstable_offset is None

    run(tmp_path, story)


def test_a_marker_that_comes_while_the_coordinator_is_asked_for_another_partition_has_the_batch_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        assert [await transactor.add(index) for index in (0, 1)] == [ErrorCode.none] * 2
        assert await transactor.send(version=11) is ErrorCode.none
        transactions = transactor.broker.transactions
        verify = transactions.add_or_verify

        async def after_the_end(*question: Any) -> Any:
            assert await transactor.end(version=4) is ErrorCode.none
            assert await transactor.settle() is TransactionState.COMPLETE_COMMIT
            return await verify(*question)

        monkeypatch.setattr(transactions, "verify_at_once", lambda *question: None)
        monkeypatch.setattr(transactions, "add_or_verify", after_the_end)
        codes = await transactor.answer(transactor.produce((0, 1), sequence=1, version=11), 11)
        assert codes == [ErrorCode.not_enough_replicas, ErrorCode.transaction_abortable]
        assert transactor.partition.log.first_unstable_offset is None

    run(tmp_path, story)


def test_a_marker_that_comes_while_a_batch_is_rewritten_has_it_come_again(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        assert await transactor.send(version=11) is ErrorCode.transaction_abortable
        await transactor.add()
        assert await transactor.send(version=11) is ErrorCode.none
        partition = transactor.partition
        partition.log.config = replace(partition.log.config, compression_type="gzip")
        rewritten = transactor.produce((0,), sequence=1, version=11)
        partition.end_transaction(Marker(*transactor.producer, 0, commit=True, bumped=False), NOW)
        assert await transactor.answer(rewritten, 11) == [ErrorCode.not_enough_replicas]
        assert partition.log.first_unstable_offset is None

    run(tmp_path, story)


def test_a_coordinator_with_too_few_replicas_is_told_of_the_end_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RETRY_LATER", 0.001)

    async def story(transactor: Transactor) -> None:
        await transactor.init()
        await transactor.send()
        ((shard, machine),) = transactor.broker.transactions.runtime.machines()
        assert await transactor.end() is ErrorCode.none
        too_few, looked = Partition.too_few_in_sync, 0

        def looks(partition: Partition) -> Any:
            nonlocal looked
            looked += partition is shard.partition
            return too_few(partition)

        monkeypatch.setattr(Partition, "too_few_in_sync", looks)
        log = shard.partition.log
        enough, log.config = log.config, replace(log.config, min_insync_replicas=2)
        async with asyncio.timeout(10):
            while looked < 3 and shard.machine is machine:
                await asyncio.sleep(0)
        assert transactor.partition.log.first_unstable_offset is None
        log.config = enough
        assert await asyncio.wait_for(transactor.settle(), 10) is TransactionState.COMPLETE_COMMIT
        assert shard.machine is machine

    run(tmp_path, story)


def test_a_transaction_that_grows_too_large_costs_nobody_the_coordinator(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        await transactor.init()
        ((shard, machine),) = transactor.broker.transactions.runtime.machines()
        log = shard.partition.log
        enough, log.config = log.config, replace(log.config, max_message_bytes=100)
        assert await transactor.add() is ErrorCode.unknown_server_error
        assert shard.machine is machine
        log.config = enough
        assert await transactor.add() is ErrorCode.none

    run(tmp_path, story)


@pytest.mark.parametrize("still_leads", [True, False])
def test_a_producer_is_fenced_by_a_coordinator_that_is_sure_to_be_one(tmp_path: Path, still_leads: bool) -> None:
    async def story(transactor: Transactor) -> None:
        assert await transactor.init() is ErrorCode.none
        assert await transactor.send() is ErrorCode.none
        log = transactor.broker.replicas.find(TRANSACTION_STATE, 0)
        end = log.log.log_end_offset
        log.leader = PartitionLeader(
            broker_id=1, leader_epoch=0, replicas=(1, 7), isr=(1, 7), log_end_offset=end, high_watermark=end
        )
        transactor.producer = transactor.producer[0], transactor.producer[1] + 1
        ending = asyncio.ensure_future(transactor.end())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not ending.done()
        if still_leads:
            log.fetched_by(7, 5, 0, end, 0.0)
        else:
            log.fail(NotLeaderOrFollower("another broker leads"))
        assert await ending is (ErrorCode.producer_fenced if still_leads else ErrorCode.not_coordinator)

    run(tmp_path, story)


def test_ids_that_do_not_fit_into_one_batch_are_forgotten_in_several(tmp_path: Path) -> None:
    async def story(transactor: Transactor) -> None:
        for number in range(3):
            await transactor.init(transactional_id=f"{number}" * 40)
        ((shard, machine),) = transactor.broker.transactions.runtime.machines()
        log = shard.partition.log
        log.config = replace(log.config, max_message_bytes=150)
        late = transactor.broker.clock.now_ms() + machine.settings.id_expiration_ms
        shard.tell(lambda machine, now_ms: machine.expire(TimerKey(EXPIRY), late))
        assert shard.machine is machine
        assert not machine.transactions

    run(tmp_path, story)
