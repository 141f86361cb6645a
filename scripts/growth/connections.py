"""Ten thousand connections that are quiet: what they take, and what a client beside them notices."""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from bench.clients import wire
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from scripts.growth import topics
from scripts.growth.brokers import Brokers
from scripts.growth.latencies import latencies

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.growth.tables import Column

_TOPIC: Final = "beside"
_REST: Final = 10.0
_OWN_FILES: Final = 100
"""Descriptors of this process beside the connections."""


def possible(wanted: int) -> int:
    """How many connections this process may hold, after asking for as many descriptors as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - _OWN_FILES)


def measure(folder: Path, count: int, memory: int, column: Column) -> None:
    """Open them all, look, and close them all."""
    hello = wire.frame(ApiVersionsRequest(client_software_name="growth", client_software_version="1"))
    with Brokers(folder, 1, memory) as brokers, brokers.connection() as admin:
        topics.create(admin, [_TOPIC], 1, 1, 1)
        latencies(brokers.port(), _TOPIC, 0)
        column.note("a record alone, p50 µs", latencies(brokers.port(), _TOPIC, 0)[49])
        before = brokers.memory()
        resting = brokers.at_rest(_REST)
        with ExitStack() as stack:
            used, began = brokers.processor(), time.perf_counter()
            for _ in range(count):
                connection = stack.enter_context(brokers.connect())
                connection.sendall(hello)
                wire.receive(connection)
            seconds = time.perf_counter() - began
            column.note("opened, each with a first request, s", seconds)
            column.note("processor µs of the broker for each", (brokers.processor() - used) / count * 1e6)
            column.note("memory of each, KB", (brokers.memory() - before) / count / 1e3)
            column.note("at rest without them, processor ms a second", resting * 1e3)
            column.note("at rest with them, processor ms a second", brokers.at_rest(_REST) * 1e3)
            beside = latencies(brokers.port(), _TOPIC, 0)
            column.note("a record beside them, p50 µs", beside[49])
            column.note("a record beside them, p99 µs", beside[98])
            used, began = brokers.processor(), time.perf_counter()
        latencies(brokers.port(), _TOPIC, 0)
        column.note("closed, and 1,000 records after it, s", time.perf_counter() - began)
        column.note("memory left of each, KB", (brokers.memory() - before) / count / 1e3)
