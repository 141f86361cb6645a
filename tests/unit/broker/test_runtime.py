"""The shell of coordinators, with the smallest machine there is: a counter per name, kept in an internal topic."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker import coordinator_log
from barnabas.broker.calls import Call
from barnabas.broker.coordinator_log import _batches
from barnabas.broker.runtime import Runtime
from barnabas.machines.outcome import Outcome, Timer
from barnabas.model.clock import ManualClock
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    NotCoordinator,
    UnknownServerError,
)
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Record
from tests.support.parts import append, make_topic, running_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.broker.context import Broker
    from barnabas.broker.shard import Shard

TOPIC = "__counters"
COUNT = struct.Struct(">q")


class Counters:
    """Counts by name. `wait` is answered by the next count, or by a timer."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.waiting: list[Call] = []

    def count(self, name: str, call: Call, *, size: int = 0) -> Outcome[Any, Call, Any]:
        number = self.counts.get(name, 0) + 1
        waiting, self.waiting = self.waiting, []
        replies = tuple((each, "counted") for each in waiting)
        return Outcome(changes=((name, number, size),), replies=((call, number), *replies))

    def count_all(self, names: list[str], call: Call) -> Outcome[Any, Call, Any]:
        """Each for itself: some may be stored without the others."""
        changes = tuple((name, self.counts.get(name, 0) + 1, 0) for name in names)
        return Outcome(changes=changes, replies=((call, len(names)),), is_divisible=True)

    def count_and_send(self, name: str, call: Call) -> Outcome[Any, Call, Any]:
        return replace(self.count(name, call), sends=(name,))

    def wait(self, call: Call, at_ms: int) -> Outcome[Any, Call, Any]:
        self.waiting.append(call)
        return Outcome(timers=(Timer("wait", at_ms),))

    def read(self, name: str, call: Call) -> Outcome[Any, Call, Any]:
        if name not in self.counts:
            return Outcome(replies=((call, NotCoordinator("unknown")),))
        return Outcome(replies=((call, self.counts[name]),))

    def encode(self, record: tuple[str, int, int]) -> tuple[bytes, bytes | None]:
        name, number, size = record
        return name.encode(), COUNT.pack(number) + bytes(size)

    def replay(self, record: tuple[str, int, int]) -> None:
        self.counts[record[0]] = record[1]

    def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        assert value is not None
        (number,) = COUNT.unpack_from(value)
        target = self.counts if producer_id < 0 else self.pending.setdefault(producer_id, {})
        target[key.decode()] = number

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        pending = self.pending.pop(producer_id, {})
        if commit:
            self.counts.update(pending)

    def expire(self, key: object, now_ms: int) -> Outcome[Any, Call, Any]:
        waiting, self.waiting = self.waiting, []
        return Outcome(replies=tuple((each, "expired") for each in waiting))

    def loaded(self, now_ms: int) -> Outcome[Any, Call, Any]:
        return Outcome()

    def abandon(self, code: ErrorCode) -> Outcome[Any, Call, Any]:
        waiting, self.waiting = self.waiting, []
        return Outcome(replies=tuple((each, code.name) for each in waiting))


def counters(broker: Broker, **more: Any) -> Runtime[Counters]:
    return Runtime(
        TOPIC,
        Counters,
        replicas=broker.replicas,
        metadata=broker.metadata,
        clock=broker.clock,
        executor=broker.executor,
        load_buffer_bytes=100,
        compression=0,
        **more,
    )


def new_call() -> Call:
    return Call("client", "/127.0.0.1", 1, lambda error: error)


def counting(name: str, call: Call) -> Callable[[Counters, int], Outcome[Any, Call, Any]]:
    return lambda machine, now_ms: machine.count(name, call)


async def ask(runtime: Runtime[Counters], name: str, *, size: int = 0) -> Any:
    call = new_call()
    try:
        shard = runtime.find(name)
    except ApiError as error:
        return error
    shard.ask(lambda machine, now_ms: machine.count(name, call, size=size), call)
    result = call.result()
    return await asyncio.wait_for(result, 5) if asyncio.isfuture(result) else result


async def read(runtime: Runtime[Counters], name: str) -> Any:
    call = new_call()
    runtime.find(name).ask(lambda machine, now_ms: machine.read(name, call), call)
    return call.result()


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
        for index in range(3):
            again._led(broker.replicas.find(TOPIC, index))
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
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC, flush_messages="1")
        await runtime.loaded()
        call = new_call()
        runtime.find("a").ask(lambda machine, now_ms: machine.count("a", call), call)
        result = call.result()
        assert asyncio.isfuture(result)
        assert not result.done()
        reading = await read(runtime, "a")  # even a question waits for what it saw
        assert asyncio.isfuture(reading)
        assert [await asyncio.wait_for(each, 5) for each in (result, reading)] == [1, 1]
        runtime.resign()


async def test_a_lost_partition_answers_whoever_waits(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        call = new_call()
        far = broker.clock.now_ms() + 1_000_000
        runtime.find("a").ask(lambda machine, now_ms: machine.wait(call, far), call)
        waiting = call.result()
        await broker.controller.delete_topics([TOPIC])
        assert await asyncio.wait_for(waiting, 5) == "not_coordinator"
        assert isinstance(await ask(runtime, "a"), CoordinatorNotAvailable)


async def test_one_event_may_answer_many_and_a_timer_answers_too(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        shard = runtime.find("a")
        counted, expired = new_call(), new_call()
        far = broker.clock.now_ms() + 1_000_000
        shard.ask(lambda machine, now_ms: machine.wait(counted, far), counted)
        waiting = counted.result()
        assert await ask(runtime, "a") == 1
        assert await asyncio.wait_for(waiting, 5) == "counted"
        shard.ask(lambda machine, now_ms: machine.wait(expired, now_ms), expired)
        assert await asyncio.wait_for(expired.result(), 5) == "expired"
        runtime.resign()


async def test_an_error_is_told_in_the_words_of_the_api(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        assert isinstance(await read(runtime, "nobody"), NotCoordinator)
        runtime.resign()


async def test_a_decision_that_cannot_be_stored_is_undone(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC, segment_bytes="2000000")
        await runtime.loaded()
        assert await ask(runtime, "a") == 1
        assert isinstance(await ask(runtime, "a", size=3_000_000), UnknownServerError)
        await runtime.loaded()
        assert await read(runtime, "a") == 1
        assert await ask(runtime, "a") == 2
        runtime.resign()


async def test_a_decision_that_is_too_large_costs_nobody_else_an_answer(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC, max_message_bytes="1000")
        await runtime.loaded()
        small, large = new_call(), new_call()
        shard = runtime.find("a")
        shard.ask(counting("a", small), small)
        shard.ask(lambda machine, now_ms: machine.count("a", large, size=1000), large)
        assert small.result() == 1
        assert isinstance(large.result(), UnknownServerError)
        await runtime.loaded()
        assert await read(runtime, "a") == 1
        runtime.resign()


async def test_a_coordinator_with_too_few_replicas_is_loaded_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.shard.RETRY_MS", 50)
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        call = new_call()
        shard = runtime.find("a")
        shard.ask(counting("a", call), call)
        log = shard.partition.log
        enough, log.config = log.config, replace(log.config, min_insync_replicas=2)
        result = call.result()
        assert isinstance(await asyncio.wait_for(result, 5), CoordinatorNotAvailable)
        assert shard.machine is None
        log.config = enough
        await asyncio.wait_for(runtime.loaded(), 5)
        assert await ask(runtime, "a") == 1
        runtime.resign()


async def test_a_machine_that_raises_disturbs_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        call = new_call()
        runtime.find("a").ask(lambda machine, now_ms: machine.read([], call), call)  # type: ignore[arg-type]
        assert isinstance(call.result(), UnknownServerError)
        assert "failed to decide" in caplog.text
        assert await ask(runtime, "a") == 1
        runtime.resign()


async def test_a_machine_that_is_half_changed_is_built_again(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        assert await ask(runtime, "a") == 1
        shard, call = runtime.find("a"), new_call()
        before = shard.machine

        def decide(machine: Counters, now_ms: int) -> Outcome[Any, Call, Any]:
            machine.counts["a"] = 99
            raise ValueError("planted")

        shard.ask(decide, call)
        assert isinstance(call.result(), UnknownServerError)
        assert isinstance(await ask(runtime, "a"), CoordinatorLoadInProgress)
        await runtime.loaded()
        assert shard.machine is not before
        assert await ask(runtime, "a") == 2
        runtime.resign()


async def test_a_machine_that_raises_again_and_again_reads_its_log_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.shard.RETRY_MS", 10)
    monkeypatch.setattr("barnabas.broker.shard.LONGEST_RETRY_MS", 30)
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
            shard.ask(lambda machine, now_ms: 1 // 0, call)  # type: ignore[arg-type, return-value]
            assert isinstance(call.result(), UnknownServerError)
            await asyncio.wait_for(runtime.loaded(), 5)
        assert pauses == [0, 10, 20, 30, 30, 0]
        assert await ask(runtime, "a") == 2
        runtime.resign()


async def test_a_machine_whose_timer_raises_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        assert await ask(runtime, "a") == 1
        shard, call = runtime.find("a"), new_call()
        before = shard.machine
        with monkeypatch.context() as broken:
            broken.setattr(Counters, "expire", lambda *_: 1 // 0)
            shard.ask(lambda machine, now_ms: machine.wait(call, now_ms), call)
            assert await asyncio.wait_for(call.result(), 5) == "coordinator_not_available"
        await runtime.loaded()
        assert shard.machine is not before
        assert await read(runtime, "a") == 1
        runtime.resign()


async def test_no_batch_is_larger_than_the_topic_allows(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC, max_message_bytes="1000")
        await runtime.loaded()
        one, all_of_them = new_call(), new_call()
        names = [f"name {number}" for number in range(100)]
        shard = runtime.find("a")
        shard.ask(counting("a", one), one)
        shard.ask(lambda machine, now_ms: machine.count_all(names, all_of_them), all_of_them)
        results = [call.result() for call in (one, all_of_them)]
        assert [await asyncio.wait_for(each, 5) if asyncio.isfuture(each) else each for each in results] == [1, 100]
        batches = [header for header, _ in _batches(broker.replicas.find(TOPIC, 0).log, 1 << 20)]
        assert sum(header.record_count for header in batches) == 101
        assert max(header.size for header in batches) <= 1_000
        assert len(batches) < 15
        assert isinstance(await ask(runtime, "a", size=1_000), UnknownServerError)
        await runtime.loaded()
        assert await ask(runtime, "a", size=500) == 2
        runtime.resign()


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
        shard = runtime.find("a")
        shard.ask(lambda machine, now_ms: machine.count_and_send("a", first), first)
        if then == "a large decision":  # what waits is written before it, and what is sent leaves
            shard.ask(lambda machine, now_ms: machine.count("a", second, size=900), second)
        else:

            def decide(machine: Counters, now_ms: int) -> Outcome[Any, Call, Any]:
                machine.counts["a"] = 99
                raise ValueError("planted")

            shard.ask(decide, second)
        await asyncio.sleep(0)
        await runtime.loaded()
        answers = [call.result() for call in (first, second, back)]
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
        runtime._led(partition)
        await runtime.loaded()
        assert await read(runtime, "a") == expected
        runtime.resign()


async def test_what_is_decided_in_one_turn_is_one_batch_and_nobody_hears_of_it_before(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        shard = runtime.find("a")
        calls = [new_call() for _ in range(10)]
        for call in calls:
            shard.ask(counting("a", call), call)
        results = [call.result() for call in calls]
        reading = await read(runtime, "a")
        assert asyncio.isfuture(reading)  # it saw what is not stored yet
        assert not any(result.done() for result in results)
        assert [await asyncio.wait_for(each, 5) for each in (*results, reading)] == [*range(1, 11), 10]
        batches = list(_batches(broker.replicas.find(TOPIC, 0).log, 1 << 20))
        assert [header.record_count for header, _ in batches] == [10]
        runtime.resign()


async def test_what_waits_to_be_stored_when_a_coordinator_ends_is_refused(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        call = new_call()
        runtime.find("a").ask(lambda machine, now_ms: machine.count("a", call), call)
        result = call.result()
        runtime.resign()
        assert isinstance(await asyncio.wait_for(result, 5), NotCoordinator)
        await asyncio.sleep(0)
        assert broker.replicas.find(TOPIC, 0).log.log_end_offset == 0


async def test_a_failure_that_nobody_expected_is_told_and_the_coordinator_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_parts(tmp_path) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC)
        await runtime.loaded()
        assert await ask(runtime, "a") == 1
        with monkeypatch.context() as broken:
            broken.setattr(coordinator_log, "append", lambda *arguments: 1 / 0)
            assert isinstance(await ask(runtime, "a"), UnknownServerError)
        assert "failed to store a decision" in caplog.text
        await runtime.loaded()
        assert await ask(runtime, "a") == 2
        runtime.resign()


async def test_a_load_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, TOPIC)
        real, failures = coordinator_log.replay_log, iter([OSError("no descriptors left"), None])

        def replay_log(*arguments: Any) -> int:
            if (failure := next(failures)) is not None:
                raise failure
            return real(*arguments)

        monkeypatch.setattr(coordinator_log, "replay_log", replay_log)
        monkeypatch.setattr("barnabas.broker.runtime.RETRY_MS", 10)
        partition = broker.replicas.find(TOPIC, 0)
        append(partition, [1])  # so that there is something to load
        runtime = counters(broker)
        runtime._led(partition)
        await asyncio.wait_for(runtime.loaded(), 5)
        assert runtime.find("a").machine is not None
        runtime.resign()


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
        coordinator_log.replay_log(partition.log, Reader(), 100, lambda: next(wanted))
        assert len(seen) <= 2
