"""Many connections that say little: fifty eager producers of single records, a thousand that produce once a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.clients.sockets import Connections
from bench.lab import PARTITIONS
from bench.results import CPU_PRODUCE, PEAK, Better, Kind, Metric, cpu, throughput
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Scale

_VALUE: Final = b"x" * 100


class SingleRecordsRow(TurnRow):
    """Each producer waits for its answer, then sends the next record: one request per record."""

    name = "single-records"
    title = "50 producers of single records"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Requests per second, their cost, and how busy the client was: near 1 it is the limit."""
        busy = Metric("client", "client CPU", "of one core", Kind.CPU, Better.LOWER, detail=True)
        return (throughput("requests/s"), cpu(CPU_PRODUCE, "s/million"), PEAK, busy)

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Send all records through fifty connections."""
        total = lab.scale.single_records
        with lab.topic(broker, PARTITIONS) as topic:
            with Connections(broker.port, 50) as producers, broker.meter() as meter:
                load = producers.eagerly(topic, PARTITIONS, _VALUE, total)
            lab.expect_records(broker, topic, PARTITIONS, total)
        return {
            "throughput": load.requests / load.seconds,
            "cpu": meter.cpu / (load.requests / 1e6),
            "peak": meter.peak_mb,
            "client": load.client_cpu / load.seconds,
        }


class SlowConnectionsRow(TurnRow):
    """A thousand connections with one produce a second each."""

    name = "slow-connections"
    title = "1,000 connections, one produce a second each"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """What it costs to hold them."""
        return (
            Metric("cpu", "broker CPU", "% of a core", Kind.CPU, Better.LOWER),
            Metric("memory", "memory", "MB", Kind.MEMORY, Better.LOWER, caption="with 1,000 connections"),
            PEAK,
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Hold them for a while."""
        with lab.topic(broker, PARTITIONS) as topic:
            with Connections(broker.port, 1_000) as connections, broker.meter() as meter:
                load = connections.once_a_second(topic, PARTITIONS, _VALUE, lab.scale.seconds)
            lab.expect_records(broker, topic, PARTITIONS, load.requests)
        if load.seconds > lab.scale.seconds * 1.2:
            lab.note(
                f"{broker.name} fell behind with 1,000 connections: {load.seconds:.1f} s for {lab.scale.seconds:g}"
            )
        return {"cpu": 100 * meter.cpu / meter.seconds, "memory": meter.peak_mb, "peak": meter.peak_mb}


SINGLE_RECORDS = SingleRecordsRow()
SLOW_CONNECTIONS = SlowConnectionsRow()
