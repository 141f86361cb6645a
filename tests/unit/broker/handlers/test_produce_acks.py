"""How many replicas a batch needs before its producer is answered, and how that goes on where leaders change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.handlers.produce import produce
from barnabas.broker.serving.caller import Caller
from barnabas.model.errors import ErrorCode, NotLeaderOrFollower
from barnabas.net.reply import Parked
from barnabas.storage.log.log import Log
from tests.support.images import CALLER
from tests.support.parts import answer_of, make_topic, run
from tests.support.produce_fetch import produce_request, produced
from tests.support.producing import batch, now_led, send, with_follower
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.net.reply import Answer


async def test_acks_of_all_need_enough_replicas_before_and_after_the_append(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", min_insync_replicas="2")
        (refused,) = produced(12, send(broker, 12, batch(), acks=-1))
        partition = broker.replicas.find("t", 0)
        assert refused.error_code is ErrorCode.not_enough_replicas
        assert partition.log.log_end_offset == 0
        partition = with_follower(broker)
        waiting = send(broker, 12, batch(), acks=-1)
        assert isinstance(waiting, Parked)
        assert not waiting.resolved
        partition.commit_isr((1,), 1)
        (result,) = produced(12, await answer_of(waiting))
        assert result.error_code is ErrorCode.not_enough_replicas_after_append
        assert partition.log.log_end_offset == partition.leader.high_watermark == 3
        (alone,) = produced(12, send(broker, 12, batch(), acks=1))
        assert (alone.error_code, alone.base_offset) == (ErrorCode.none, 3)

    await run(tmp_path, story)


async def test_a_batch_is_out_of_order_when_a_follower_shows_that_this_broker_still_leads(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        partition = with_follower(broker)

        def later(**fields: Any) -> Parked:
            waiting = send(broker, 12, batch(1, producer_id=5, producer_epoch=0, **fields), acks=-1)
            assert isinstance(waiting, Parked)
            assert not waiting.resolved
            return waiting

        async def error_of(waiting: Parked) -> ErrorCode:
            (result,) = produced(12, await answer_of(waiting))
            code: ErrorCode = result.error_code
            return code

        first = later(base_sequence=0)
        gap = later(base_sequence=2)
        partition.fetched_by(7, 5, 0, 1, 0.0)
        assert [await error_of(first), await error_of(gap)] == [ErrorCode.none, ErrorCode.out_of_order_sequence_number]
        gap = later(base_sequence=3)
        partition.commit_isr((1,), 1)
        assert await error_of(gap) is ErrorCode.out_of_order_sequence_number
        partition.commit_isr((1, 7), 2)
        gap = later(base_sequence=4)
        partition.fail(NotLeaderOrFollower("another broker leads"))
        assert await error_of(gap) is ErrorCode.not_leader_or_follower

    await run(tmp_path, story)


async def test_acks_all_needs_enough_replicas(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", min_insync_replicas="2")
        (result,) = produced(12, send(broker, 12, batch(), acks=-1))
        assert result.error_code is ErrorCode.not_enough_replicas
        (result,) = produced(12, send(broker, 12, batch(), acks=1))
        assert result.error_code is ErrorCode.none

    await run(tmp_path, story)


async def test_acks_all_waits_on_where_this_broker_leads_on(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t")
        now_led(broker, topic, leader_epoch=1, replicas=(1, 7, 8), isr=(1, 7, 8))
        first = send(broker, 12, batch(), acks=-1)
        second = send(broker, 12, batch(), acks=-1)
        broker.replicas.find("t", 0).fetched_by(7, 5, 0, 6, 0.0)
        now_led(broker, topic, leader_epoch=2, replicas=(1, 7, 8), isr=(1, 7))
        for waiting in (first, second):
            assert isinstance(waiting, Parked)
            assert not waiting.resolved  # what a follower had in the former epoch says nothing of this one
        now_led(broker, topic, leader_epoch=3, replicas=(1, 7, 8), isr=(1, 7))
        partition = broker.replicas.find("t", 0)
        partition.fetched_by(7, 5, 0, 3, 0.0)
        (result,) = produced(12, await answer_of(first))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 0)
        assert isinstance(second, Parked)
        assert not second.resolved
        partition.fetched_by(7, 5, 0, 6, 0.0)
        (result,) = produced(12, await answer_of(second))
        assert (result.error_code, result.base_offset) == (ErrorCode.none, 3)

    await run(tmp_path, story)


async def test_acks_all_is_told_if_too_few_are_in_sync_where_this_broker_leads_on(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t", min_insync_replicas="2")
        now_led(broker, topic, leader_epoch=1, replicas=(1, 7), isr=(1, 7))
        waiting = send(broker, 12, batch(), acks=-1)
        now_led(broker, topic, leader_epoch=2, replicas=(1, 7), isr=(1,))
        (result,) = produced(12, await answer_of(waiting))
        assert result.error_code is ErrorCode.not_enough_replicas_after_append

    await run(tmp_path, story)


async def test_acks_all_waits_no_longer_after_another_broker_led(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t")
        now_led(broker, topic, leader_epoch=1, replicas=(1, 7), isr=(1, 7))
        former = broker.replicas.find("t", 0)
        waiting = send(broker, 12, batch(), acks=-1)
        now_led(broker, topic, leader=7, leader_epoch=2, replicas=(1, 7), isr=(1, 7))
        (result,) = produced(12, await answer_of(waiting))
        assert result.error_code is ErrorCode.not_leader_or_follower
        former.log.truncate_to(0)
        now_led(broker, topic, leader_epoch=3, replicas=(1, 7), isr=(1,))
        produced(12, send(broker, 12, batch(), acks=-1))
        assert broker.replicas.find("t", 0).leader.high_watermark == 3
        errors: list[Any] = []
        former.when_committed(3, errors.append)  # what it waits for was cut: these are other records
        assert [error.code for error in errors] == [ErrorCode.not_leader_or_follower]

    await run(tmp_path, story)


async def test_what_was_stored_before_a_new_leader_epoch_is_answered_when_the_rest_of_its_request_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t", 2, ready=False)
        ready, late = (broker.replicas.find("t", index) for index in (0, 1))
        ready.log.prepare()
        now_led(broker, topic, leader_epoch=1, replicas=(1, 7), isr=(1, 7))
        prepare = Log.prepare

        def prepare_late(log: Log) -> None:
            if log is late.log:
                wait_until(lambda: broker.replicas.find("t", 0).leader.leader_epoch == 2, "the new leader epoch")
            prepare(log)

        monkeypatch.setattr(Log, "prepare", prepare_late)
        frame = produce_request(12, {("t", topic.topic_id, index): batch() for index in (0, 1)}, acks=-1)
        answer = produce(broker, CALLER, 12, 5, frame, 0)
        now_led(broker, topic, leader_epoch=2, replicas=(1, 7), isr=(1, 7))
        async with asyncio.timeout(30):
            while late.log.log_end_offset < 3:
                await asyncio.sleep(0.01)
        broker.replicas.find("t", 0).fetched_by(7, 5, 0, 3, 0.0)
        results = produced(12, await answer_of(answer))
        assert [(result.error_code, result.base_offset) for result in results] == [(ErrorCode.none, 0)] * 2

    await run(tmp_path, story)


async def test_who_waits_on_a_partition_that_has_failed_is_told_at_once(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        partition = broker.replicas.find("t", 0)
        await broker.controller.delete_topics(["t"])
        errors: list[Any] = []
        partition.when_committed(100, errors.append)
        assert [error.code for error in errors] == [ErrorCode.unknown_topic_or_partition]

    await run(tmp_path, story)


async def test_a_deleted_topic_tells_those_who_wait(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        errors: list[Any] = []
        partition.when_committed(100, errors.append)
        await broker.controller.delete_topics(["t"])
        assert [error.code for error in errors] == [ErrorCode.unknown_topic_or_partition]

    await run(tmp_path, story)


@pytest.mark.parametrize("apart", [False, True], ids=["one connection", "another connection"])
async def test_a_batch_behind_one_that_was_turned_away_is_turned_away_too(tmp_path: Path, apart: bool) -> None:
    """Between the two a follower came in sync: the second is out of order through no fault of its producer."""

    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", min_insync_replicas="2")
        partition = with_follower(broker)
        caller, other = (
            Caller(listener="PLAINTEXT", address=("127.0.0.1", port), client_id=None) for port in (40_001, 40_002)
        )

        def sent(sequence: int, caller: Caller = caller) -> Answer | Parked:
            topic = broker.metadata.topic("t")
            assert topic is not None
            records = batch(1, producer_id=5, producer_epoch=0, base_sequence=sequence)
            frame = produce_request(12, {("t", topic.topic_id, 0): records}, acks=-1)
            return produce(broker, caller, 12, 5, frame, 0)

        async def error_of(answer: Answer | Parked) -> ErrorCode:
            partition.fetched_by(7, 5, 0, partition.log.log_end_offset, 0.0)
            (result,) = produced(12, await answer_of(answer) if isinstance(answer, Parked) else answer)
            code: ErrorCode = result.error_code
            return code

        assert await error_of(sent(0)) is ErrorCode.none
        partition.commit_isr((1,), 1)
        (refused,) = produced(12, sent(1))
        assert refused.error_code is ErrorCode.not_enough_replicas
        partition.commit_isr((1, 7), 2)
        assert partition.leader.isr == {1, 7}
        behind = await error_of(sent(2, other if apart else caller))
        assert behind is (ErrorCode.out_of_order_sequence_number if apart else ErrorCode.not_enough_replicas)
        assert [await error_of(sent(1)), await error_of(sent(2))] == [ErrorCode.none] * 2
        assert await error_of(sent(4)) is ErrorCode.out_of_order_sequence_number, "nothing before it was turned away"

    await run(tmp_path, story)
