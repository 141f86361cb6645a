"""A greedy client beside a modest one: with a quota, it may not take what the other needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.clients import greedy, neighbours
from bench.results import Better, Kind, Metric, Target
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Scale

_QUOTA: Final = 1024 * 1024
"""Bytes a second that the greedy client may send."""
_MOST: Final = Target(1.5, relative=False)


class GreedyNeighbourRow(TurnRow):
    """A producer and a consumer of single records, alone and beside a producer that sends all it can."""

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
        """Let windows alone and beside it take turns."""
        greedy.set_quota(broker.port, _QUOTA)
        with (
            lab.topic(broker, 1) as flooded,
            lab.topic(broker, 1) as topic,
            neighbours.ModestClient(broker.port, topic) as client,
            neighbours.running("bench.clients.greedy", str(broker.port), flooded) as neighbour,
        ):
            found = neighbours.compare(client, neighbour)
        return {"p99": found.beside * 1e6, "rise": found.beside / found.alone, "alone": found.alone * 1e6}


GREEDY_NEIGHBOUR = GreedyNeighbourRow()
