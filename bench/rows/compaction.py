"""Compaction: how fast the cleaner is, and what producers notice of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bench.clients import compaction, wire
from bench.results import PEAK, Better, Kind, Metric, percentile, throughput
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.brokers import Broker
    from bench.lab import Lab, Scale

_PER_SECOND: Final = 500.0
_QUIET_SECONDS: Final = 2.0
_VALUE: Final = b"x" * 100


class CleaningRow(TurnRow):
    """One partition, five records of each key, and a producer of single records beside the cleaner."""

    name = "cleaning"
    title = "cleaning, 5 records of each key"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """From the order to clean until it is done; and the tail of produce before and meanwhile."""
        return (
            throughput("MB/s"),
            Metric("cpu", "broker CPU", "s/GB", Kind.CPU, Better.LOWER),
            Metric(
                "quiet", "produce p99 without", "µs", Kind.LATENCY, Better.LOWER, caption="produce p99, no cleaning"
            ),
            Metric("busy", "produce p99 meanwhile", "µs", Kind.LATENCY, Better.LOWER, caption="produce p99, cleaning"),
            PEAK,
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Fill and clean one topic alone, then another one beside a producer."""
        with lab.topic(broker, 1) as alone, lab.topic(broker, 1) as beside, lab.topic(broker, 1) as produced:
            for topic in (alone, beside):
                compaction.prepare(broker.port, topic)
                compaction.fill(broker.port, topic, lab.scale.cleaned)
            size, end = compaction.closed_segments(broker.data, alone)
            with broker.meter() as meter:
                compaction.start(broker.port, alone)
                compaction.wait_until_clean(broker.data, alone, end)
            seconds = meter.seconds
            left, _ = compaction.closed_segments(broker.data, alone)
            if left > size / 2:
                raise RuntimeError(f"{broker.name} cleaned {size} bytes to {left}: four of five records should be gone")
            until = time.monotonic() + _QUIET_SECONDS
            quiet = _produce(broker.port, produced, lambda: time.monotonic() > until)
            _, end = compaction.closed_segments(broker.data, beside)
            compaction.start(broker.port, beside)
            busy = _produce(broker.port, produced, lambda: compaction.is_clean(broker.data, beside, end))
        return {
            "throughput": size / 1e6 / seconds,
            "cpu": meter.cpu / (size / 1e9),
            "quiet": percentile(quiet, 0.99) * 1e6,
            "busy": percentile(busy, 0.99) * 1e6,
            "peak": meter.peak_mb,
        }


def _produce(port: int, topic: str, done: Callable[[], bool]) -> list[float]:
    """Seconds that single records took, one after the other at a steady pace, until it is done."""
    request = wire.produce_request(topic, 0, wire.batch([_VALUE]))
    error = wire.produce_error_at(topic)
    samples: list[float] = []
    with wire.connect(port) as connection:
        due = time.perf_counter()
        while not samples or not done():
            time.sleep(max(0.0, due - time.perf_counter()))
            due += 1 / _PER_SECOND
            started = time.perf_counter()
            connection.sendall(request)
            if wire.receive(connection)[error] != b"\0\0":
                raise RuntimeError("a record was refused")
            samples.append(time.perf_counter() - started)
    return samples


CLEANING = CleaningRow()
