"""What a share group gets of a log with gaps: aborted transactions and open ones, deleted and compacted records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.replication.verification_guards import Marker
from barnabas.model.errors import ErrorCode
from tests.support.compaction import clean_log, settle
from tests.support.share_letters import NOW, archived, configure, message, produce
from tests.support.share_members import ACCEPT, GAP, Member, acquired, queue, send

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

COMMITTED, OPEN, ABORTED = 7, 8, 9
"""Producers, by what becomes of their transactions; those above are aborted, too."""


def transact(broker: BrokerContext, producer: int, count: int = 2) -> None:
    """Send messages in a transaction."""
    produce(
        broker,
        *(message(b"in") for _ in range(count)),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def end(broker: BrokerContext, producer: int) -> None:
    """End a transaction: a marker follows its messages."""
    marker = Marker(producer, 0, 0, producer < ABORTED, False)
    broker.replicas.find("jobs", 0).end_transaction(marker, NOW)


def three_transactions(broker: BrokerContext) -> None:
    """Offsets 0 and 1 were aborted, 3 and 4 committed, 6 and 7 are open; 2 and 5 are markers, 8 is a plain message."""
    for producer in (ABORTED, COMMITTED):
        transact(broker, producer)
        end(broker, producer)
    transact(broker, OPEN)
    send(broker)


async def test_a_group_that_reads_committed_gets_nothing_of_open_and_aborted_transactions(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await configure(broker, share_isolation_level="read_committed")
        three_transactions(broker)
        anna = Member(broker, topic_id, "anna")
        got = await anna.fetch(wait_ms=5000)
        assert acquired(got) == [(2, 5, 1)], "a marker is a gap for its worker"
        assert await anna.acknowledge((2, 2, GAP), (3, 4, ACCEPT), (5, 5, GAP)) is ErrorCode.none
        assert await anna.fetch() is None, "a message behind an open transaction waits for its end"
        waiting = asyncio.create_task(anna.fetch(wait_ms=20_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        end(broker, OPEN)
        assert acquired(await asyncio.wait_for(waiting, 5)) == [(6, 9, 1)]
        assert await anna.acknowledge((6, 9, ACCEPT)) is ErrorCode.none
        await archived(broker, 10)


async def test_a_group_that_reads_everything_gets_aborted_and_open_transactions_at_once(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        three_transactions(broker)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 8, 1)]
        assert await anna.acknowledge((0, 8, ACCEPT)) is ErrorCode.none


async def test_a_worker_that_takes_one_message_at_a_time_passes_a_log_of_which_everything_was_aborted(
    tmp_path: Path,
) -> None:
    """What was aborted takes nobody's place; each marker is a gap that the worker gets in its stead."""
    async with queue(tmp_path) as (broker, topic_id):
        await configure(broker, share_isolation_level="read_committed")
        for producer in range(ABORTED, ABORTED + 3):
            transact(broker, producer, 4)
            end(broker, producer)
        send(broker)
        anna, seen = Member(broker, topic_id, "anna"), []
        said: tuple[tuple[int, int, int], ...] = ()
        for _ in range(4):
            [(first, last, deliveries)] = acquired(
                await anna.fetch(*said, wait_ms=5000, max_records=1, share_acquire_mode=1)
            )
            seen.append((first, last, deliveries))
            said = ((first, last, ACCEPT if first == 15 else GAP),)
        assert seen == [(4, 4, 1), (9, 9, 1), (14, 14, 1), (15, 15, 1)]
        assert await anna.acknowledge(*said) is ErrorCode.none
        await archived(broker, 16)


@pytest.mark.parametrize("held", [True, False])
async def test_messages_that_are_deleted_from_the_log_are_done_with(tmp_path: Path, held: bool) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 4)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 3, 1)]
        send(broker, 4)
        if not held:
            anna.hang_up()
        broker.replicas.find("jobs", 0).delete_before(6)
        assert acquired(await bela.fetch(wait_ms=5000)) == [(6, 7, 1)]
        if held:
            assert await anna.acknowledge((0, 3, ACCEPT)) is ErrorCode.none, "they are done with, whoever says so"
        assert await bela.acknowledge((6, 7, ACCEPT)) is ErrorCode.none
        await archived(broker, 8)


async def test_messages_that_compaction_removed_keep_nobody_waiting(tmp_path: Path) -> None:
    """Of what was given back, and of what nobody has had, only the newest of each key is left."""
    async with queue(tmp_path) as (broker, topic_id):
        await configure(broker)
        for number in range(6):
            produce(broker, message(b"%d" % number, key=b"k"))
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000, max_records=3, share_acquire_mode=1)) == [(0, 2, 1)]
        assert await anna.acknowledge((1, 1, ACCEPT)) is ErrorCode.none
        anna.hang_up()
        await asyncio.sleep(0.02)
        log = broker.replicas.find("jobs", 0).log
        settle(log)
        clean_log(log, log.store, now_ms=NOW)
        log.prepare()
        assert acquired(await bela.fetch(wait_ms=5000)) == [(5, 5, 1)]
        assert await bela.acknowledge((5, 5, ACCEPT)) is ErrorCode.none
        await archived(broker, 6)
