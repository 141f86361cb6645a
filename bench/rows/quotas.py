"""A greedy client beside a modest one: with a quota, it may not take what the other needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.clients import greedy, rdkafka
from bench.results import Better, Kind, Metric, Target, percentile
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Scale

_PER_SECOND: Final = 250.0
_UNTIMED: Final = 50
"""Records with which the clients connect and settle."""
_QUOTA: Final = 1024 * 1024
"""Bytes a second that the greedy client may send."""
_MOST: Final = Target(1.5, relative=False)


class GreedyNeighbourRow(TurnRow):
    """librdkafka's producer and consumer of single records, alone and beside a producer that sends all it can."""

    name = "greedy-neighbour"
    title = "latency beside a greedy client with a quota"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The tail beside the greedy client, and how much longer it is than alone."""
        return (
            Metric("p99", "p99", "µs", Kind.LATENCY, Better.LOWER, caption="p99 beside a greedy client with a quota"),
            Metric("rise", "p99 to that without it", "times", Kind.LATENCY, Better.LOWER, _MOST),
            Metric("alone", "p99 without it", "µs", Kind.LATENCY, Better.LOWER, detail=True),
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Measure alone, beside it, and alone again: what the machine does meanwhile is the same for both."""
        greedy.set_quota(broker.port, _QUOTA)
        with lab.topic(broker, 1) as topic:
            before = self._p99(lab, broker)
            with greedy.running(broker.port, topic):
                beside = self._p99(lab, broker)
            alone = (before + self._p99(lab, broker)) / 2
        return {"p99": beside, "rise": beside / alone, "alone": alone}

    @staticmethod
    def _p99(lab: Lab, broker: Broker) -> float:
        with lab.topic(broker, 1) as topic:
            samples = rdkafka.latencies(broker.port, topic, b"x" * 100, lab.scale.latencies + _UNTIMED, _PER_SECOND)
        return percentile(samples[_UNTIMED:], 0.99) * 1e6


GREEDY_NEIGHBOUR = GreedyNeighbourRow()
