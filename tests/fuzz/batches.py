"""Batches, good and changed, produced to topics whose settings have them treated in different ways.

A batch that is acknowledged is read back: by confluent-kafka with the keys, values and offsets that our own reader
finds in the bytes that were sent. Any other is refused with an error code, and nothing is read of it. Afterwards
`barnabas log check` finds nothing.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import BarnabasError
from barnabas.net.reply import Parked
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.compression import decompress
from barnabas.protocol.records.records import read_records
from barnabas.storage.check import check
from tests.fuzz.broker import FakeConnection, FuzzedBroker, running_broker
from tests.fuzz.canary import create_topic, read_messages
from tests.fuzz.record_batches import bomb, changed, good_batch
from tests.fuzz.rules import BrokenRule, LogWatch, TimedLoop
from tests.support import wire
from tests.support.produce_fetch import produce_request

if TYPE_CHECKING:
    from pathlib import Path

TOPICS: Final = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "zstd"},
    "uncompressed": {"compression_type": "uncompressed"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "small": {"max_message_bytes": "300"},
}
VERSION: Final = 9
BOMBS: Final = 0.01
DEAREST_SECONDS: Final = 1.0
"""Processor time that a batch may cost, of all threads; this program's own is in it."""


class Stored(NamedTuple):
    """A record as it has to be read back."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    records: int = 0
    seconds: float = 0.0
    longest_step: float = 0.0
    longest_name: str = ""
    dearest: float = 0.0

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in self.outcomes.most_common())
        return (
            f"seed {self.seed}: {self.outcomes.total()} batches in {self.seconds:.1f} s: {outcomes}; {self.records} "
            f"records read back; dearest batch {self.dearest * 1000:.0f} ms of processor time; "
            f"longest step {self.longest_step * 1000:.0f} ms ({self.longest_name[:160]})"
        )


def run(directory: Path, count: int, seed: int) -> Figures:
    """Produce `count` batches; raises BrokenRule."""
    loop = TimedLoop()
    figures = Figures(seed)
    try:
        with LogWatch() as watch:
            loop.run_until_complete(_run(directory, count, figures, loop))
            watch.check(f"{count} batches of seed {seed}")
    finally:
        loop.close()
    figures.longest_step, figures.longest_name = loop.longest, loop.longest_name
    loop.check()
    report = check(directory / "data")
    if report.findings:
        raise BrokenRule(f"`barnabas log check` after seed {seed}: {report.findings[0]}")
    return figures


async def _run(directory: Path, count: int, figures: Figures, loop: TimedLoop) -> None:
    random = Random(figures.seed)
    expected: dict[str, list[Stored]] = {name: [] for name in TOPICS}
    async with running_broker(directory) as broker:
        for name, settings in TOPICS.items():
            await asyncio.to_thread(create_topic, broker.bootstrap, name, **settings)
        loop.begin(asyncio.current_task())
        started = time.monotonic()
        for number in range(count):
            topic = random.choice(tuple(TOPICS))
            batch = _any(random)
            used = time.process_time()
            expected[topic] += await _produce(broker, topic, batch, figures, number)
            used = time.process_time() - used
            if used > DEAREST_SECONDS:
                raise BrokenRule(f"batch {number} of seed {figures.seed}, {len(batch)} bytes, cost {used:.1f} s")
            figures.dearest = max(figures.dearest, used)
        figures.seconds = time.monotonic() - started
        for topic, stored in expected.items():
            await asyncio.to_thread(_compare, broker.bootstrap, topic, stored)
            figures.records += len(stored)


def _any(random: Random) -> bytes:
    kind = random.random()
    if kind < BOMBS:
        return bomb(random.choice((60_000, 300_000)))
    batch = good_batch(random)
    return batch if kind < 0.2 else changed(batch, random)


async def _produce(broker: FuzzedBroker, topic: str, batch: bytes, figures: Figures, number: int) -> list[Stored]:
    """Produce a batch; what has to be read of it."""
    topic_id = broker.app.broker.metadata.image.topics[topic].topic_id
    body = bytes(produce_request(VERSION, {(topic, topic_id, 0): batch}, acks=-1))
    answer = broker.serve(FakeConnection(), struct.pack(">hhih", 0, VERSION, 1, 0) + b"\0" + body)
    deadline = time.monotonic() + 30
    while isinstance(answer, Parked) and not answer.resolved:
        await asyncio.sleep(0)
        if time.monotonic() > deadline:
            raise BrokenRule(f"batch {number} of seed {figures.seed} got no answer within 30 s: {batch.hex()}")
    told = answer.answer if isinstance(answer, Parked) else answer
    if not isinstance(told, bytes):
        raise BrokenRule(f"batch {number} of seed {figures.seed} was not answered, but {told}: {batch.hex()}")
    [result] = wire.read_response(0, VERSION, told[4:], 1).responses[0].partition_responses
    figures.outcomes[result.error_code.name] += 1
    if result.error_code.name == "unknown_server_error":
        raise BrokenRule(f"batch {number} of seed {figures.seed} got UNKNOWN_SERVER_ERROR: {batch.hex()}")
    if result.error_code.value:
        return []
    try:
        return _records(batch, result.base_offset)
    except BarnabasError as error:
        raise BrokenRule(f"batch {number} of seed {figures.seed} was stored, but {error}: {batch.hex()}") from error


def _records(batch: bytes, base_offset: int) -> list[Stored]:
    header = read_header(batch)
    payload = decompress(header.codec, batch[HEADER_SIZE:], 1 << 26)
    return [
        Stored(base_offset + number, record.key, record.value)  # wrong offset deltas are put right
        for number, record in enumerate(read_records(payload, header.record_count))
    ]


def _compare(bootstrap: str, topic: str, expected: list[Stored]) -> None:
    read = [
        Stored(message.offset() or 0, message.key(), message.value())
        for message in read_messages(bootstrap, topic, len(expected) + 1)
    ]
    if read != expected:
        differing = next((pair for pair in zip(read, expected, strict=False) if pair[0] != pair[1]), None)
        raise BrokenRule(
            f"{topic}: {len(read)} records were read, {len(expected)} stored; first to differ: {differing}"
        )
