"""One broker or several on the same machine, under the same clients: what a process for each core brings, and costs.

Two client processes keep the brokers busy from prepared frames. Where there is one broker both ask it; where there are
several, each asks the brokers by turns for the partitions that they lead, as a client library would. Clients share the
cores with the brokers, so that two brokers on two cores cannot do twice the work of one: what a request costs all
brokers tells whether processes get into each other's way.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.clients import hot, wire
from bench.clients.flood import Flood
from bench.clients.flood_requests import Repeated
from scripts.growth import topics
from scripts.growth.brokers import Brokers
from scripts.growth.latencies import latencies
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.growth.tables import Column

_TOPIC: Final = "spread"
_PARTITIONS: Final = 8
_CLIENTS: Final = 2
_SECONDS: Final = 5.0
_WARM_UP: Final = 1.0
_LOADS: Final = {"a record": hot.RECORD, "16 KB": hot.BATCH}


class _Share(NamedTuple):
    """What one client process does."""

    leaders: tuple[tuple[int, int], ...]
    """The port of a partition's leader, and the partition."""
    values: list[bytes]
    seconds: float


def measure(folder: Path, count: int, memory: int, column: Column) -> None:
    """Start so many brokers, and keep them busy."""
    with Brokers(folder, count, memory) as brokers:
        with brokers.connection() as admin:
            topics.create(admin, [_TOPIC], _PARTITIONS, 1, 1)
        leaders = _leaders(brokers)
        column.note("memory at rest, MB", brokers.memory() / 1e6)
        column.note("connections of a client", len({port for port, _ in leaders}))
        port, partition = leaders[0]
        latencies(port, _TOPIC, partition)
        column.note("a record alone, p50 µs", latencies(port, _TOPIC, partition)[49])
        with ProcessPoolExecutor(_CLIENTS, get_context("spawn")) as clients:
            for name, values in _LOADS.items():
                _run(clients, leaders, values, _WARM_UP)
                used, began = brokers.processor(), time.perf_counter()
                requests = _run(clients, leaders, values, _SECONDS)
                seconds, used = time.perf_counter() - began, brokers.processor() - used
                column.note(f"{name}: requests a second", requests / seconds)
                column.note(f"{name}: processor µs of all brokers for each", used / requests * 1e6)
                column.note(f"{name}: cores that brokers used", used / seconds)
        column.note("memory under load, MB", brokers.memory() / 1e6)


def _leaders(brokers: Brokers) -> list[tuple[int, int]]:
    """The port of each partition's leader, once all have one and every broker leads its share."""
    ports = [brokers.port(broker) for broker in brokers.living]
    found: list[tuple[int, int]] = []

    def spread() -> bool:
        with brokers.connect() as connection:
            answer = wire.metadata(connection)
        by_id = {broker.node_id: broker.port for broker in answer.brokers}
        (topic,) = (each for each in answer.topics if each.name == _TOPIC)
        found[:] = sorted((by_id.get(each.leader_id, 0), each.partition_index) for each in topic.partitions)
        return {port for port, _ in found} == set(ports)

    wait_until(spread, "every broker leads a part of the topic")
    return found


def _run(clients: ProcessPoolExecutor, leaders: list[tuple[int, int]], values: list[bytes], seconds: float) -> int:
    """Let each client take every second partition; how many requests were answered."""
    shares = [_Share(tuple(leaders[number::_CLIENTS]), values, seconds) for number in range(_CLIENTS)]
    return sum(clients.map(_ask, shares))


def _ask(share: _Share) -> int:
    """A client process: as much as the brokers take."""
    frame = wire.batch(share.values)
    error = wire.produce_error_at(_TOPIC)
    requests = (
        (port, Repeated(wire.produce_request(_TOPIC, partition, frame), error)) for port, partition in share.leaders
    )
    with Flood(requests) as flood:
        return flood.run(share.seconds).requests
