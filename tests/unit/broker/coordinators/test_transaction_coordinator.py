"""Coordinators of transactions at their limits: epochs, sizes of batches, doubts about who leads."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from barnabas.machines.transactions.coordinator import EXPIRY, TIMEOUT, TransactionTimer
from barnabas.machines.transactions.states import TransactionState
from barnabas.model.errors import ErrorCode, NotLeaderOrFollower
from barnabas.model.internal_topics import TRANSACTION_STATE
from barnabas.protocol.coordinator_records.transaction_state import TransactionLogKey, TransactionRecord
from barnabas.protocol.records.batch import MAX_PRODUCER_EPOCH
from tests.support.producing import with_follower
from tests.support.transactor import ID, transacting

if TYPE_CHECKING:
    from pathlib import Path


async def test_an_overdue_transaction_of_a_producer_with_no_epoch_left_is_aborted_with_a_new_id(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        ((shard, machine),) = transactor.broker.transactions.runtime.machines()
        value = machine.transactions[ID]._replace(producer_epoch=MAX_PRODUCER_EPOCH - 1)
        machine.replay(TransactionRecord(TransactionLogKey(ID), value))
        transactor.producer = old = value.producer_id, MAX_PRODUCER_EPOCH - 1
        assert await transactor.send() is ErrorCode.none
        now_ms = transactor.broker.clock.now_ms()
        shard.apply(machine, machine.expire(TransactionTimer(TIMEOUT, ID), now_ms), now_ms)
        while machine.transactions[ID].producer_id == old[0]:
            await asyncio.sleep(0.001)
        assert await transactor.settle() is TransactionState.COMPLETE_ABORT
        assert transactor.partition.log.producers.first_unstable_offset is None
        assert await transactor.end(commit=False) is ErrorCode.none
        assert transactor.producer == (machine.transactions[ID].producer_id, 0)
        assert await transactor.send() is ErrorCode.none


async def test_a_transaction_that_grows_too_large_costs_nobody_the_coordinator(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.init()
        ((shard, machine),) = transactor.broker.transactions.runtime.machines()
        log = shard.partition.log
        enough = log.config
        log.update_config(replace(log.config, max_message_bytes=100))
        assert await transactor.add() is ErrorCode.unknown_server_error
        assert shard.machine is machine
        log.update_config(enough)
        assert await transactor.add() is ErrorCode.none


@pytest.mark.parametrize("still_leads", [True, False])
async def test_a_producer_is_fenced_by_a_coordinator_that_is_sure_to_be_one(tmp_path: Path, still_leads: bool) -> None:
    async with transacting(tmp_path) as transactor:
        await transactor.begin()
        log = with_follower(transactor.broker, TRANSACTION_STATE)
        await transactor.broker.transactions.runtime.loaded()
        end = log.log.log_end_offset
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


async def test_ids_that_do_not_fit_into_one_batch_are_forgotten_in_several(tmp_path: Path) -> None:
    async with transacting(tmp_path) as transactor:
        for number in range(3):
            await transactor.init(transactional_id=f"{number}" * 40)
        ((shard, machine),) = transactor.broker.transactions.runtime.machines()
        log = shard.partition.log
        log.config = replace(log.config, max_message_bytes=150)
        late = transactor.broker.clock.now_ms() + machine.settings.id_expiration_ms
        shard.decide_event(lambda machine, now_ms: machine.expire(TransactionTimer(EXPIRY), late))
        assert shard.machine is machine
        assert not machine.transactions
