"""Compaction: how fast the cleaner is, and what producers and consumers notice of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bench.clients import compaction
from bench.clients.traffic import PRODUCERS, Traffic
from bench.results import PEAK, Better, Kind, Metric, percentile, throughput
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Scale

_QUIET_SECONDS: Final = 5.0


class CleaningRow(TurnRow):
    """One partition, five records of each key; then another one beside steady traffic of producers and consumers."""

    name = "cleaning"
    title = "cleaning, 5 records of each key"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """From the order to clean until it is done; and the tails of produce and fetch before and meanwhile."""
        return (
            throughput("MB/s"),
            Metric("cpu", "broker CPU", "s/GB", Kind.CPU, Better.LOWER),
            *(
                Metric(
                    f"{what}-{when}",
                    f"{what} p99 {when}",
                    "µs",
                    Kind.LATENCY,
                    Better.LOWER,
                    caption=f"{what} p99, {'no cleaning' if when == 'without' else 'cleaning'}",
                )
                for what in ("produce", "fetch")
                for when in ("without", "meanwhile")
            ),
            PEAK,
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Fill and clean one topic alone, then another one beside the traffic."""
        with lab.topic(broker, 1) as alone, lab.topic(broker, 1) as beside, lab.topic(broker, PRODUCERS) as used:
            for topic in (alone, beside):
                compaction.prepare(broker.port, topic)
                compaction.fill(broker.port, topic, lab.scale.cleaned)
            size, end = compaction.closed_segments(broker.data, alone)
            with broker.meter() as meter:
                compaction.start(broker.port, alone)
                compaction.wait_until_clean(broker.data, alone, end)
            left, _ = compaction.closed_segments(broker.data, alone)
            if left > size / 2:
                raise RuntimeError(f"{broker.name} cleaned {size} bytes to {left}: four of five records should be gone")
            _, end = compaction.closed_segments(broker.data, beside)
            with Traffic(broker.port, used) as traffic:
                until = time.monotonic() + _QUIET_SECONDS
                without = traffic.run(lambda: time.monotonic() > until)
                compaction.start(broker.port, beside)
                meanwhile = traffic.run(lambda: compaction.is_clean(broker.data, beside, end))
        return {
            "throughput": size / 1e6 / meter.seconds,
            "cpu": meter.cpu / (size / 1e9),
            "produce-without": percentile(without.produce, 0.99) * 1e6,
            "produce-meanwhile": percentile(meanwhile.produce, 0.99) * 1e6,
            "fetch-without": percentile(without.fetch, 0.99) * 1e6,
            "fetch-meanwhile": percentile(meanwhile.fetch, 0.99) * 1e6,
            "peak": meter.peak_mb,
        }


CLEANING = CleaningRow()
