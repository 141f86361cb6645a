"""Brokers of this machine that are measured: started, watched, ended, with bounds of memory.

Processor time is the kernel's own account of a process, to the nanosecond; memory is what a process holds for itself.
"""

from __future__ import annotations

import resource
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from bench.clients import wire
from tests.support.clusters import Node
from tests.support.processes import free_port
from tests.support.wire import Connection

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Mapping
    from pathlib import Path

DEADLINE: Final = 900.0
"""Seconds for anything that is waited for; the time of a whole size is bounded too."""
_PROCESS_CLOCK: Final = 2
"""CPUCLOCK_SCHED: with the id of a process, a clock that counts its processor time."""
ALWAYS: Final = {
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "log.segment.delete.delay.ms": "1000",
}
"""Leaders move only when they are told to, and where brokers wait on purpose, that is not what is measured."""


class Brokers:
    """Brokers 1 to `size`, as one cluster if there are several; as a context manager they are killed at the end."""

    def __init__(self, folder: Path, size: int, memory: int, settings: Mapping[str, str] | None = None) -> None:
        """None of them may have more bytes of its own than `memory`."""
        self._folder = folder
        self._memory = memory
        self._settings = {**ALWAYS, **(settings or {})}
        if size > 1:
            self._settings["metadata.store"] = str(folder / "metadata")
        self._ports = {number: free_port() for number in range(1, size + 1)}
        self._nodes: dict[int, Node] = {}

    def __enter__(self) -> Self:
        try:
            self.start(self._ports)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes.values():
            with suppress(ProcessLookupError):
                node.kill()

    @property
    def living(self) -> list[int]:
        """Ids of those that run."""
        return sorted(self._nodes)

    def port(self, broker: int = 1) -> int:
        """Where a broker listens."""
        return self._ports[broker]

    def connect(self, broker: int = 1) -> socket.socket:
        """A connection for prepared requests."""
        return wire.connect(self.port(broker), DEADLINE)

    def connection(self, broker: int = 1) -> Connection:
        """A connection for requests made of plain values."""
        return Connection(f"127.0.0.1:{self.port(broker)}", DEADLINE)

    def set(self, key: str, value: str) -> None:
        """Start brokers with this setting from now on."""
        self._settings[key] = value

    def start(self, brokers: Iterable[int]) -> float:
        """Start these at once; seconds until all of them say that they are ready."""
        began = time.perf_counter()
        started = []
        for number in brokers:
            node = Node(self._folder, number, f"127.0.0.1:{self.port(number)}", self._settings)
            self._nodes[number] = node
            resource.prlimit(node.pid, resource.RLIMIT_DATA, (self._memory, self._memory))
            started.append(node)
        for node in started:
            node.wait_for_output(r"\bis ready on\b", DEADLINE)
        return time.perf_counter() - began

    def stop(self) -> float:
        """Stop all of them cleanly, at the same time; seconds."""
        began = time.perf_counter()
        for node in self._nodes.values():
            node.send(signal.SIGTERM)
        for number in self.living:
            code = self._nodes.pop(number).wait(DEADLINE)
            if code:
                raise RuntimeError(f"broker {number} ended with {code}")
        return time.perf_counter() - began

    def kill(self, broker: int) -> None:
        """kill -9."""
        self._nodes.pop(broker).kill()

    def processor(self) -> float:
        """Processor seconds that those which run have used since they were started."""
        return sum(time.clock_gettime((~node.pid << 3) | _PROCESS_CLOCK) for node in self._nodes.values())

    def memory(self) -> int:
        """Bytes that they hold for themselves."""
        return sum(node.anonymous_memory() for node in self._nodes.values())

    def at_rest(self, seconds: float) -> float:
        """Processor seconds that they use in a second in which nothing is asked of them."""
        used, began = self.processor(), time.perf_counter()
        time.sleep(seconds)
        return (self.processor() - used) / (time.perf_counter() - began)
