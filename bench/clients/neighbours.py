"""What one client notices of another: its latency in short windows, by turns with and without the other.

On a machine that is not quiet one long measurement with the neighbour and one without it differ for reasons of their
own. So windows of two seconds take turns, the neighbour is stopped and continued by signals, and medians of their p99
are compared. What the neighbour takes from the processor itself is not what is measured, only what it does to the
broker. So it runs only where a core has nothing else to do (`SCHED_IDLE`), and gives way at once. The lowest nice value
is not enough for that: Linux lets such a process go on until the next tick, 4 ms later, before a broker that has got
something to do.

A neighbour that gives way may come to nothing where cores are busy, and a latency beside it then says nothing. So it
counts what it does (`Tally`), and the rate in the windows stands beside their latency.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from bench.clients import wire
from bench.results import percentile

if TYPE_CHECKING:
    from collections.abc import Iterator

PER_SECOND: Final = 250.0
SAMPLES: Final = 500
"""Records of a window."""
PAIRS: Final = 3
"""Windows with the neighbour, and as many without."""
_UNTIMED: Final = 50
_SETTLE: Final = 1.0
"""Seconds after the neighbour goes on, or stops, that are not measured."""
_MARK: Final = 0x0123_4567_89AB_CDEF
_MEGABYTE: Final = 1 << 20
_OK: Final = b"\0\0"
_ONLY_WHERE_IDLE: Final = ("chrt", "--idle", "0")


_TALLY: Final = "BENCH_TALLY"
"""The variable of the environment that tells a neighbour where its tally is."""


class Tally:
    """How much a neighbour has done, in memory that it shares with whoever watches it."""

    def __init__(self, descriptor: int | None = None) -> None:
        """The tally of this descriptor, or a new one."""
        if descriptor is None:
            descriptor = os.memfd_create("tally")
            os.ftruncate(descriptor, 8)
        self.descriptor = descriptor
        self._number = memoryview(mmap.mmap(descriptor, 8)).cast("Q")

    @staticmethod
    def of_this_process() -> Tally:
        """The one that `running` has given this process; one that nobody looks at, if it was started by hand."""
        found = os.environ.get(_TALLY)
        return Tally(None if found is None else int(found))

    def add(self) -> None:
        """One more was done."""
        self._number[0] += 1

    @property
    def total(self) -> int:
        """How much was done."""
        return self._number[0]


class Beside(NamedTuple):
    """Medians of p99 in seconds, and of what the neighbour did in a second of its windows."""

    alone: float
    beside: float
    rate: float


class ModestClient:
    """Produces small records at a steady pace, one at a time, and waits for each with a fetch; a context manager."""

    def __init__(self, port: int, topic: str) -> None:
        self._producer, self._consumer = wire.connect(port), wire.connect(port)
        self._produce = wire.produce_request(topic, 0, wire.batch([b"x" * 100]))
        self._error = wire.produce_error_at(topic)
        fetch = wire.fetch_request(topic, 0, _MARK, _MEGABYTE, wait=True)
        self._before, self._after = fetch.split(_MARK.to_bytes(8, "big"))
        self._offset = 0

    def __enter__(self) -> Self:
        self.latencies(_UNTIMED)
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._consumer.close()

    def latencies(self, count: int) -> list[float]:
        """Seconds from sending a record to its arrival, of so many."""
        samples = []
        due = time.perf_counter()
        for _ in range(count):
            self._consumer.sendall(self._before + self._offset.to_bytes(8, "big") + self._after)
            due = max(due + 1 / PER_SECOND, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
            started = time.perf_counter()
            self._producer.sendall(self._produce)
            arrived = wire.receive(self._consumer)
            samples.append(time.perf_counter() - started)
            if wire.receive(self._producer)[self._error] != _OK or len(arrived) < len(b"x" * 100):
                raise RuntimeError(f"the record at offset {self._offset} was not stored and fetched")
            self._offset += 1
        return samples


class Neighbour:
    """Another client in a process of its own, which can be held."""

    def __init__(self, process: subprocess.Popen[str], tally: Tally) -> None:
        self._process = process
        self._tally = tally

    @property
    def done(self) -> int:
        """How much it has done, if it counts that."""
        return self._tally.total

    def hold(self) -> None:
        """Let it do nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the other client has ended with {self._process.returncode}")
        self._process.send_signal(signal.SIGCONT)

    def result(self) -> str:
        """What it says in the end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def running(module: str, *words: str) -> Iterator[Neighbour]:
    """Run a client of this package from when it says that it is ready, until the block is over."""
    command, tally = [*_ONLY_WHERE_IDLE, sys.executable, "-m", module, *words], Tally()
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, _TALLY: str(tally.descriptor)},
        pass_fds=(tally.descriptor,),
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{module} ended before it was ready")
            yield Neighbour(process, tally)
        finally:
            process.kill()
            os.close(tally.descriptor)


def compare(client: ModestClient, neighbour: Neighbour) -> Beside:
    """The client's p99 with and without the neighbour, and what the neighbour did meanwhile."""
    alone: list[float] = []
    beside: list[float] = []
    rates: list[float] = []
    for _ in range(PAIRS):
        for into, switch in ((alone, neighbour.hold), (beside, neighbour.go_on)):
            switch()
            client.latencies(round(_SETTLE * PER_SECOND))
            started, done = time.perf_counter(), neighbour.done
            into.append(percentile(client.latencies(SAMPLES), 0.99))
            if into is beside:
                rates.append((neighbour.done - done) / (time.perf_counter() - started))
    return Beside(median(alone), median(beside), median(rates))
