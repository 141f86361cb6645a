"""The time from a producer to a consumer, one record in flight, at a rate that no broker notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.clients import rdkafka
from bench.results import LATENCY, Better, Kind, Metric, percentile
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Scale

_PER_SECOND: Final = 250.0
_UNTIMED: Final = 50
"""Records with which the clients connect and settle."""


class LatencyRow(TurnRow):
    """librdkafka's producer (linger.ms=0, acks=all) and an assigned consumer in one process."""

    name = "latency"
    title = "end-to-end latency, 100 B"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The middle and the tail."""
        return tuple(
            Metric(key, key, "µs", Kind.LATENCY, Better.LOWER, LATENCY, f"end-to-end latency, {key}")
            for key in ("p50", "p99")
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Send one record after the other."""
        with lab.topic(broker, 1) as topic:
            samples = rdkafka.latencies(broker.port, topic, b"x" * 100, lab.scale.latencies + _UNTIMED, _PER_SECOND)
        timed = samples[_UNTIMED:]
        return {"p50": percentile(timed, 0.50) * 1e6, "p99": percentile(timed, 0.99) * 1e6}


END_TO_END = LatencyRow()
