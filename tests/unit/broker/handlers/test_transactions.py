"""Transactions from InitProducerId to their end, over real logs on one broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest

from barnabas.broker.coordinators import reply_deadline
from barnabas.broker.coordinators.runtime import Runtime
from barnabas.broker.handlers import transactions as handlers
from barnabas.machines.transactions.states import TransactionState
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.protocol.messages.groups.txn_offset_commit import TxnOffsetCommitResponse
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER
from tests.support.logs import headers
from tests.support.producing import with_follower
from tests.support.transactor import ID, transacting
from tests.support.wire import build

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_batch_adds_its_partition_and_the_end_is_a_marker_with_the_next_epoch(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        assert await transactor.init() is ErrorCode.none
        first = transactor.producer
        assert await transactor.send() is ErrorCode.none
        assert await transactor.send(1) is ErrorCode.none
        log = transactor.partition.log
        assert log.producers.first_unstable_offset == 0
        await transactor.commit()
        assert log.producers.first_unstable_offset is None
        assert log.log_end_offset == 3
        assert transactor.producer == (first[0], first[1] + 1)
        assert await transactor.send(2, producer=first) is ErrorCode.invalid_producer_epoch
        assert await transactor.send(0) is ErrorCode.none


async def test_whoever_registers_again_takes_no_producer_id(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        for _ in range(3):
            assert await transactor.init() is ErrorCode.none
        assert await transactor.broker.producer_ids.next() == transactor.producer[0] + 1


async def test_an_end_of_an_id_that_nobody_registered_takes_no_producer_id(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        first = await transactor.broker.producer_ids.next()
        transactor.producer = first, 0
        assert await transactor.end() is ErrorCode.invalid_producer_id_mapping
        assert await transactor.broker.producer_ids.next() == first + 1


async def test_older_producers_add_partitions_first(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
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
        assert transactor.partition.log.producers.has_aborted


async def test_questions_of_one_request_are_answered_each_in_its_place(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
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


async def test_a_coordinator_whose_followers_hang_does_not_hold_back_the_questions_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers ask for many transactions in one request, and for the next when that is answered."""
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        state = with_follower(transactor.broker, TRANSACTION_STATE)
        await transactor.broker.transactions.runtime.loaded()
        end = state.log.log_end_offset
        monkeypatch.setattr(reply_deadline, "COMMIT_SECONDS", 0.01)
        assert await transactor.add(0, 5) is ErrorCode.coordinator_not_available
        monkeypatch.setattr(reply_deadline, "COMMIT_SECONDS", 3600)
        assert await transactor.add(1, 5) is ErrorCode.coordinator_not_available
        while state.log.log_end_offset < end + 2:
            await asyncio.sleep(0)
        state.fetched_by(7, 5, 0, end + 2, 0.0)
        assert await transactor.add(0, 5, verify_only=True) is ErrorCode.none


async def test_a_new_producer_fences_the_old_one(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
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


@pytest.mark.parametrize("version", [3, 5])
async def test_offsets_count_when_the_transaction_is_committed(tmp_path: Path, version: int) -> None:
    async with transacting(tmp_path) as transactor:
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
            assert await transactor.offset() is None
            assert await transactor.end(commit=commit, version=version) is ErrorCode.none
            await transactor.settle()
            assert await transactor.offset() == (offset if commit else None)


async def test_only_the_first_offset_of_a_transaction_waits_for_its_verification(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        first = transactor.answer_to_commit(5)
        assert isinstance(first, Awaitable)
        assert (await first).topics[0].partitions[0].error_code is ErrorCode.none
        second = transactor.answer_to_commit(6)
        assert isinstance(second, TxnOffsetCommitResponse)
        assert second.topics[0].partitions[0].error_code is ErrorCode.none
        await transactor.commit()
        await transactor.settle()
        assert await transactor.offset() == 6
        third = transactor.answer_to_commit(7)
        assert isinstance(third, Awaitable), "the next transaction is not verified"
        assert (await third).topics[0].partitions[0].error_code is ErrorCode.none


async def test_offsets_cannot_be_added_while_the_topic_of_groups_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Runtime.partition_for
    monkeypatch.setattr(
        Runtime, "partition_for", lambda runtime, key: None if runtime.topic == CONSUMER_OFFSETS else find(runtime, key)
    )
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        request = zero(AddOffsetsToTxnRequest, transactional_id=ID, group_id="g")
        added = await handlers.add_offsets_to_txn(transactor.broker, request, CALLER, 3)
        assert added.error_code is ErrorCode.coordinator_not_available


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_ends_although_the_topic_of_groups_was_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, commit: bool
) -> None:
    async with transacting(tmp_path) as transactor:
        broker = transactor.broker
        await transactor.begin()
        assert await transactor.commit_offset(5, 5) is ErrorCode.none
        await broker.controller.delete_topics([CONSUMER_OFFSETS])
        assert await transactor.commit_offset(6, 5) is ErrorCode.coordinator_not_available
        assert await transactor.end(commit=commit) is ErrorCode.none
        state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        assert await asyncio.wait_for(transactor.settle(), 30) is state
        assert await transactor.send(0) is ErrorCode.none
        request = zero(
            AddOffsetsToTxnRequest,
            transactional_id=ID,
            group_id="g",
            producer_id=transactor.producer[0],
            producer_epoch=transactor.producer[1],
        )
        added = await handlers.add_offsets_to_txn(broker, request, CALLER, 3)
        assert added.error_code is ErrorCode.none, "which made the topic again"
        await broker.groups.runtime.loaded()
        assert await transactor.offset() is None
        assert await transactor.commit_offset(7, 5) is ErrorCode.none
        await transactor.commit()
        assert await transactor.offset() == 7
    assert not [each for each in caplog.records if each.exc_info or each.levelname == "ERROR"]


async def test_transactions_are_listed_and_described(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.begin()

        async def listed(**values: Any) -> list[str]:
            request = zero(ListTransactionsRequest, **({"duration_filter": -1} | values))
            response = await handlers.list_transactions(transactor.broker, request, CALLER)
            assert response.error_code is ErrorCode.none
            return [each.transactional_id for each in response.transaction_states]

        assert await listed() == await listed(state_filters=("Ongoing",)) == [ID]
        assert await listed(transactional_id_pattern="pay.*") == [ID]
        assert await listed(state_filters=("Empty",)) == await listed(producer_id_filters=(99,)) == []
        assert await listed(transactional_id_pattern="pay") == await listed(duration_filter=10_000) == []
        request = zero(DescribeTransactionsRequest, transactional_ids=(ID, "nobody", ""))
        described = await handlers.describe_transactions(transactor.broker, request, CALLER)
        found, missing, empty = described.transaction_states
        assert (found.transaction_state, found.topics[0].topic, found.topics[0].partitions) == ("Ongoing", "t", (0,))
        assert missing.error_code is ErrorCode.transactional_id_not_found
        assert empty.error_code is ErrorCode.invalid_request


async def test_offsets_of_a_transaction_are_written_with_the_sequence_that_kafka_writes(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        assert await transactor.init() is ErrorCode.none
        log = transactor.broker.replicas.find(CONSUMER_OFFSETS, 0).log
        for offset in (3, 4):
            for _ in range(2):
                assert await transactor.commit_offset(offset) is ErrorCode.none
            await transactor.commit()
            assert await transactor.offset() == offset
        commits = [header for header in headers(log) if header.is_transactional and not header.is_control]
        assert [header.base_sequence for header in commits] == [0, 0, 0, 0]
