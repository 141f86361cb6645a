"""What the performance tools count, and the lines they print: word by word those of Kafka's tools.

With --json the result is one document on standard output, and what is said on the way goes to standard error.
Latencies are kept as a histogram in whole milliseconds: any number of records takes little memory, and percentiles are
exact to the millisecond that is printed.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from barnabas.cli.common.output import remark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MB: Final = 1024 * 1024
PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)
SEND_MS: Final = 250
"""Milliseconds between two times that one process of several sends what it has counted."""


class CountedRecords(NamedTuple):
    """What a process of several has counted since it last said so."""

    bytes: int
    latencies: Counter[int]
    """How many records had each latency, in milliseconds."""
    failed: int
    """Records that were not stored."""


class Window:
    """Records since a moment."""

    __slots__ = ("bytes", "count", "max_ms", "start", "total_ms")

    def __init__(self, start: float | None = None) -> None:
        self.start = time.monotonic() if start is None else start
        self.count = 0
        self.bytes = 0
        self.total_ms = 0
        self.max_ms = 0

    def add(self, size: int, latencies_ms: Sequence[int]) -> None:
        """More records, of so many bytes together."""
        self.count += len(latencies_ms)
        self.bytes += size
        self.total_ms += sum(latencies_ms)
        self.max_ms = max(self.max_ms, max(latencies_ms))

    def add_counted(self, counted: CountedRecords) -> None:
        """More records, as another process has counted them."""
        latencies = counted.latencies
        self.count += latencies.total()
        self.bytes += counted.bytes
        self.total_ms += sum(latency * count for latency, count in latencies.items())
        self.max_ms = max((self.max_ms, *latencies))

    @property
    def seconds(self) -> float:
        """How long it has been."""
        return max(time.monotonic() - self.start, 1e-9)


class ProducerStats:
    """Acknowledged records, in all and since the last line."""

    def __init__(
        self,
        reporting_ms: int,
        *,
        steady: bool = False,
        quiet: bool = False,
        say: Callable[[str], None] = click.echo,
        start: float | None = None,
    ) -> None:
        self.total = Window(start)
        self.failed = 0
        self.quiet = quiet
        self._steady = steady
        self._say = say
        self._window = Window(start)
        self._interval = reporting_ms / 1000
        self._latencies: Counter[int] = Counter()

    def begin(self) -> None:
        """Count from now on."""
        self.total, self._window = Window(), Window()

    def record(self, size: int, latencies_ms: Sequence[int]) -> None:
        """Records were acknowledged: one at least, of so many bytes together."""
        self.total.add(size, latencies_ms)
        self._window.add(size, latencies_ms)
        self._latencies.update(latencies_ms)

    def record_counted(self, counted: CountedRecords) -> None:
        """Records that another process has counted."""
        self.total.add_counted(counted)
        self._window.add_counted(counted)
        self._latencies.update(counted.latencies)
        self.failed += counted.failed

    def report_if_due(self) -> None:
        """Print a line if the interval is over."""
        window = self._window
        if window.seconds >= self._interval and window.count:
            if self._steady and self.total.count == window.count:
                self._say("In steady state.")
            if not self.quiet:
                self._say(
                    f"{window.count} records sent, {window.count / window.seconds:.1f} records/sec "
                    f"({window.bytes / window.seconds / MB:.2f} MB/sec), "
                    f"{window.total_ms / window.count:.1f} ms avg latency, {float(window.max_ms):.1f} ms max latency."
                )
            self._window = Window()

    def print_total(self) -> None:
        """Print the last line."""
        total = self.total
        shares = self.percentiles(PERCENTILES)
        click.echo(
            f"{total.count}{' steady state' if self._steady else ''} records sent, "
            f"{total.count / total.seconds:.6f} records/sec ({total.bytes / total.seconds / MB:.2f} MB/sec), "
            f"{total.total_ms / max(total.count, 1):.2f} ms avg latency, {float(total.max_ms):.2f} ms max latency, "
            f"{shares[0]} ms 50th, {shares[1]} ms 95th, {shares[2]} ms 99th, {shares[3]} ms 99.9th."
        )

    def summary(self) -> dict[str, object]:
        """The last line as a JSON object."""
        total = self.total
        return {
            "records": total.count,
            "recordsPerSec": total.count / total.seconds,
            "megabytesPerSec": total.bytes / total.seconds / MB,
            "averageLatencyMs": total.total_ms / max(total.count, 1),
            "maxLatencyMs": total.max_ms,
            "latencyPercentilesMs": dict(zip(map(percent, PERCENTILES), self.percentiles(PERCENTILES), strict=True)),
        }

    def percentiles(self, shares: Sequence[float]) -> list[int]:
        """The latency that this share of records did not exceed, for each."""
        return percentiles(self._latencies, shares)


class SentStats(ProducerStats):
    """Acknowledged records of one process of several: nothing is printed, what was counted is sent now and then."""

    def __init__(self, send: Callable[[CountedRecords], None]) -> None:
        super().__init__(SEND_MS)
        self._send = send

    def report_if_due(self) -> None:
        """Send what was counted if it is time."""
        if self._window.seconds >= self._interval:
            self.send_rest()

    def send_rest(self) -> None:
        """Send what was counted and not sent yet."""
        if self._window.count or self.failed:
            self._send(CountedRecords(self._window.bytes, self._latencies, self.failed))
            self._latencies = Counter()
            self.failed = 0
        self._window = Window()


def percent(share: float) -> str:
    """A share as the name of a percentile: 99.9 for 0.999."""
    return f"{share * 100:g}"


def line_printer(*, as_json: bool) -> Callable[[str], None]:
    """How to print what is said on the way to a result."""
    return remark if as_json else click.echo


@contextmanager
def without_collector() -> Iterator[None]:
    """Measure without the garbage collector: millions of records come and go, and none of them is part of a cycle."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def percentiles(histogram: Counter[int], shares: Sequence[float]) -> list[int]:
    """For each share, the value at that place when all are sorted; 0 when there are none."""
    count = sum(histogram.values())
    found = []
    for share in shares:
        place, before = min(int(share * count), count - 1), 0
        for value in sorted(histogram):
            before += histogram[value]
            if before > place:
                found.append(value)
                break
        else:
            found.append(0)
    return found
