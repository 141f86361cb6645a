"""The process: its memory, descriptors and processor time, and how its event loop does."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.broker.clock import seconds_since_start
from barnabas.broker.metrics.exposition import GAUGE, HISTOGRAM, Family, counter, gauge, labels, number
from barnabas.broker.metrics.requests import BOUNDS, PER_DECADE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.broker.metrics.event_loop import EventLoopWatch
    from barnabas.broker.metrics.scrape import Pace

STATUS: Final = Path("/proc/self/status")
IO: Final = Path("/proc/self/io")
DESCRIPTORS: Final = Path("/proc/self/fd")
WORST_SECONDS: Final = 60.0
MEMORY: Final = {"RssAnon": "heap", "RssFile": "mapped files", "RssShmem": "shared", "VmSwap": "swapped"}
"""Lines of the status of a process, and what they are called here."""


class ProcessSeries:
    """Series of the process that this is."""

    def __init__(self, loop: EventLoopWatch) -> None:
        self._loop = loop
        self._began = time.time() - seconds_since_start()

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """The process as it is now; what the system says of it is read in a thread."""
        status, io, descriptors = await asyncio.to_thread(_read_system)
        pace.resume()
        families = [
            counter("process_cpu_seconds", "Processor time of all threads.", time.process_time()),
            gauge("process_start_time_seconds", "When the process began.", self._began),
            gauge("process_max_fds", "Descriptors that the process may have.", _most_descriptors()),
            *_disk(io),
            *_memory(status),
            *self._event_loop(),
        ]
        if descriptors is not None:
            families.append(gauge("process_open_fds", "Descriptors that are open.", descriptors))
        return families

    def _event_loop(self) -> list[Family]:
        loop = self._loop
        lag = Family("barnabas_event_loop_lag_seconds", HISTOGRAM, "How late the event loop ran what was due.")
        count = 0
        for place, (bound, bucket) in enumerate(zip((*BOUNDS, float("inf")), loop.lags, strict=True)):
            count += bucket
            if place % (PER_DECADE // 2) == 0 or bound == float("inf"):
                lag.add(count, f'{{le="{number(round(bound, 9))}"}}', "_bucket")
        lag.add(loop.lag_seconds, "", "_sum")
        lag.add(count, "", "_count")
        idle = loop.idle
        by_processor = Family(
            "kafka_network_processor_idle_percent", GAUGE, "The idle share of the event loop, as of Kafka's processors."
        )
        by_processor.add(idle, labels(networkProcessor="0"))
        return [
            lag,
            gauge(
                "barnabas_event_loop_worst_lag_seconds",
                "The longest time by which the event loop was late within the last minute.",
                loop.worst(WORST_SECONDS),
            ),
            counter("barnabas_event_loop_cpu_seconds", "Processor time of the event loop.", loop.cpu_seconds()),
            by_processor,
            gauge(
                "kafka_network_socketserver_networkprocessoravgidle_percent",
                "The share of time in which the event loop was idle, as of Kafka's network threads.",
                idle,
            ),
            gauge(
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
                "The share of time in which the event loop was idle, as of Kafka's request handlers.",
                idle,
            ),
        ]


def _read_system() -> tuple[Mapping[str, int], Mapping[str, int], int | None]:
    """What /proc says of this process; empty where there is none."""
    status, io, descriptors = {}, {}, None
    with contextlib.suppress(OSError):
        for line in STATUS.read_text().splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                status[name] = int(value.split()[0]) * 1024
    with contextlib.suppress(OSError):
        for line in IO.read_text().splitlines():
            name, _, value = line.partition(":")
            io[name] = int(value)
    with contextlib.suppress(OSError):
        descriptors = sum(1 for _ in DESCRIPTORS.iterdir()) - 1  # without the one that lists them
    return status, io, descriptors


def _most_descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _memory(status: Mapping[str, int]) -> list[Family]:
    resident = status.get("VmRSS")
    if resident is None:  # no /proc: the most that there ever was, in KB but on macOS
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return [gauge("process_resident_memory_bytes", "Memory of the process, the most ever.", peak)]
    families = [
        gauge("process_resident_memory_bytes", "Memory of the process.", resident),
        gauge(
            "process_virtual_memory_bytes",
            "Virtual memory of the process: addresses that it has, used or not.",
            status.get("VmSize", 0),
        ),
    ]
    kinds = Family("barnabas_memory_bytes", GAUGE, "Memory of the process by kind, as the system tells them apart.")
    for name, kind in MEMORY.items():
        if name in status:
            kinds.add(status[name], labels(kind=kind))
    return [*families, kinds]


def _disk(io: Mapping[str, int]) -> list[Family]:
    if "read_bytes" not in io:
        return []
    return [
        gauge("kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes that were read from disks.", io["read_bytes"]),
        gauge(
            "kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that were written to disks.", io["write_bytes"]
        ),
    ]
