"""Requests straight into the dispatcher of a broker in this process: tens of thousands a minute.

Every answer has to be one (its length and correlation id are right, and some are read whole by kio), a frame that is
none is refused with InvalidFrame, and nothing else is raised. Beside the noise a few good batches are produced to a
topic that no generated request names; they are all there at the end, read by confluent-kafka.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.broker.serving.registry import BY_KEY
from barnabas.model.errors import InvalidFrame
from barnabas.net.reply import HANG_UP, Parked, release
from barnabas.storage.check import check
from tests.fuzz.broker import FakeConnection, FuzzedBroker, running_broker
from tests.fuzz.canary import TOPIC, create_topic, read_values
from tests.fuzz.requests import Frame, requests
from tests.fuzz.rules import BrokenRule, LogWatch, TimedLoop, own_memory
from tests.support import wire
from tests.support.produce_fetch import produce_request

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.net.reply import Answer

SMALLEST: Final = 10
"""A connection refuses shorter frames itself."""
CONNECTIONS: Final = 8
MOST_PARKED: Final = 200
"""Answers that are waited for; the clients of older ones leave."""
MOST_UNDER_WAY: Final = 50
TURNS: Final = 50
"""After so many frames the event loop turns."""
CANARY_EVERY: Final = 1000
READ_EVERY: Final = 20
MEMORY: Final = 600 << 20
"""The most that such a process may have had: a broker, the schemas of all APIs, and this program."""


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    frames: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    processor_seconds: float = 0.0
    longest_step: float = 0.0
    longest_name: str = ""
    longest_collection: float = 0.0
    memory: int = 0
    canary: int = 0

    def __str__(self) -> str:
        per_minute = self.frames / max(self.seconds, 0.001) * 60
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        step = (
            f"{self.longest_step * 1000:.0f} ms ({self.longest_name[:160]}), "
            f"full collection {self.longest_collection * 1000:.0f} ms"
        )
        return (
            f"seed {self.seed}: {self.frames} frames in {self.seconds:.1f} s ({per_minute:.0f} a minute, "
            f"{self.processor_seconds:.1f} s of processor time): {outcomes}; longest step {step}; "
            f"memory at most {self.memory >> 20} MiB; {self.canary} records of the canary all there"
        )


def run(directory: Path, count: int, seed: int) -> Figures:
    """Serve `count` frames; raises BrokenRule."""
    loop = TimedLoop()
    figures = Figures(seed)
    try:
        with LogWatch() as watch:
            loop.run_until_complete(_run(directory, count, figures, loop, watch))
            watch.check(f"{count} frames of seed {seed}")
    finally:
        loop.close()
    report = check(directory / "data")
    if not report.ok:
        raise BrokenRule(f"`barnabas log check` finds errors after seed {seed}: {report.errors[0]}")
    return figures


async def _run(directory: Path, count: int, figures: Figures, loop: TimedLoop, watch: LogWatch) -> None:
    async with running_broker(directory) as broker:
        await asyncio.to_thread(create_topic, broker.bootstrap)
        shooting = Shooting(broker, figures, loop)
        loop.begin(asyncio.current_task())
        started, started_processor = time.monotonic(), time.process_time()
        for number, frame in enumerate(islice(requests(figures.seed), count)):
            shooting.shoot(number, frame)
            if watch.errors:
                watch.check(
                    f"frame {number} of seed {figures.seed}, {frame.target.api.key.name} v{frame.target.version}"
                )
            if number % TURNS == 0:
                await shooting.let_work()
            if number % CANARY_EVERY == 0:
                await shooting.produce_canary()
        figures.seconds = time.monotonic() - started
        figures.processor_seconds = time.process_time() - started_processor
        shooting.leave()
        figures.longest_step, figures.longest_name = loop.longest, loop.longest_name
        figures.longest_collection = loop.collections.longest
        figures.memory = own_memory()
        read = await asyncio.to_thread(read_values, broker.bootstrap, TOPIC, figures.canary)
        if read != [_canary_value(number) for number in range(figures.canary)]:
            raise BrokenRule(f"of {figures.canary} records of the canary {len(read)} were read, or others: {read[:5]}")
    loop.check()
    if figures.memory > MEMORY:
        raise BrokenRule(f"the process has had {figures.memory >> 20} MiB in memory")


def _canary_value(number: int) -> bytes:
    return b"canary %d" % number


class Shooting:
    """The connections over which frames come, and the answers that are waited for."""

    def __init__(self, broker: FuzzedBroker, figures: Figures, loop: TimedLoop) -> None:
        self._broker = broker
        self._figures = figures
        self._loop = loop
        self._connections = [FakeConnection() for _ in range(CONNECTIONS)]
        self._parked: deque[tuple[Parked, Frame]] = deque()
        self._under_way: list[Parked] = []
        """Of these, those that do something and do not just wait."""

    def shoot(self, number: int, frame: Frame) -> None:
        """Have one frame served."""
        if len(frame.data) < SMALLEST:
            return
        figures, place = self._figures, number % CONNECTIONS
        figures.frames += 1
        started = self._loop.used()
        try:
            answer = self._broker.serve(self._connections[place], frame.data)
        except InvalidFrame:
            figures.outcomes["refused"] += 1
            self._connections[place].close()
            self._connections[place] = FakeConnection()
            return
        except Exception as error:
            raise BrokenRule(f"frame {number} of seed {figures.seed} ({_name(frame)}): {error!r}") from error
        finally:
            self._loop.note(self._loop.used() - started, f"frame {number}, {_name(frame)}")
        if isinstance(answer, Parked) and not answer.resolved:
            self._park(answer, frame)
        else:
            self._take(answer.answer if isinstance(answer, Parked) else answer, frame, number)  # type: ignore[arg-type]

    def _park(self, parked: Parked, frame: Frame) -> None:
        self._parked.append((parked, frame))
        if not parked.may_be_overtaken:
            self._under_way.append(parked)
        if len(self._parked) > MOST_PARKED:
            self._abandon()

    def _abandon(self) -> None:
        parked, frame = self._parked.popleft()
        if parked.resolved:
            self._take(parked.answer, frame, 1)  # type: ignore[arg-type]  # resolved, it is no Parked
        else:
            self._figures.outcomes["left by the client"] += 1
            parked.abandon()

    def _take(self, answer: Answer, frame: Frame, number: int) -> None:
        outcomes = self._figures.outcomes
        if answer is None:
            outcomes["without an answer"] += 1
        elif answer is HANG_UP:
            outcomes["refused"] += 1
        elif isinstance(answer, bytes):
            outcomes["answered"] += 1
            _check_answer(answer, frame, number)
        else:
            outcomes["answered"] += 1
            release(answer)

    async def let_work(self) -> None:
        """Let the event loop turn, and wait if much is under way: a real connection would have waited before."""
        await asyncio.sleep(0)
        self._under_way = [parked for parked in self._under_way if not parked.resolved]
        while len(self._under_way) > MOST_UNDER_WAY:
            await asyncio.sleep(0.001)
            self._under_way = [parked for parked in self._under_way if not parked.resolved]

    def leave(self) -> None:
        """Wait for no more answers."""
        while self._parked:
            self._abandon()

    async def produce_canary(self) -> None:
        """Produce one good record, and wait until it is stored."""
        figures = self._figures
        topic = self._broker.app.broker.metadata.image.topics[TOPIC]
        batch = wire.batch([_canary_value(figures.canary)])
        body = bytes(produce_request(9, {(TOPIC, topic.topic_id, 0): batch}, acks=-1))
        answer = self._broker.serve(FakeConnection(), struct.pack(">hhih", 0, 9, 1, 0) + b"\0" + body)
        deadline = time.monotonic() + 30
        while isinstance(answer, Parked) and not answer.resolved:
            await asyncio.sleep(0.001)
            if time.monotonic() > deadline:
                raise BrokenRule("a good record was not stored within 30 s")
        stored = answer.answer if isinstance(answer, Parked) else answer
        if not isinstance(stored, bytes) or _error_of(stored):
            raise BrokenRule(f"a good record was refused: {stored!r}")
        figures.canary += 1


def _error_of(answer: bytes) -> int:
    response = wire.read_response(0, 9, answer[4:], 1)
    code: int = response.responses[0].partition_responses[0].error_code.value
    return code


def _name(frame: Frame) -> str:
    return f"{frame.target.api.key.name} v{frame.target.version}, {frame.data[:4000].hex()}"


def _check_answer(answer: bytes, frame: Frame, number: int) -> None:
    """An answer's length and correlation id are right; some are read to their ends."""
    size, correlation_id = struct.unpack_from(">ii", answer)
    key, version, asked = struct.unpack_from(">hhi", frame.data)
    if size != len(answer) - 4 or correlation_id != asked:
        raise BrokenRule(f"a wrong answer to {_name(frame)}: {answer[:40].hex()}")
    if number % READ_EVERY == 0 and key in BY_KEY and not BY_KEY[key].is_internal:
        if key == 18 and not 0 <= version <= 4:
            version = 0
        try:
            wire.read_response(key, version, answer[4:], asked)
        except Exception as error:
            raise BrokenRule(f"an answer that cannot be read to {_name(frame)}: {answer[:200].hex()}") from error
