"""The shell of coordinators when something fails: storing, loading, leading, or the machine itself."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators import record_log
from barnabas.model.clock import ManualClock
from barnabas.model.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    StorageFailed,
    UnknownServerError,
)
from tests.support.counters import TOPIC, Count, Counters, ask, counters, counting, new_call, read, running_counters
from tests.support.parts import append, make_topic, running_parts
from tests.support.producing import lead_anew
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from barnabas.broker.coordinators.calls import Call
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.machines.outcome import CoordinatorOutcome


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
        shard = runtime.find("a")
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
    clock = ManualClock()
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        runtime.clock = clock
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        assert await ask(runtime, "a") == 1
        shard, pauses = runtime.find("a"), []
        load = runtime.load

        def noting(shard: Shard[Counters], after_ms: int = 0) -> None:
            pauses.append(after_ms)
            load(shard, after_ms)

        monkeypatch.setattr(runtime, "load", noting)
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
