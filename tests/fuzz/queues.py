"""A canary queue beside strangers who ask for its states: it goes on where it was, and every message is worked on once.

A worker is done with the first messages. Then clients that have proved nothing send requests of the five APIs of share
states, with its group and topic, and with all epochs and offsets that have an edge. What is stored does harm when it is
read again: so the broker is started anew before a worker gets the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients import Producer, Queue
from barnabas.net.reply import Parked
from barnabas.protocol.apis import ApiKey
from tests.fuzz.broker import FakeConnection, running_broker
from tests.fuzz.canary import create_topic
from tests.fuzz.rules import BrokenRule, LogWatch
from tests.fuzz.words import EDGES
from tests.support import wire

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from tests.fuzz.broker import FuzzedBroker

TOPIC: Final = "canary-jobs"
GROUP: Final = "canary-workers"
MESSAGES: Final = 20
DONE: Final = 7
"""Messages that are done before the strangers come."""
SECONDS: Final = 20.0
"""Within which a worker gets a message, or an answer comes."""
AT_ONCE: Final = 20
"""Requests that are under way."""
APIS: Final = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE: 0,
    ApiKey.WRITE_SHARE_GROUP_STATE: 1,
    ApiKey.DELETE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 1,
}
"""With their newest versions."""
SETTINGS: Final = {"share.coordinator.state.topic.num.partitions": "1"}


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    """Partitions by API and error."""

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return f"seed {self.seed}: {outcomes}; the queue had all of its {MESSAGES} messages"


def run(directory: Path, count: int, seed: int) -> Figures:
    """Serve `count` requests of strangers; raises BrokenRule."""
    figures = Figures(seed)
    with LogWatch() as watch:
        asyncio.run(_run(directory, count, figures))
        watch.check(f"{count} requests of seed {seed}")
    return figures


async def _run(directory: Path, count: int, figures: Figures) -> None:
    async with running_broker(directory, SETTINGS) as broker:
        await asyncio.to_thread(_begin, broker.bootstrap)
        topic_id, random = broker.app.broker.metadata.image.topics[TOPIC].topic_id, Random(figures.seed)
        for _ in range(0, count, AT_ONCE):
            await _ask(broker, topic_id, random, figures)
    async with running_broker(directory, SETTINGS) as broker:
        left = await asyncio.to_thread(_work, broker.bootstrap, MESSAGES - DONE)
    if left != list(range(DONE, MESSAGES)):
        raise BrokenRule(f"after {DONE} of {MESSAGES} messages of the queue its workers got {left}")


def _begin(bootstrap: str) -> None:
    create_topic(bootstrap, TOPIC)
    with Producer(bootstrap) as producer:
        for number in range(MESSAGES):
            producer.send(TOPIC, b"%d" % number)
    if (first := _work(bootstrap, DONE)) != list(range(DONE)):
        raise BrokenRule(f"of the first {DONE} messages of the queue its worker got {first}")


def _work(bootstrap: str, count: int) -> list[int]:
    """The offsets of the next messages, as far as they come; a worker is done with each."""
    found: list[int] = []
    with Queue(bootstrap, TOPIC, GROUP, prefetch=1) as queue:
        while len(found) < count and (message := queue.get(SECONDS)) is not None:
            found.append(message.record.offset)
            message.done().result(SECONDS)
    return found


async def _ask(broker: FuzzedBroker, topic_id: UUID, random: Random, figures: Figures) -> None:
    """Send some requests, each over a connection of its own, and wait for their answers."""
    asked = []
    for _ in range(AT_ONCE):
        key = random.choice(list(APIS))
        topic = {"topic_id": topic_id, "partitions": [_partition(random)]}
        frame = wire.request(key, APIS[key], 1, {"group_id": GROUP, "topics": [topic]})
        asked.append((key, broker.serve(FakeConnection(), frame)))
    deadline = time.monotonic() + SECONDS
    for key, answer in asked:
        while isinstance(answer, Parked) and not answer.resolved:
            if time.monotonic() > deadline:
                raise BrokenRule(f"{key.name} has no answer after {SECONDS:g} s")
            await asyncio.sleep(0.001)
        given = answer.answer if isinstance(answer, Parked) else answer
        if not isinstance(given, bytes):
            figures.outcomes[f"{key.name} refused"] += 1
            continue
        [topic] = wire.read_response(key, APIS[key], given[4:], 1).results
        figures.outcomes[f"{key.name} {topic.partitions[0].error_code.name}"] += 1


def _partition(random: Random) -> dict[str, Any]:
    """What any of the APIs may say of a partition; each takes what it has a field for."""
    batch = {"first_offset": DONE, "last_offset": MESSAGES - 1, "delivery_state": 2, "delivery_count": 1}
    return {
        "partition": 0,
        "state_epoch": random.choice(EDGES[32]),
        "leader_epoch": random.choice(EDGES[32]),
        "start_offset": random.choice(EDGES[64]),
        "delivery_complete_count": random.choice(EDGES[32]),
        "state_batches": [batch] * random.choice((0, 1)),
    }
