"""The time from a producer to a consumer, one record in flight, at a rate that no broker notices.

Most of it is the clients' and the system's, which wakes each in its turn. How much, is told by a relay that only moves
bytes (`bench/floor`): over plain sockets, the same records go through the broker and, in the same turn, through it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from bench.clients import rdkafka, sockets, wire
from bench.floor import Floor
from bench.results import LATENCY, Better, Kind, Metric, Target, percentile
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Scale

_PER_SECOND: Final = 250.0
_UNTIMED: Final = 50
"""Records with which the clients connect and settle."""
_VALUE: Final = b"x" * 100
_OF_A_RELAY: Final = Target(1.3, relative=False)


class LatencyRow(TurnRow):
    """librdkafka's producer (linger.ms=0, acks=all) and an assigned consumer in one process."""

    name = "latency"
    title = "end-to-end latency, 100 B"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The middle and the tail, and the middle over plain sockets beside that of a relay."""
        over = "p50 over sockets to that of a relay"
        return (
            *(
                Metric(key, key, "µs", Kind.LATENCY, Better.LOWER, LATENCY, f"end-to-end latency, {key}")
                for key in ("p50", "p99")
            ),
            Metric("over", over, "times", Kind.LATENCY, Better.LOWER, _OF_A_RELAY, "latency to that of a relay"),
            Metric("plain", "p50 over sockets", "µs", Kind.LATENCY, Better.LOWER, detail=True),
            Metric("relay", "p50 of the relay", "µs", Kind.LATENCY, Better.LOWER, detail=True),
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Send one record after the other."""
        with lab.topic(broker, 1) as topic:
            samples = rdkafka.latencies(broker.port, topic, _VALUE, lab.scale.latencies + _UNTIMED, _PER_SECOND)
        timed = samples[_UNTIMED:]
        with lab.topic(broker, 1) as topic:
            topic_id = wire.topic_id(broker.port, topic)
            produce = wire.produce_batches(topic, (0,), wire.batch([_VALUE]), -1)

            def p50(port: int) -> float:
                def fetch(offset: int) -> bytes:
                    return wire.fetch_by_id(topic_id, 0, offset, 1 << 20, wait=True)

                count = lab.scale.latencies // 2 + _UNTIMED
                return percentile(sockets.deliveries(port, fetch, produce, count, _PER_SECOND)[_UNTIMED:], 0.50) * 1e6

            plain = p50(broker.port)
        with Floor(sorted(os.sched_getaffinity(0)), "relay") as floor:
            relay = p50(floor.port)
        return {
            "p50": percentile(timed, 0.50) * 1e6,
            "p99": percentile(timed, 0.99) * 1e6,
            "over": plain / relay,
            "plain": plain,
            "relay": relay,
        }


END_TO_END = LatencyRow()
