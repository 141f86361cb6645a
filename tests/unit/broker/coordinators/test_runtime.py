"""The shell of coordinators, with a machine that counts: what it stores, answers and sends."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.coordinators.record_log import _batches
from barnabas.broker.coordinators.shard import MOST_WAITING
from barnabas.machines.outcome import Outcome
from barnabas.model.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, UnknownServerError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Record
from tests.support.counters import (
    COUNT,
    TOPIC,
    Count,
    Counters,
    ask,
    busy,
    counters,
    counting,
    new_call,
    read,
    running_counters,
    settled,
)
from tests.support.parts import make_topic, running_parts
from tests.support.producing import lead_anew
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.coordinators.calls import Call
    from barnabas.broker.coordinators.runtime import Runtime
    from barnabas.machines.outcome import CoordinatorOutcome


@pytest.fixture(autouse=True, params=[False, True], ids=["outcomes", "one record"])
def decided_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for all decisions holds for those of one record, which have a shorter way."""
    monkeypatch.setattr(Counters, "one_record", request.param)


async def test_what_was_decided_survives_the_machine(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC, 3)
        await runtime.loaded()
        for _ in range(20):
            for name in ("a", "b", "c", "d"):
                await ask(runtime, name)
        runtime.resign()
        again = counters(broker)
        lead_anew(broker, TOPIC)
        await again.loaded()
        assert [await read(again, name) for name in ("a", "b", "c", "d")] == [20, 20, 20, 20]
        again.resign()


async def test_nobody_is_asked_before_the_topic_is_there_or_while_it_is_loaded(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        assert isinstance(await ask(runtime, "a"), CoordinatorNotAvailable)
        await make_topic(broker, TOPIC, ready=False)
        assert isinstance(await ask(runtime, "a"), CoordinatorLoadInProgress)
        await runtime.loaded()
        assert await ask(runtime, "a") == 1
        runtime.resign()
        assert isinstance(await ask(runtime, "a"), NotCoordinator)


async def test_replies_wait_for_the_high_watermark(tmp_path: Path) -> None:
    async with running_counters(tmp_path, flush_messages="1") as (_, runtime):
        call = new_call()
        runtime.find("a").ask(lambda machine, _, now_ms: machine.count("a", call), call)
        result = call.result()
        assert asyncio.isfuture(result)
        assert not result.done()
        reading = await read(runtime, "a")  # even a question waits for what it saw
        assert asyncio.isfuture(reading)
        assert [await asyncio.wait_for(each, 30) for each in (result, reading)] == [1, 1]


async def test_one_event_may_answer_many_and_a_timer_answers_too(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (broker, runtime):
        shard = runtime.find("a")
        counted, expired = new_call(), new_call()
        far = broker.clock.now_ms() + 1_000_000
        shard.ask(lambda machine, _, now_ms: machine.wait(counted, far), counted)
        waiting = counted.result()
        assert await ask(runtime, "a") == 1
        assert await asyncio.wait_for(waiting, 30) == "counted"
        shard.ask(lambda machine, _, now_ms: machine.wait(expired, now_ms), expired)
        assert await asyncio.wait_for(expired.result(), 30) == "expired"


async def test_an_error_is_told_in_the_words_of_the_api(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        assert isinstance(await read(runtime, "nobody"), NotCoordinator)


async def test_no_batch_is_larger_than_the_topic_allows(tmp_path: Path) -> None:
    async with running_counters(tmp_path, max_message_bytes="1000") as (broker, runtime):
        one, all_of_them = new_call(), new_call()
        names = [f"name {number}" for number in range(100)]
        shard = runtime.find("a")
        shard.ask(counting("a", one), one)
        shard.ask(lambda machine, _, now_ms: machine.count_all(names, all_of_them), all_of_them)
        results = [call.result() for call in (one, all_of_them)]
        assert [await asyncio.wait_for(each, 30) if asyncio.isfuture(each) else each for each in results] == [1, 100]
        batches = [header for header, _ in _batches(broker.replicas.find(TOPIC, 0).log, 1 << 20)]
        assert sum(header.record_count for header in batches) == 101
        assert max(header.size for header in batches) <= 1_000
        assert len(batches) < 15
        assert isinstance(await ask(runtime, "a", size=1_000), UnknownServerError)
        await runtime.loaded()
        assert await ask(runtime, "a", size=500) == 2


@pytest.mark.parametrize("then", ["a large decision", "a failure"])
async def test_what_leaves_may_come_back_as_a_question_and_finds_a_machine_that_is_up_to_date(
    tmp_path: Path, then: str
) -> None:
    async with running_parts(tmp_path) as broker:
        back = new_call()
        runtime = counters(broker, send=lambda shard, name: shard.ask(counting(name, back), back))
        await make_topic(broker, TOPIC, max_message_bytes="1000")
        await runtime.loaded()
        first, second = new_call(), new_call()
        shard = busy(runtime.find("a"))
        shard.ask(lambda machine, _, now_ms: machine.count_and_send("a", first), first)
        if then == "a large decision":  # what waits is written before it, and what is sent leaves
            shard.ask(lambda machine, _, now_ms: machine.count("a", second, size=900), second)
        else:

            def decide(machine: Counters, _: Call[Any], now_ms: int) -> CoordinatorOutcome[Count]:
                machine.counts["a"] = 99
                raise ValueError("planted")

            shard.ask(decide, second)
        await asyncio.sleep(0)
        await runtime.loaded()
        answers = [await settled(call) for call in (first, second, back)]
        if then == "a large decision":
            assert answers == [1, 2, 3]
            assert await ask(runtime, "a") == 4
        else:
            assert answers[0] == 1
            assert [type(answer) for answer in answers[1:]] == [UnknownServerError, CoordinatorLoadInProgress]
            assert await ask(runtime, "a") == 2
        runtime.resign()


@pytest.mark.parametrize(("kind", "expected"), [(ControlType.COMMIT, 7), (ControlType.ABORT, 1)])
async def test_a_transaction_counts_from_its_marker_on(tmp_path: Path, kind: ControlType, expected: int) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, TOPIC)
        partition = broker.replicas.find(TOPIC, 0)
        now_ms = broker.clock.now_ms()
        for batch in (
            build_batch([Record(0, 0, b"a", COUNT.pack(1))], base_timestamp=now_ms),
            build_batch(
                [Record(0, 0, b"a", COUNT.pack(7))],
                base_timestamp=now_ms,
                producer_id=5,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            ),
            build_marker(EndOfTransaction(kind, 0), timestamp=now_ms, producer_id=5, producer_epoch=0),
        ):
            partition.append(batch, read_header(batch), now_ms)
        runtime = counters(broker)
        lead_anew(broker, TOPIC)
        await runtime.loaded()
        assert await read(runtime, "a") == expected
        runtime.resign()


async def test_what_is_decided_in_one_turn_is_one_batch_and_nobody_hears_of_it_before(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (broker, runtime):
        shard = busy(runtime.find("a"))
        calls = [new_call() for _ in range(10)]
        for call in calls:
            shard.ask(counting("a", call), call)
        results = [call.result() for call in calls]
        reading = await read(runtime, "a")
        assert asyncio.isfuture(reading)  # it saw what is not stored yet
        assert not any(result.done() for result in results)
        assert [await asyncio.wait_for(each, 30) for each in (*results, reading)] == [*range(1, 11), 10]
        batches = list(_batches(broker.replicas.find(TOPIC, 0).log, 1 << 20))
        assert [header.record_count for header, _ in batches] == [10]


async def test_the_first_of_many_decisions_of_a_turn_do_not_wait_for_its_end(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (broker, runtime):
        shard = busy(runtime.find("a"))
        calls = [new_call() for _ in range(2 * MOST_WAITING + 1)]
        for call in calls:
            shard.ask(counting("a", call), call)
        *told, last = [call.result() for call in calls]
        assert told == list(range(1, 2 * MOST_WAITING + 1))
        assert asyncio.isfuture(last)
        assert await asyncio.wait_for(last, 30) == len(calls)
        batches = list(_batches(broker.replicas.find(TOPIC, 0).log, 1 << 20))
        assert [header.record_count for header, _ in batches] == [MOST_WAITING, MOST_WAITING, 1]


def depth() -> int:
    """How many calls are under way."""
    frame, count = sys._getframe(), 0
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        count += 1
    return count


async def test_those_who_are_told_early_and_ask_again_wait_for_the_end_of_the_turn(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (broker, runtime):
        shard, log = busy(runtime.find("a")), broker.replicas.find(TOPIC, 0).log
        told: list[int] = []
        depths: list[int] = []
        rounds = 300

        def begin(left: int) -> None:
            def ask_again(number: int) -> None:
                told.append(number)
                depths.append(depth())
                if left:
                    begin(left - 1)

            call = new_call()
            call.deliver_to(ask_again)
            shard.ask(counting("a", call), call)

        for _ in range(MOST_WAITING):
            begin(rounds)
        assert len(told) == MOST_WAITING
        await until(lambda: len(told) == MOST_WAITING * (rounds + 1))
        assert told == list(range(1, len(told) + 1))
        assert max(depths) < min(depths) + 10
        batches = list(_batches(log, 1 << 20))
        assert {header.record_count for header, _ in batches} == {MOST_WAITING}


@pytest.mark.parametrize("waits_for", ["another replica", "a sync"])
async def test_decisions_whose_answers_cannot_leave_early_are_one_batch(tmp_path: Path, waits_for: str) -> None:
    configs = {"flush_messages": "1"} if waits_for == "a sync" else {}
    async with running_counters(tmp_path, **configs) as (_, runtime):
        shard = busy(runtime.find("a"))
        if waits_for == "another replica":
            shard.partition.leader.isr |= {7}
        calls = [new_call() for _ in range(3 * MOST_WAITING)]
        for call in calls:
            shard.ask(counting("a", call), call)
        log = shard.partition.log
        assert log.log_end_offset == 0
        assert [await settled(call) for call in calls] == list(range(1, len(calls) + 1))
        assert [header.record_count for header, _ in _batches(log, 1 << 20)] == [len(calls)]


async def unwritten(runtime: Runtime[Counters]) -> None:
    """A decision that nobody asked for waits for the end of the turn."""
    shard = busy(runtime.find("a"))
    shard.decide_event(lambda machine, now_ms: Outcome(changes=(("a", 2, 0),)))


async def with_a_reply_that_waits(runtime: Runtime[Counters]) -> None:
    """Somebody asked, and what was decided has not been appended."""
    runtime.find("a")._waiting.append((new_call(), 1))


async def uncommitted(runtime: Runtime[Counters]) -> None:
    """A follower has to fetch what is in the log."""
    leader = runtime.find("a").partition.leader
    leader.high_watermark -= 1


async def with_too_few_in_sync(runtime: Runtime[Counters]) -> None:
    """Nothing may be stored."""
    log = runtime.find("a").partition.log
    log.update_config(replace(log.config, min_insync_replicas=2))


@pytest.mark.parametrize("become", [unwritten, with_a_reply_that_waits, uncommitted, with_too_few_in_sync])
async def test_a_coordinator_is_settled_while_all_is_stored_and_committed_and_more_could_be(
    tmp_path: Path, become: Callable[[Runtime[Counters]], Awaitable[None]]
) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        assert await ask(runtime, "a") == 1
        shard = runtime.find("a")
        assert shard.is_settled()
        await become(runtime)
        assert not shard.is_settled()
        shard._waiting.clear()


async def test_a_decision_that_comes_alone_is_stored_and_told_at_once(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (broker, runtime):
        shard, log = runtime.find("a"), broker.replicas.find(TOPIC, 0).log
        for number in (1, 2, 3):
            call = new_call()
            shard.ask(counting("a", call), call)
            assert (call.result(), log.log_end_offset) == (number, number)
            await asyncio.sleep(0)


async def test_a_second_decision_of_a_turn_waits_for_others_and_so_does_the_first_of_the_next(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (broker, runtime):
        shard, log = runtime.find("a"), broker.replicas.find(TOPIC, 0).log
        sizes = []
        for count in (3, 2, 1, 1):
            calls = [new_call() for _ in range(count)]
            for call in calls:
                shard.ask(counting("a", call), call)
            for call in calls:
                await settled(call)
            await asyncio.sleep(0)
            sizes.append([header.record_count for header, _ in _batches(log, 1 << 20)])
        assert sizes == [[1, 2], [1, 2, 2], [1, 2, 2, 1], [1, 2, 2, 1, 1]]
        last = new_call()
        shard.ask(counting("a", last), last)
        assert last.result() == 8, "after a turn with one decision the next is told at once again"


async def test_who_is_answered_at_once_and_asks_again_is_answered_in_order(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (broker, runtime):
        shard, log = runtime.find("a"), broker.replicas.find(TOPIC, 0).log
        told: list[tuple[int, int]] = []

        def ask_again(number: int) -> None:
            told.append((number, log.log_end_offset))
            if number < 6:
                following = new_call()
                following.deliver_to(ask_again)
                shard.ask(counting("a", following), following)

        first = new_call()
        first.deliver_to(ask_again)
        shard.ask(counting("a", first), first)
        await until(lambda: len(told) == 6)
        assert told == [(number, number) for number in range(1, 7)], "the number, and how much was stored by then"


async def test_what_waits_to_be_stored_when_a_coordinator_ends_is_refused(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        call = new_call()
        busy(runtime.find("a")).ask(lambda machine, _, now_ms: machine.count("a", call), call)
        result = call.result()
        runtime.resign()
        assert isinstance(await asyncio.wait_for(result, 30), NotCoordinator)
        await asyncio.sleep(0)
        assert broker.replicas.find(TOPIC, 0).log.log_end_offset == 0
