"""The smallest machine there is for the shell of coordinators: a counter per name, kept in an internal topic."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators.calls import Call
from barnabas.broker.coordinators.runtime import CoordinatorLog, CoordinatorParts, Runtime
from barnabas.machines.outcome import CoordinatorOutcome, OneRecord, Outcome, Timer
from barnabas.model.errors import ApiError, ErrorCode, NotCoordinator
from tests.support.parts import make_topic, running_parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.model.clock import Clock

TOPIC = "__counters"
Count = tuple[str, int, int]
"""A name, its number, and the bytes that its record is larger than it needs to be."""
COUNT = struct.Struct(">q")


class Counters:
    """Counts by name. `wait` is answered by the next count, or by a timer."""

    one_record = False
    """Whether a count that answers nobody else is decided as `OneRecord`."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.waiting: list[Call[Any]] = []

    def count(self, name: str, call: Call[Any], *, size: int = 0) -> CoordinatorOutcome[Count] | OneRecord:
        """One more; the record that is kept of it is `size` bytes larger than it needs to be."""
        if self.one_record and not self.waiting:
            change = name, self.counts.get(name, 0) + 1, size
            return OneRecord(self.encode(change), change, self.replay, change[1], None)
        return self.count_and_tell(name, call, size=size)

    def count_and_tell(self, name: str, call: Call[Any], *, size: int = 0) -> CoordinatorOutcome[Count]:
        """The same, and answer who waits for it."""
        number = self.counts.get(name, 0) + 1
        waiting, self.waiting = self.waiting, []
        replies = tuple((each, "counted") for each in waiting)
        return Outcome(changes=((name, number, size),), replies=((call, number), *replies))

    def count_all(self, names: list[str], call: Call[Any]) -> CoordinatorOutcome[Count]:
        """Each for itself: some may be stored without the others."""
        changes = tuple((name, self.counts.get(name, 0) + 1, 0) for name in names)
        return Outcome(changes=changes, replies=((call, len(names)),), is_divisible=True)

    def count_and_send(self, name: str, call: Call[Any]) -> CoordinatorOutcome[Count]:
        """One more, of which others are told."""
        return replace(self.count_and_tell(name, call), sends=(name,))

    def wait(self, call: Call[Any], at_ms: int) -> CoordinatorOutcome[Count]:
        """Answer at the next count, or at this time."""
        self.waiting.append(call)
        return Outcome(timers=(Timer("wait", at_ms),))

    def read(self, name: str, call: Call[Any]) -> CoordinatorOutcome[Count]:
        """The number that a name has come to."""
        if name not in self.counts:
            return Outcome(replies=((call, NotCoordinator("unknown")),))
        return Outcome(replies=((call, self.counts[name]),))

    def encode(self, record: tuple[str, int, int]) -> tuple[bytes, bytes]:
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

    def expire(self, key: object, now_ms: int) -> CoordinatorOutcome[Count]:
        waiting, self.waiting = self.waiting, []
        return Outcome(replies=tuple((each, "expired") for each in waiting))

    def loaded(self, now_ms: int) -> CoordinatorOutcome[Count]:
        return Outcome()

    def abandon(self, code: ErrorCode) -> CoordinatorOutcome[Count]:
        waiting, self.waiting = self.waiting, []
        return Outcome(replies=tuple((each, code.name) for each in waiting))


def counters(broker: BrokerContext, clock: Clock | None = None, **more: Any) -> Runtime[Counters]:
    """The shell of counters on this broker."""
    return Runtime(
        CoordinatorLog(topic=TOPIC, load_buffer_bytes=100),
        Counters,
        CoordinatorParts(broker.replicas, broker.metadata, clock or broker.clock, broker.executor),
        **more,
    )


@asynccontextmanager
async def running_counters(directory: Path, **configs: Any) -> AsyncIterator[tuple[BrokerContext, Runtime[Counters]]]:
    """A broker, and counters that are loaded; `configs` are those of their topic, which has one partition."""
    async with running_parts(directory) as broker:
        runtime = counters(broker)
        await make_topic(broker, TOPIC, **configs)
        await runtime.loaded()
        yield broker, runtime
        runtime.resign()


def busy(shard: Shard[Counters]) -> Shard[Counters]:
    """A coordinator whose last turn had several decisions, so that the next one waits for others."""
    shard._is_quiet = False
    return shard


def new_call() -> Call[Any]:
    """A call that is answered with the error itself where there is one."""
    return Call("client", "/127.0.0.1", 1, lambda error: error)


def counting(name: str, call: Call[Any]) -> Callable[[Counters, Call[Any], int], CoordinatorOutcome[Count] | OneRecord]:
    """What is asked of a shard to count."""
    return lambda machine, _, now_ms: machine.count(name, call)


async def ask(runtime: Runtime[Counters], name: str, *, size: int = 0) -> Any:
    """Count, and wait for the number, or for what went wrong."""
    call = new_call()
    try:
        shard = runtime.find(name)
    except ApiError as error:
        return error
    shard.ask(lambda machine, _, now_ms: machine.count(name, call, size=size), call)
    return await settled(call)


async def settled(call: Call[Any]) -> Any:
    """What a call is answered with."""
    result = call.result()
    return await asyncio.wait_for(result, 30) if asyncio.isfuture(result) else result


async def read(runtime: Runtime[Counters], name: str) -> Any:
    """The number that a name has come to, as a machine has it in memory."""
    call = new_call()
    runtime.find(name).ask(lambda machine, _, now_ms: machine.read(name, call), call)
    return call.result()
