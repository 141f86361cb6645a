"""Security: what TLS and logins cost, on brokers with the same certificate, protocol and cipher suite.

Producer and consumer are librdkafka's, whose TLS is OpenSSL's. Java's client is not the one to compare brokers by: with
its first compiler alone, as the plain rows have it, it has no fast AES, and with all of them it is slow to get warm.
"""

from __future__ import annotations

import shutil
import time
from abc import abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from bench.clients import neighbours, rdkafka
from bench.clients.tls import IdleConnections
from bench.lab import PARTITIONS, show, show_logs
from bench.measure import memory_mb
from bench.results import PEAK, Better, Kind, Metric, Target
from bench.rows.row import Row, TurnRow
from bench.secured import SECURED, SUITE, Secured

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Samples, Scale

_RECORD: Final = 1024
_CONNECTIONS: Final = 1_000
_FASTER: Final = Target(1.2)
_CHEAPER: Final = Target(0.8)
_NOT_SLOWER: Final = Target(1.0)
_IDLE: Final = Target(60.0, relative=False)
_MOST: Final = Target(2.0, relative=False)
_SETTLE: Final = 1.0
"""Seconds after which connections that were opened count as idle."""
_FIRST: Final = 20
"""Connections by which a broker loads what it needs once."""
_LEAST_KB: Final = 0.1
"""Less than that cannot be told."""


class SecuredRow(TurnRow):
    """A row whose repetitions are turns of the two secured brokers."""

    kinds = SECURED

    @abstractmethod
    def secured_once(self, lab: Lab, broker: Secured) -> dict[str, float]:
        """One turn: a value per metric's key."""

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """One turn."""
        assert isinstance(broker, Secured)
        return self.secured_once(lab, broker)


def _transfer() -> tuple[Metric, ...]:
    """The client's rate, and what it cost the broker."""
    return (
        Metric("throughput", "throughput", "records/s", Kind.THROUGHPUT, Better.HIGHER, _FASTER),
        Metric("cpu", "broker CPU", "s/GB", Kind.CPU, Better.LOWER, _CHEAPER),
        PEAK,
    )


def _settings(broker: Secured) -> dict[str, str]:
    """How librdkafka connects over TLS."""
    return {"security.protocol": "ssl", "ssl.ca.location": str(broker.authority)}


class TlsProduceRow(SecuredRow):
    """librdkafka's producer without a limit."""

    name = "tls-produce"
    title = "TLS: produce 1 KB × 6 partitions, acks=1"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Rate and cost."""
        return _transfer()

    def secured_once(self, lab: Lab, broker: Secured) -> dict[str, float]:
        """Fill a new topic."""
        records = lab.scale.records_1k
        broker.check_suite()
        lab.note(f"TLS rows: TLSv1.3 with {SUITE} and the same ECDSA certificate; clients by librdkafka (OpenSSL).")
        with lab.topic(broker, PARTITIONS) as topic:
            with broker.meter() as meter:
                rate = rdkafka.produce(broker.tls_port, topic, PARTITIONS, b"x" * _RECORD, records, _settings(broker))
            lab.expect_records(broker, topic, PARTITIONS, records)
        return {"throughput": rate, "cpu": meter.cpu / (records * _RECORD / 1e9), "peak": meter.peak_mb}


class TlsConsumeRow(SecuredRow):
    """librdkafka's consumer, which reads a topic that is in the page cache, in several passes."""

    name = "tls-consume"
    title = "TLS: consume 1 KB × 6 partitions"
    passes = 2

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Rate and cost."""
        return _transfer()

    def measure(self, lab: Lab) -> Samples:
        """Fill one topic per broker, then alternate."""
        self._topics: dict[str, str] = {}
        with ExitStack() as stack:
            for broker in lab.brokers(SECURED):
                with lab.turn(broker):
                    topic = self._topics[broker.name] = lab.create_topic(broker, PARTITIONS)
                    rdkafka.produce(broker.port, topic, PARTITIONS, b"x" * _RECORD, lab.scale.records_1k)
                stack.callback(self._drop, lab, broker, topic)
            return super().measure(lab)

    def secured_once(self, lab: Lab, broker: Secured) -> dict[str, float]:
        """Read it from its beginning."""
        records, topic = lab.scale.records_1k, self._topics[broker.name]
        with broker.meter() as meter:
            passes = [
                rdkafka.consume(broker.tls_port, topic, PARTITIONS, records, _settings(broker))
                for _ in range(self.passes)
            ]
        return {
            "throughput": sum(each.records for each in passes) / sum(each.seconds for each in passes),
            "cpu": meter.cpu / (self.passes * records * _RECORD / 1e9),
            "peak": meter.peak_mb,
        }

    @staticmethod
    def _drop(lab: Lab, broker: Broker, topic: str) -> None:
        with lab.turn(broker):
            lab.delete_topic(broker, topic)


class TlsHandshakesRow(SecuredRow):
    """A thousand connections over TLS are opened, eight at a time; each gets one answer."""

    name = "tls-handshakes"
    title = "TLS: opening 1,000 connections"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """How long it takes, and what it costs."""
        return (
            Metric("seconds", "until all are served", "s", Kind.LATENCY, Better.LOWER, _NOT_SLOWER, self.title),
            Metric("cpu", "broker CPU", "ms each", Kind.CPU, Better.LOWER, caption=self.title),
        )

    def secured_once(self, lab: Lab, broker: Secured) -> dict[str, float]:
        """Open them, and hang up."""
        with broker.meter() as meter, IdleConnections(broker.tls_port, _CONNECTIONS, broker.client_context()) as opened:
            pass
        return {"seconds": opened.seconds, "cpu": meter.cpu / _CONNECTIONS * 1e3}


class TlsConnectionsRow(Row):
    """What a broker that was just started holds for 1,000 idle connections over TLS, beyond as many in the clear."""

    name = "tls-connections"
    title = "TLS: 1,000 idle connections"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Memory in all, and of each connection."""
        return (
            Metric("memory", "memory", "MB", Kind.MEMORY, Better.LOWER, caption="with 1,000 TLS connections"),
            Metric("each", "a connection beyond plaintext", "KB", Kind.MEMORY, Better.LOWER, _IDLE, "a TLS connection"),
        )

    def measure(self, lab: Lab) -> Samples:
        """Start brokers anew for each repetition: memory that was used once does not come back."""
        samples: Samples = {kind.name: [] for kind in SECURED}
        for repetition in range(lab.scale.loads):
            for kind in SECURED:
                values = self._once(lab, kind)
                samples[kind.name].append(values)
                show(self.name, kind.name, repetition, values, self.metrics(lab.scale), counts=True)
        return samples

    @staticmethod
    def _once(lab: Lab, kind: type[Secured]) -> dict[str, float]:
        broker = kind(lab.folder / "tls-connections")
        try:
            broker.start()
            with ExitStack() as stack:
                for count in (_FIRST, _CONNECTIONS):
                    before = _settled(broker)
                    stack.enter_context(IdleConnections(broker.port, count))
                    plain = _settled(broker) - before
                for count in (_FIRST, _CONNECTIONS):
                    before = _settled(broker)
                    stack.enter_context(IdleConnections(broker.tls_port, count, broker.client_context()))
                    encrypted = _settled(broker) - before
            return {
                "memory": before + encrypted,
                "each": max((encrypted - plain) * 1e3 / _CONNECTIONS, _LEAST_KB),
            }
        except Exception:
            show_logs([broker])
            raise
        finally:
            broker.kill()
            shutil.rmtree(broker.folder)


def _settled(broker: Broker) -> float:
    time.sleep(_SETTLE)
    return memory_mb(broker.pid)


class LoginsRow(SecuredRow):
    """Ten clients that log in by SCRAM-SHA-512 again and again, alone and beside a client that does something else."""

    name = "logins"
    title = "logins by SCRAM-SHA-512"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """How many in a second, what they cost, and what another client notices of them."""
        return (
            Metric("throughput", "throughput", "logins/s", Kind.THROUGHPUT, Better.HIGHER, _NOT_SLOWER),
            Metric("cpu", "broker CPU", "ms each", Kind.CPU, Better.LOWER),
            Metric("p99", "another client's p99", "µs", Kind.LATENCY, Better.LOWER, caption="p99 beside logins"),
            Metric("rise", "p99 to that without logins", "times", Kind.LATENCY, Better.LOWER, _MOST),
            Metric("alone", "p99 without logins", "µs", Kind.LATENCY, Better.LOWER, detail=True),
            Metric(
                "beside",
                "throughput beside that client",
                "logins/s",
                Kind.THROUGHPUT,
                Better.HIGHER,
                caption="logins beside that client",
                detail=True,  # they run where a core is idle alone, which says nothing of their rate
            ),
        )

    def secured_once(self, lab: Lab, broker: Secured) -> dict[str, float]:
        """Log in for some time, then let windows of another client take turns."""
        seconds = lab.scale.seconds
        words = "bench.clients.logins", str(broker.login_port)
        with broker.meter() as meter, neighbours.running(*words, str(seconds)) as alone:
            rate = float(alone.result())
        longer_than_all_windows = "600"
        with (
            lab.topic(broker, 1) as topic,
            neighbours.ModestClient(broker.port, topic) as client,
            neighbours.running(*words, longer_than_all_windows) as neighbour,
        ):
            found = neighbours.compare(client, neighbour)
        return {
            "throughput": rate,
            "cpu": meter.cpu / (rate * seconds) * 1e3,
            "p99": found.beside * 1e6,
            "rise": found.beside / found.alone,
            "alone": found.alone * 1e6,
            "beside": found.rate,
        }


TLS = (TlsProduceRow(), TlsConsumeRow(), TlsHandshakesRow(), TlsConnectionsRow())
LOGINS = LoginsRow()
