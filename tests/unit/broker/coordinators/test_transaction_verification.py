"""What is asked of the coordinator before a batch of a transaction is written, and what may come in between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.coordinators import transactions
from barnabas.broker.coordinators.transactions import TransactionCoordinators
from barnabas.broker.replication.verification_guards import VERIFICATION_SECONDS, Marker
from barnabas.machines.transactions.states import TransactionState
from barnabas.model.errors import ErrorCode, InvalidTxnState, OutOfOrderSequence
from barnabas.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.net.reply import HANG_UP, Parked
from tests.support.other_broker import added, move_to_other, other_broker
from tests.support.transactor import NOW, transacting

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_batch_comes_again_whose_topic_the_coordinator_does_not_know_yet(tmp_path: Path) -> None:
    codes = [ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted]

    async def answer(request: Any) -> Any:
        return added(request, codes.pop())

    async with transacting(tmp_path, other_broker(answer)) as transactor:
        await transactor.init()
        move_to_other(transactor.broker, TRANSACTION_STATE)
        assert await transactor.send() is ErrorCode.not_enough_replicas
        assert await transactor.send() is ErrorCode.not_enough_replicas
        assert await transactor.send() is ErrorCode.none


async def test_a_marker_that_comes_while_the_coordinator_is_asked_refuses_the_batch(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        partition = transactor.partition
        guard = partition.verification.begin(7, 0, 0.0, 0)
        assert guard is not None
        partition.end_transaction(Marker(7, 0, 0, commit=False, bumped=False), NOW)
        with pytest.raises(InvalidTxnState):
            partition.verification.check(7, 0, guard, 0)


async def test_a_marker_that_comes_twice_leaves_the_next_transaction_alone(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        partition = transactor.partition
        marker = Marker(7, 1, 0, commit=True, bumped=True)
        partition.end_transaction(marker, NOW)
        guard = partition.verification.begin(7, 1, 0.0, 0)
        assert guard is not None
        partition.end_transaction(marker, NOW)
        partition.verification.check(7, 1, guard, 0)
        guard = partition.verification.begin(7, 1, 0.0, 0)
        assert guard is not None
        partition.end_transaction(Marker(7, 2, 0, commit=False, bumped=True), NOW)
        with pytest.raises(InvalidTxnState):
            partition.verification.check(7, 1, guard, 0)


@pytest.mark.parametrize("epoch", [0, 30_000])
async def test_a_batch_of_another_epoch_leaves_a_question_alone(tmp_path: Path, epoch: int) -> None:
    async with transacting(tmp_path) as transactor:
        partition = transactor.partition
        guard = partition.verification.begin(7, 1, 0.0, 0)
        assert guard is not None
        assert partition.verification.begin(7, epoch, 0.0, 0) is not guard
        partition.verification.check(7, 1, guard, 0)


async def test_a_batch_of_another_transactional_id_leaves_a_question_alone(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        guard = transactor.partition.verification.begin(*transactor.producer, 0.0, 0)
        assert guard is not None
        assert await transactor.send(transactional_id="stranger") is ErrorCode.invalid_producer_id_mapping
        transactor.partition.verification.check(*transactor.producer, guard, 0)


async def test_offsets_that_a_group_refuses_leave_a_question_alone(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        partition = transactor.broker.replicas.find(CONSUMER_OFFSETS, 0)
        guard = partition.verification.begin(*transactor.producer, 0.0)
        assert guard is not None
        assert await transactor.commit_offset(5, generation_id=7) is ErrorCode.illegal_generation
        partition.verification.check(*transactor.producer, guard)


async def test_questions_that_nobody_comes_back_to_are_forgotten(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        partition = transactor.partition
        guards = [partition.verification.begin(producer_id, 0, float(producer_id), 0) for producer_id in range(100)]
        assert partition.verification.begin(3, 0, 100.0, 0) is guards[3]
        now = 99.5 + VERIFICATION_SECONDS
        partition.verification.begin(100, 0, now, 0)
        partition.verification.check(3, 0, guards[3], 0)
        for producer_id, guard in enumerate(guards):
            again = partition.verification.begin(producer_id, 0, now, 0)
            assert (again is guard) == (producer_id == 3), producer_id


async def test_a_batch_does_not_overtake_one_that_was_told_to_come_again(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        partition = transactor.partition
        guard = partition.verification.begin(7, 0, 0.0, 0)
        assert guard is not None
        assert partition.verification.begin(7, 0, 0.0, 5) is guard
        with pytest.raises(OutOfOrderSequence):
            partition.verification.check(7, 0, guard, 5)
        partition.verification.check(7, 0, guard, 0)
        late = partition.verification.begin(8, 1, 0.0, 5)
        assert late is not None
        with pytest.raises(OutOfOrderSequence):
            partition.verification.check(8, 1, late, 5, bumped=True)


async def test_a_partition_that_is_led_while_the_coordinator_is_asked_for_another_has_its_batch_come_again(
    tmp_path: Path,
) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        other, partitions = transactor.broker.replicas.find("t", 1), transactor.broker.replicas.partitions
        partitions.remove_leader(other)
        coming = transactor.produce((0, 1))
        partitions.add_leader(other)
        assert await transactor.answer(coming) == [ErrorCode.none, ErrorCode.not_enough_replicas]
        assert other.log.producers.first_unstable_offset is None
        assert await transactor.answer(transactor.produce((1,))) == [ErrorCode.none]
        await transactor.commit()
        assert (
            transactor.partition.log.producers.first_unstable_offset
            is other.log.producers.first_unstable_offset
            is None
        )


async def test_a_marker_that_comes_while_the_coordinator_is_asked_for_another_partition_has_the_batch_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, is_last = TransactionCoordinators.add_or_verify, False

    async def after_the_end(coordinators: TransactionCoordinators, *question: Any) -> Any:
        if is_last:
            assert await transactor.end(version=4) is ErrorCode.none
            assert await transactor.settle() is TransactionState.COMPLETE_COMMIT
        return await verify(coordinators, *question)

    monkeypatch.setattr(TransactionCoordinators, "verify_at_once", lambda *question: None)
    monkeypatch.setattr(TransactionCoordinators, "add_or_verify", after_the_end)
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        assert [await transactor.add(index) for index in (0, 1)] == [ErrorCode.none] * 2
        assert await transactor.send(version=11) is ErrorCode.none
        is_last = True
        codes = await transactor.answer(transactor.produce((0, 1), sequence=1, version=11), 11)
        assert codes == [ErrorCode.not_enough_replicas, ErrorCode.transaction_abortable]
        assert transactor.partition.log.producers.first_unstable_offset is None


async def test_a_marker_that_comes_while_a_batch_is_rewritten_has_it_come_again(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        assert await transactor.send(version=11) is ErrorCode.transaction_abortable
        await transactor.add()
        assert await transactor.send(version=11) is ErrorCode.none
        partition = transactor.partition
        partition.log.update_config(replace(partition.log.config, compression_type="gzip"))
        rewritten = transactor.produce((0,), sequence=1, version=11)
        partition.end_transaction(Marker(*transactor.producer, 0, commit=True, bumped=False), NOW)
        assert await transactor.answer(rewritten, 11) == [ErrorCode.not_enough_replicas]
        assert partition.log.producers.first_unstable_offset is None


async def test_a_stop_does_not_wait_long_for_a_coordinator_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "STOP_SECONDS", 0.01)

    async def hang(request: Any) -> None:
        await asyncio.Event().wait()

    async with transacting(tmp_path, other_broker(hang)) as transactor:
        broker = transactor.broker
        await transactor.init()
        move_to_other(broker, TRANSACTION_STATE)
        parked = transactor.produce((0,))
        assert isinstance(parked, Parked)
        async with asyncio.timeout(30):
            await broker.transactions.stop()
        assert parked.answer is HANG_UP
        assert transactor.partition.log.log_end_offset == 0
