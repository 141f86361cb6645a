"""The shell of coordinators when something fails: storing, loading, leading, or the machine itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.coordinators import record_log
from barnabas.broker.coordinators.runtime import Runtime
from barnabas.model.clock import ManualClock
from barnabas.model.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    StorageFailed,
    UnknownServerError,
)
from tests.support.counters import (
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
)
from tests.support.parts import append, make_topic, running_parts
from tests.support.producing import lead_anew
from tests.support.share_letters import delete_topic
from tests.support.waiting import until, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.coordinators.calls import Call
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.machines.outcome import CoordinatorOutcome
    from barnabas.storage.log.log import Log


@pytest.fixture(autouse=True, params=[False, True], ids=["outcomes", "one record"])
def decided_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for all decisions holds for those of one record, which have a shorter way."""
    monkeypatch.setattr(Counters, "one_record", request.param)


async def test_a_lost_partition_answers_whoever_waits(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        call = new_call()
        far = broker.clock.now_ms() + 1_000_000
        runtime.find("a").ask(lambda machine, _, now_ms: machine.wait(call, far), call)
        waiting = call.result()
        await broker.controller.delete_topics([TOPIC])
        assert await asyncio.wait_for(waiting, 30) == "not_coordinator"
        assert isinstance(await ask(runtime, "a"), CoordinatorNotAvailable)


async def test_a_decision_that_cannot_be_stored_is_undone(tmp_path: Path) -> None:
    async with running_counters(tmp_path, segment_bytes="2000000") as (_, runtime):
        assert await ask(runtime, "a") == 1
        assert isinstance(await ask(runtime, "a", size=3_000_000), UnknownServerError)
        await runtime.loaded()
        assert await read(runtime, "a") == 1
        assert await ask(runtime, "a") == 2


async def test_a_decision_that_is_too_large_costs_nobody_else_an_answer(tmp_path: Path) -> None:
    async with running_counters(tmp_path, max_message_bytes="1000") as (_, runtime):
        small, large = new_call(), new_call()
        shard = runtime.find("a")
        shard.ask(counting("a", small), small)
        shard.ask(lambda machine, _, now_ms: machine.count("a", large, size=1000), large)
        assert small.result() == 1
        assert isinstance(large.result(), UnknownServerError)
        await runtime.loaded()
        assert await read(runtime, "a") == 1


async def test_a_coordinator_with_too_few_replicas_is_loaded_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.coordinators.shard.RETRY_MS", 50)
    async with running_counters(tmp_path) as (_, runtime):
        call = new_call()
        shard = busy(runtime.find("a"))
        shard.ask(counting("a", call), call)
        log = shard.partition.log
        enough = log.config
        log.update_config(replace(log.config, min_insync_replicas=2))
        result = call.result()
        assert isinstance(await asyncio.wait_for(result, 30), CoordinatorNotAvailable)
        assert shard.machine is None
        log.update_config(enough)
        await asyncio.wait_for(runtime.loaded(), 30)
        assert await ask(runtime, "a") == 1


async def test_who_asks_again_at_once_after_a_failure_does_not_reach_the_machine_that_failed(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        call, other, again, reading = (new_call() for _ in range(4))
        shard = busy(runtime.find("a"))
        told: list[Any] = []

        def ask_again(error: Any) -> None:
            told.append(error)
            shard.ask(counting("a", again), again)
            shard.read(lambda machine, _, now_ms: machine.read("a", reading), reading)

        shard.ask(counting("a", call), call)
        shard.ask(counting("a", other), other)
        call.deliver_to(ask_again)
        other.deliver_to(told.append)
        log = shard.partition.log
        log.update_config(replace(log.config, min_insync_replicas=2))
        await until(lambda: len(told) == 2)
        assert all(isinstance(each, CoordinatorNotAvailable) for each in told)
        assert isinstance(again.result(), CoordinatorNotAvailable)
        assert isinstance(reading.result(), CoordinatorNotAvailable)


@pytest.mark.parametrize("outcome", ["stored", "refused"])
async def test_an_answer_that_cannot_be_handed_on_costs_nobody_else_theirs(
    tmp_path: Path, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    def lose(response: object) -> None:
        raise ValueError("planted")

    async with running_counters(tmp_path) as (_, runtime):
        shard = busy(runtime.find("a"))
        first, second, waiting = new_call(), new_call(), new_call()
        for call in (waiting, first, second):
            call.deliver_to(lose)
        answered = second.result()
        shard.ask(lambda machine, _, now_ms: machine.wait(waiting, now_ms + 1_000_000), waiting)
        shard.ask(counting("a", first), first)
        shard.ask(counting("a", second), second)
        if outcome == "refused":
            log = shard.partition.log
            log.update_config(replace(log.config, min_insync_replicas=2))
        assert asyncio.isfuture(answered)
        result = await asyncio.wait_for(answered, 30)
        assert result == 2 if outcome == "stored" else isinstance(result, CoordinatorNotAvailable)
    assert sum("got lost" in record.message for record in caplog.records) == 2


async def test_what_is_asked_at_once_after_an_answer_stands_before_the_end_of_a_transaction_in_the_log(
    tmp_path: Path,
) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        call, again = new_call(), new_call()
        shard = busy(runtime.find("a"))
        order: list[object] = []

        def ask_again(number: int) -> None:
            order.append(number)
            shard.ask(counting("a", again), again)
            again.deliver_to(order.append)

        shard.ask(counting("a", call), call)
        call.deliver_to(ask_again)
        shard.end_transaction(lambda: order.append("marker"), 7, True)
        assert order == [1, 2, "marker"]


async def test_what_is_asked_while_records_are_appended_is_stored_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append may move the high watermark, and so answer somebody who asks again."""
    async with running_counters(tmp_path) as (_, runtime):
        call, again = new_call(), new_call()
        shard = busy(runtime.find("a"))
        append_records = record_log.append

        def append_and_ask(*arguments: Any) -> None:
            monkeypatch.setattr(record_log, "append", append_records)
            append_records(*arguments)
            shard.ask(counting("a", again), again)

        monkeypatch.setattr(record_log, "append", append_and_ask)
        shard.ask(counting("a", call), call)
        told: list[tuple[int, int]] = []
        for each in (call, again):
            each.deliver_to(lambda number: told.append((number, shard.partition.log.log_end_offset)))
        await until(lambda: len(told) == 2)
        assert told == [(1, 1), (2, 2)], "the number, and how much was stored when it was told"


@pytest.mark.parametrize("is_busy", [False, True])
async def test_an_answer_that_cannot_be_handed_on_does_not_stop_a_coordinator(tmp_path: Path, is_busy: bool) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    async with running_counters(tmp_path) as (_, runtime):
        shard = runtime.find("a")
        if is_busy:
            busy(shard)

        def fail(_: object) -> None:
            raise ValueError("planted")

        call = new_call()
        call.deliver_to(fail)
        with contextlib.suppress(ValueError):
            shard.ask(counting("a", call), call)
        await asyncio.sleep(0)
        for number in (2, 3, 4):
            busy(shard)
            assert await ask(runtime, "a") == number


async def test_a_machine_that_raises_disturbs_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        call = new_call()
        runtime.find("a").ask(lambda machine, _, now_ms: machine.read([], call), call)  # type: ignore[arg-type]
        assert isinstance(call.result(), UnknownServerError)
        assert "failed to decide" in caplog.text
        assert await ask(runtime, "a") == 1


async def test_a_machine_that_is_half_changed_is_built_again(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        assert await ask(runtime, "a") == 1
        shard, call = runtime.find("a"), new_call()
        before = shard.machine

        def decide(machine: Counters, _: Call[Any], now_ms: int) -> CoordinatorOutcome[Count]:
            machine.counts["a"] = 99
            raise ValueError("planted")

        shard.ask(decide, call)
        assert isinstance(call.result(), UnknownServerError)
        assert isinstance(await ask(runtime, "a"), CoordinatorLoadInProgress)
        await runtime.loaded()
        assert shard.machine is not before
        assert await ask(runtime, "a") == 2


async def test_a_machine_that_raises_again_and_again_reads_its_log_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.coordinators.shard.RETRY_MS", 10)
    monkeypatch.setattr("barnabas.broker.coordinators.shard.LONGEST_RETRY_MS", 30)
    load, pauses = Runtime.load, list[int]()

    def noting(runtime: Runtime[Counters], shard: Shard[Counters], after_ms: int = 0) -> None:
        pauses.append(after_ms)
        load(runtime, shard, after_ms)

    monkeypatch.setattr(Runtime, "load", noting)
    clock = ManualClock()
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker, clock)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        assert await ask(runtime, "a") == 1
        shard = runtime.find("a")
        pauses.clear()
        for later_ms in (0, 0, 0, 0, 59, 60):
            clock.advance(later_ms)
            call = new_call()
            shard.ask(lambda machine, _, now_ms: 1 // 0, call)  # type: ignore[arg-type, return-value]
            assert isinstance(call.result(), UnknownServerError)
            await asyncio.wait_for(runtime.loaded(), 30)
        assert pauses == [0, 10, 20, 30, 30, 0]
        assert await ask(runtime, "a") == 2
        runtime.resign()


async def test_a_machine_whose_timer_raises_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        assert await ask(runtime, "a") == 1
        shard, call = runtime.find("a"), new_call()
        before = shard.machine
        with monkeypatch.context() as broken:
            broken.setattr(Counters, "expire", lambda *_: 1 // 0)
            shard.ask(lambda machine, _, now_ms: machine.wait(call, now_ms), call)
            assert await asyncio.wait_for(call.result(), 30) == "coordinator_not_available"
        await runtime.loaded()
        assert shard.machine is not before
        assert await read(runtime, "a") == 1


async def test_a_failure_that_nobody_expected_is_told_and_the_coordinator_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        assert await ask(runtime, "a") == 1
        with monkeypatch.context() as broken:
            broken.setattr(record_log, "append", lambda *arguments: 1 / 0)
            assert isinstance(await ask(runtime, "a"), UnknownServerError)
        assert "failed to store a decision" in caplog.text
        await runtime.loaded()
        assert await ask(runtime, "a") == 2


async def test_a_load_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, TOPIC)
        real, failures = record_log.replay_log, iter([OSError("no descriptors left"), None])

        def replay_log(*arguments: Any) -> int:
            if (failure := next(failures)) is not None:
                raise failure
            return real(*arguments)

        monkeypatch.setattr(record_log, "replay_log", replay_log)
        monkeypatch.setattr("barnabas.broker.coordinators.runtime.RETRY_MS", 10)
        partition = broker.replicas.find(TOPIC, 0)
        append(partition, [1])  # so that there is something to load
        runtime = counters(broker)
        lead_anew(broker, TOPIC)
        await asyncio.wait_for(runtime.loaded(), 30)
        assert runtime.find("a").machine is not None
        runtime.resign()


async def test_a_coordinator_whose_log_had_no_descriptor_for_a_while_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_counters(tmp_path) as (_, runtime):
        assert await ask(runtime, "a") == 1
        shard = runtime.find("a")
        with monkeypatch.context() as broken:
            refusal = shard.partition.log.store.fail(OSError(errno.EMFILE, "Too many open files"), "a test")

            def refuse(*arguments: Any) -> int:
                raise refusal

            broken.setattr(record_log, "append", refuse)
            assert isinstance(await ask(runtime, "a"), NotCoordinator)
        await asyncio.wait_for(runtime.loaded(), 30)
        assert await ask(runtime, "a") == 2


async def test_a_full_disk_keeps_a_coordinator_from_loading_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("barnabas.broker.coordinators.runtime.RETRY_MS", 10)
    async with running_counters(tmp_path) as (_, runtime):
        assert await ask(runtime, "a") == 1
        shard = runtime.find("a")
        store = shard.partition.log.store
        with monkeypatch.context() as full:
            full.setattr(type(store), "check_writable", lambda _: _raise(StorageFailed("there is no room")))
            runtime.load(shard)
            await asyncio.to_thread(wait_until, lambda: "Could not load" in caplog.text, "a load that failed")
        await asyncio.wait_for(runtime.loaded(), 30)
        assert await ask(runtime, "a") == 2
    assert "there is no room" in caplog.text
    assert "Traceback" not in caplog.text


def _raise(error: Exception) -> None:
    raise error


async def test_a_topic_that_is_deleted_while_its_log_is_loaded_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began, real = threading.Event(), record_log.replay_log

    def replay_log(log: Log, *arguments: Any) -> int:
        began.set()
        wait_until(lambda: log.is_closed, "the log is closed")
        return real(log, *arguments)

    async with running_counters(tmp_path) as (broker, runtime):
        assert await ask(runtime, "a") == 1
        monkeypatch.setattr(record_log, "replay_log", replay_log)
        runtime.load(runtime.find("a"))
        await asyncio.to_thread(began.wait, 30)
        await delete_topic(broker, TOPIC)
        await asyncio.wait_for(runtime.loaded(), 30)
    assert "Could not load" not in caplog.text


async def test_reading_a_log_gives_back_no_lease_that_others_hold(tmp_path: Path) -> None:
    async with running_counters(tmp_path) as (broker, runtime):
        assert await ask(runtime, "a") == 1
        log = runtime.find("a").partition.log
        machine = Counters()
        assert record_log.replay_log(log, machine, 100, lambda: True) == 1
        file = log.segments[-1].file
        assert (file.pinned, file._leases, machine.counts) == (True, 0, {"a": 1})
        broker.logs.pool.close_unused()
        assert await ask(runtime, "a") == 2


async def test_a_load_that_nobody_wants_any_more_ends_early(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, TOPIC)
        partition = broker.replicas.find(TOPIC, 0)
        for number in range(10):
            append(partition, [number])
        seen: list[bytes] = []

        class Reader:
            def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
                seen.append(key)

            def end_transaction(self, producer_id: int, commit: bool) -> None: ...

        wanted = iter([True, True, False])
        record_log.replay_log(partition.log, Reader(), 100, lambda: next(wanted))
        assert len(seen) <= 2
