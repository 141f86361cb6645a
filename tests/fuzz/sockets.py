"""Writes to a real `barnabas start`: many frames in one, frames cut over several, lengths that lie, clients that leave.

Beside them a canary produces and consumes: its records are all acknowledged and read in order, and 99 of 100 in time.
When the clients have left, their places are free again.
The same seed gives the same conversations in the same order; how they overlap is the machine's.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.protocol.apis import ApiKey
from barnabas.storage.check import check
from tests.fuzz.bugs import program
from tests.fuzz.canary import TOPIC, Canary, create_topic, read_values
from tests.fuzz.requests import requests
from tests.fuzz.rules import LONG_STEP, BrokenRule, bad_lines, connections_of, memory_of
from tests.history.tampering import Tampering
from tests.support.brokers import Barnabas
from tests.support.wire import request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENTS: Final = 32
TIMEOUT_SECONDS: Final = 2.0
"""Seconds without an answer after which a client leaves: some requests wait for much longer."""
P99: Final = 2.0
"""Seconds: the canary shares the machine with the clients that make the noise, and with other tests."""
TIMES: Final = 20.0
"""How much slower than before the noise it may get on a machine that is slower than that anyway."""
QUIET_RECORDS: Final = 100
MEMORY: Final = 400 << 20
FREE_SECONDS: Final = 20.0
"""By when the broker has closed the connections of clients that left."""
OWN_CONNECTIONS: Final = 4
"""How many connections the canary may have opened since it began: to its coordinator, and again after an error."""
SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
WILD: Final = 0.05
"""The share of requests that are not valid: the broker closes a connection at the first of them."""
INTERNAL_TOPICS: Final = (b"__consumer_offsets", b"__transaction_state")
"""Not named here: anybody may delete or extend them, as in Kafka, and the canary's group has its offsets there."""
LEAVING: Final = 0.1
"""The share of clients that leave while they wait."""
_LONG_FETCH: Final[dict[str, Any]] = {
    "replica_id": -1,
    "max_wait": 0x7FFFFFFF,
    "min_bytes": 0x7FFFFFFF,
    "max_bytes": 0x7FFFFFFF,
    "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}],
}
_LYING_SIZES: Final = (-2, -1, 0, 3, 9, 0x7FFFFFFF, 104_857_601)


class Conversation(NamedTuple):
    """What one client writes, write by write, and whether it leaves then without reading."""

    frames: int
    writes: tuple[bytes, ...]
    leaves: bool = False


def conversations(seed: int) -> Iterator[Conversation]:
    """Conversations without end."""
    random = Random(seed)
    frames = (frame for frame in requests(seed, WILD) if not any(name in frame.data for name in INTERNAL_TOPICS))
    while True:
        if random.random() < LEAVING:
            yield _departure(random, next(frames).data)
            continue
        count = random.choice((1, 2, 8, 16, 64))
        data = b"".join(_framed(frame.data, random) for frame in islice(frames, count))
        yield Conversation(count, tuple(_pieces(data, random)))


def _departure(random: Random, following: bytes) -> Conversation:
    """A client that waits for records for a very long time, asks for something else meanwhile, and is gone."""
    waiting = request(ApiKey.FETCH, 4, random.randrange(1 << 31), _LONG_FETCH)
    return Conversation(2, (_framed(waiting, random) + _framed(following, random),), leaves=True)


def _framed(data: bytes, random: Random) -> bytes:
    size = len(data)
    if random.random() < 0.005:
        size = random.choice((*_LYING_SIZES, size + 5, max(size - 3, 0)))
    return struct.pack(">i", size) + data


def _pieces(data: bytes, random: Random) -> Iterator[bytes]:
    """The data in one write, in several, or without its end."""
    if random.random() < 0.1:
        data = data[: random.randrange(len(data) + 1)]
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 0, 0, 1, 3, 8))))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        yield data[start:end]


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    memory: int = 0
    canary: int = 0
    p99: float = 0.0
    quiet_p99: float = 0.0
    longest_step: float = 0.0
    """Of the broker's event loop, with the collections in it."""
    longest_name: str = ""

    def __str__(self) -> str:
        per_minute = self.outcomes["frames"] / max(self.seconds, 0.001) * 60
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return (
            f"seed {self.seed}: {outcomes} in {self.seconds:.1f} s ({per_minute:.0f} frames a minute); "
            f"memory at most {self.memory >> 20} MiB; the canary's {self.canary} records are all there, "
            f"p99 {self.p99 * 1000:.0f} ms (before the noise {self.quiet_p99 * 1000:.0f} ms); "
            f"longest step of the event loop {self.longest_step * 1000:.0f} ms ({self.longest_name[:160]})"
        )


def run(directory: Path, count: int, seed: int) -> Figures:
    """Write `count` frames to a broker; raises BrokenRule."""
    figures = Figures(seed)
    watched = Tampering(directory / "steps")
    with Barnabas(directory, SETTINGS, env=watched.environment, program=program()) as broker:
        create_topic(broker.bootstrap)
        canary = Canary(broker.bootstrap)
        try:
            canary.measure_quiet(QUIET_RECORDS)
            before = connections_of(broker.pid)
            asyncio.run(_talk(broker.port, count, figures))
            _check_places(broker, before, seed)
        finally:
            canary.stop()
        if not broker.alive:
            raise BrokenRule(f"the broker died of seed {seed}:\n{broker.tail()}")
        figures.memory = memory_of(broker.pid)
        canary.check(P99, TIMES)
        figures.canary, figures.p99, figures.quiet_p99 = canary.sent, canary.p99, canary.quiet_p99
        _check_log(broker, seed)
        if broker.stop() != 0:
            raise BrokenRule(f"the broker did not stop cleanly after seed {seed}:\n{broker.tail()}")
    report = check(directory / "data")
    if not report.ok:
        raise BrokenRule(f"`barnabas log check` finds errors after seed {seed}: {report.errors[0]}")
    with Barnabas(directory, SETTINGS) as broker:
        read = read_values(broker.bootstrap, TOPIC, figures.canary)
        if read != [b"%d" % number for number in range(figures.canary)]:
            raise BrokenRule(f"after a restart {len(read)} of the canary's {figures.canary} records are read")
        _check_log(broker, seed)
    figures.longest_step, figures.longest_name = watched.longest_step()
    if figures.longest_step > LONG_STEP:
        raise BrokenRule(f"a step of the event loop took {figures.longest_step:.2f} s: {figures.longest_name}")
    if figures.memory > MEMORY:
        raise BrokenRule(f"the broker has had {figures.memory >> 20} MiB in memory")
    return figures


def _check_places(broker: Barnabas, before: int, seed: int) -> None:
    """Nobody who is gone keeps a place."""
    deadline = time.monotonic() + FREE_SECONDS
    while broker.alive and (kept := connections_of(broker.pid) - before) > OWN_CONNECTIONS:
        if time.monotonic() > deadline:
            raise BrokenRule(f"{kept} connections are left {FREE_SECONDS:.0f} s after the clients of seed {seed}")
        time.sleep(0.05)


def _check_log(broker: Barnabas, seed: int) -> None:
    if bad := bad_lines(broker.output()):
        at = broker.output().find(bad[0])
        raise BrokenRule(f"{len(bad)} bad lines in the log after seed {seed}:\n{broker.output()[at : at + 4000]}")


async def _talk(port: int, count: int, figures: Figures) -> None:
    started = time.monotonic()
    coming = conversations(figures.seed)

    async def client() -> None:
        while figures.outcomes["frames"] < count:
            conversation = next(coming)
            figures.outcomes["frames"] += conversation.frames
            figures.outcomes["connections"] += 1
            await _converse(port, conversation, figures)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    figures.seconds = time.monotonic() - started


async def _converse(port: int, conversation: Conversation, figures: Figures) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            awaited = 0 if conversation.leaves else conversation.frames
            reading = asyncio.create_task(_count_answers(reader, awaited, figures))
            for data in conversation.writes:
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(0)
            await reading
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _count_answers(reader: asyncio.StreamReader, most: int, figures: Figures) -> None:
    """Read answers until the broker closes, until there are enough, or until none comes for a while."""
    try:
        for _ in range(most):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(size)
            figures.outcomes["answered"] += 1
    except TimeoutError:
        figures.outcomes["connections left by the client"] += 1
    except (asyncio.IncompleteReadError, ConnectionError):
        figures.outcomes["connections closed by the broker"] += 1
