"""The broker alone: it has one core, and a client that costs little keeps it busy from another.

In the other rows clients share the processor with the broker, and most of them measure the clients. Here requests come
from prepared frames over eight connections with five unanswered each, and the broker is the limit; a note tells where
it was not: where its core was not in use all the time. Where it says so, the bare system calls of the same requests are
measured in the same turn on the same core (`bench/floor`), and the row tells how much of that rate the broker reaches.

A JVM on one core compiles while it serves, for half a minute and more. So both brokers are kept busy with a row's
requests until they get no faster, before anything counts.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from kio.schema.metadata.v12.request import MetadataRequest

from bench.brokers import Barnabas, Kafka
from bench.clients import groups, hot, rdkafka, wire
from bench.clients.flood import Flood, Requests
from bench.clients.flood_requests import Idempotent, LongPolls, Repeated, Transactions, ring
from bench.floor import Floor
from bench.lab import PARTITIONS, say
from bench.results import PEAK, Better, Kind, Metric, Target, cpu, improvement
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.clients.sockets import Load
    from bench.lab import Lab, Samples, Scale

Clients = Callable[[int, str], AbstractContextManager[list[Requests]]]
"""What connections to a broker's port ask of a topic."""

_CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
_BROKER_CORE, _CLIENT_CORE = _CORES[0], _CORES[-1]
_CONNECTIONS: Final = 8
_MANY: Final = 60
_POLLING: Final = 32
_WOKEN_AT_ONCE: Final = 4
_TOPICS: Final = 1_000
_TAIL: Final = 1 << 16
_BATCH_SIZE: Final = len(wire.batch(hot.BATCH))
_WARM_UP: Final = 0.3
"""Of the time of a turn, before it counts."""
_BUSY: Final = 0.9
"""A broker that uses less of its core is not the limit; a client that uses more of its own is."""
_STEADY_TURNS: Final = 4
_STEADY: Final = 1.05
"""A broker is warm when the later half of so many turns was no more than so many times faster than the earlier."""
_FASTER: Final = Target(1.5)
_SENT_FASTER: Final = Target(1.2)
"""Most of the time of a large answer is the kernel's, and the same for both."""
_OF_THE_LIMIT: Final = Target(60.0, relative=False)


class PinnedKafka(Kafka):
    """Apache Kafka on one core."""

    def command(self) -> list[str]:
        """The same words under taskset."""
        return ["taskset", "-c", str(_BROKER_CORE), *super().command()]


class PinnedBarnabas(Barnabas):
    """Barnabas on one core."""

    def command(self) -> list[str]:
        """The same words under taskset."""
        return ["taskset", "-c", str(_BROKER_CORE), *super().command()]


@dataclass(frozen=True)
class PinnedRow(TurnRow):
    """Clients that ask as much as the broker can answer."""

    name: str
    title: str
    clients: Clients
    partitions: int = _CONNECTIONS
    megabytes: float = 0.0
    """Of records that a request brings or fetches."""
    stored: int = 0
    """Records that a request stores."""
    floor: tuple[str, ...] = ()
    """What the floor does with such a request; none, if it has nothing to compare with."""
    target: Target = _FASTER
    kinds: ClassVar = (PinnedKafka, PinnedBarnabas)

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The rate, what a request costs, and how much of the possible that is."""
        rate = "MB/s" if self.megabytes else "requests/s"
        return (
            Metric("throughput", "throughput", rate, Kind.THROUGHPUT, Better.HIGHER, self.target),
            cpu(None, "µs/request"),
            Metric("limit", "of the limit", "%", Kind.THROUGHPUT, Better.HIGHER, _OF_THE_LIMIT, f"{self.title}: limit"),
            Metric("client", "client CPU", "of one core", Kind.CPU, Better.LOWER, detail=True),
            Metric("busy", "in use", "of the broker's core", Kind.CPU, Better.HIGHER, detail=True),
            PEAK,
        )

    def measure(self, lab: Lab) -> Samples:
        """Warm both brokers with these requests, measure them by turns, and note which of them was not the limit."""
        for broker in lab.brokers(self.kinds):
            with lab.turn(broker):
                self._warm(lab, broker)
        samples = super().measure(lab)
        for name, turns in samples.items():
            if (note := idle_note(turns)) is not None:
                lab.note(f"{self.title}: {name} {note}")
        return samples

    def _warm(self, lab: Lab, broker: Broker) -> None:
        """Keep the broker busy until it gets no faster, each turn with a topic of its own."""
        rates: list[float] = []
        while not is_steady(rates):
            if len(rates) == lab.scale.pinned_warmup:
                lab.note(f"{self.title}: {broker.name} still got faster after {len(rates)} turns of warming up.")
                return
            with self._flood(lab, broker) as (_, _, flood):
                load = flood.run(lab.scale.pinned_seconds)
            rates.append(load.requests / load.seconds)
            say(f"  {self.name} warming {broker.name}: {rates[-1]:.4g} requests/s")

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Keep the broker busy, and then the floor with the same requests."""
        seconds = lab.scale.pinned_seconds
        with self._flood(lab, broker) as (topic, clients, flood):
            before = flood.run(seconds * _WARM_UP)
            with broker.meter() as meter:
                load = flood.run(seconds)
            if self.stored:
                requests = before.requests + load.requests
                lab.expect_records(broker, topic, self.partitions, requests * self.stored)
            values = {
                "throughput": load.requests / load.seconds * (self.megabytes or 1),
                "cpu": meter.cpu / load.requests * 1e6,
                "client": load.client_cpu / load.seconds,
                "busy": meter.cpu / load.seconds,
                "peak": meter.peak_mb,
            }
            if self.floor:
                floor = self._floor(lab, clients)
                values["limit"] = 100 * (load.requests / load.seconds) / (floor.requests / floor.seconds)
        return values

    @contextmanager
    def _flood(self, lab: Lab, broker: Broker) -> Iterator[tuple[str, list[Requests], Flood]]:
        """A topic, what is asked of it, and the connections that ask, from the client's core."""
        if _BROKER_CORE == _CLIENT_CORE:
            raise RuntimeError("a row with a pinned broker needs two cores")
        with (
            lab.topic(broker, self.partitions) as topic,
            self.clients(broker.port, topic) as clients,
            _on_client_core(),
            Flood.at(broker.port, clients) as flood,
        ):
            yield topic, clients, flood

    def _floor(self, lab: Lab, clients: list[Requests]) -> Load:
        kind, size = self.floor
        folder = lab.folder / "floor"
        folder.mkdir()
        os.sync()  # whoever writes while much waits to be written is slowed down, and the broker has just written much
        try:
            place = folder
            if kind == "send":
                place = folder / "sent"
                place.write_bytes(bytes(int(size)))
            with Floor((_BROKER_CORE,), kind, str(place), size) as floor, Flood.at(floor.port, clients) as flood:
                flood.run(lab.scale.pinned_seconds * _WARM_UP)
                return flood.run(lab.scale.pinned_seconds * _WARM_UP)
        finally:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


class MetadataRow(PinnedRow):
    """Metadata of all topics, of which there are many."""

    def measure(self, lab: Lab) -> Samples:
        """Make the topics once for each broker."""
        names = [f"bench-one-of-many-{number:04}" for number in range(_TOPICS)]
        with ExitStack() as stack:
            for broker in lab.brokers(self.kinds):
                with lab.turn(broker):
                    rdkafka.create_topics(broker.port, names, 1)
                stack.callback(self._drop, lab, broker, names)
            return super().measure(lab)

    def _drop(self, lab: Lab, broker: Broker, names: list[str]) -> None:
        with lab.turn(broker):
            rdkafka.delete_topics(broker.port, names)
            for name in names:
                broker.wait_until_gone(name)


def is_steady(rates: Sequence[float]) -> bool:
    """Whether a broker that had these rates, turn by turn, gets no faster any more."""
    latest = rates[-_STEADY_TURNS:]
    return len(latest) == _STEADY_TURNS and improvement(latest, Better.HIGHER) <= _STEADY


def idle_note(turns: Sequence[dict[str, float]]) -> str | None:
    """What to say of a broker that was not the limit in these turns; None, if it was."""
    busy, client = (statistics.median(values[key] for values in turns) for key in ("busy", "client"))
    if busy >= _BUSY:
        return None
    why = "the client was the limit" if client > _BUSY else f"the client used {100 * client:.0f} % of its own"
    return f"used {100 * busy:.0f} % of its core only; {why}."


@contextmanager
def _on_client_core() -> Iterator[None]:
    """Run this thread on the client's core while the block does."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {_CLIENT_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _producing(values: list[bytes], partitions: int, acks: int) -> Clients:
    """Produce requests with a batch for each of so many partitions; those with one go to a partition each."""

    @contextmanager
    def clients(port: int, topic: str) -> Iterator[list[Requests]]:
        records, error = wire.batch(values), wire.produce_error_at(topic)
        yield [
            Repeated(wire.produce_batches(topic, places, records, acks), error)
            for places in (range(partitions) if partitions > 1 else (number,) for number in range(_CONNECTIONS))
        ]

    return clients


@contextmanager
def _idempotent(port: int, topic: str) -> Iterator[list[Requests]]:
    yield [Idempotent(port, topic, number, hot.BATCH) for number in range(_CONNECTIONS)]


@contextmanager
def _transactions(port: int, topic: str) -> Iterator[list[Requests]]:
    hot.wait_for_transactions(port)
    yield [Transactions(port, topic, number, hot.RECORD) for number in range(_CONNECTIONS)]


def _fetching(size: int) -> Clients:
    """Fetch requests for the last so many bytes of a partition each."""

    @contextmanager
    def clients(port: int, topic: str) -> Iterator[list[Requests]]:
        batches = -(-size // _BATCH_SIZE)
        records, error = wire.batch(hot.BATCH), wire.produce_error_at(topic)
        with wire.connect(port) as connection:
            for number in range(_CONNECTIONS):
                for _ in range(2 * batches):
                    connection.sendall(wire.produce_request(topic, number, records))
                    if any(wire.receive(connection)[error]):
                        raise RuntimeError("a batch that is to be fetched was refused")
        first, topic_id = batches * len(hot.BATCH), wire.topic_id(port, topic)
        yield [
            Repeated(wire.fetch_by_id(topic_id, number, first, size), wire.FETCH_BY_ID_ERROR, size - _BATCH_SIZE)
            for number in range(_CONNECTIONS)
        ]

    return clients


@contextmanager
def _polling(port: int, topic: str) -> Iterator[list[Requests]]:
    with ExitStack() as stack:
        consumers = [stack.enter_context(closing(LongPolls(port, topic, number))) for number in range(_POLLING)]
        ring(consumers, _WOKEN_AT_ONCE)
        yield [*consumers]


@contextmanager
def _committing(port: int, topic: str) -> Iterator[list[Requests]]:
    for number in range(_CONNECTIONS):
        groups.wait_for_coordinator(port, f"commits-{number}")
    error = groups.commit_error_at(topic)
    yield [Repeated(frame, error) for frame in groups.commit_requests(topic, _CONNECTIONS)]


def _beating(kind: type[groups.ClassicGroup] | type[groups.ConsumerGroup]) -> Clients:
    """Heartbeats of groups of one member each that bring nothing new."""

    @contextmanager
    def clients(port: int, topic: str) -> Iterator[list[Requests]]:
        with ExitStack() as stack:
            made: list[Requests] = []
            for number in range(_CONNECTIONS):
                name = f"{topic}-{number}"
                groups.wait_for_coordinator(port, name)
                group = stack.enter_context(closing(kind(port, name, topic, 1)))
                made.append(Repeated(group.heartbeat_frame(), groups.ERROR))
            yield made

    return clients


@contextmanager
def _all_metadata(port: int, topic: str) -> Iterator[list[Requests]]:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    yield [Repeated(wire.frame(request), slice(0), _TOPICS * len(topic)) for _ in range(_CONNECTIONS)]


def _produce_row(name: str, what: str, partitions: int, acks: int, *, floor: bool = False) -> PinnedRow:
    return PinnedRow(
        f"pinned-{name}",
        f"one core: produce {what}",
        _producing(hot.BATCH, partitions, acks),
        max(partitions, _CONNECTIONS),
        _BATCH_SIZE * partitions / 1e6,
        len(hot.BATCH) * partitions,
        ("append", str(partitions)) if floor else (),
    )


PINNED: Final = (
    _produce_row("batch", "16 KB, acks=1", 1, 1, floor=True),
    _produce_row("batch-all", "16 KB, acks=all", 1, hot.ALL),
    _produce_row("six", "6 × 16 KB, acks=all", PARTITIONS, hot.ALL, floor=True),
    _produce_row("sixty", "60 × 16 KB, acks=all", _MANY, hot.ALL, floor=True),
    PinnedRow(
        "pinned-record", "one core: produce single records", _producing(hot.RECORD, 1, 1), stored=len(hot.RECORD)
    ),
    PinnedRow(
        "pinned-idempotent",
        "one core: produce 16 KB, idempotent",
        _idempotent,
        megabytes=_BATCH_SIZE / 1e6,
        stored=len(hot.BATCH),
    ),
    PinnedRow("pinned-transactions", "one core: transactions of a record", _transactions),
    PinnedRow(
        "pinned-fetch",
        "one core: fetch 1 MB",
        _fetching(hot.MEGABYTE),
        megabytes=hot.MEGABYTE / 1e6,
        floor=("send", str(hot.MEGABYTE)),
        target=_SENT_FASTER,
    ),
    PinnedRow(
        "pinned-tail", "one core: fetch the last 64 KB", _fetching(_TAIL), megabytes=_TAIL / 1e6,
        floor=("send", str(_TAIL)),
    ),
    PinnedRow("pinned-polls", "one core: long polls, woken one by one", _polling, _POLLING),
    PinnedRow("pinned-commits", "one core: offset commits", _committing),
    PinnedRow("pinned-heartbeats", "one core: heartbeats, classic protocol", _beating(groups.ClassicGroup)),
    PinnedRow("pinned-heartbeats-consumer", "one core: heartbeats, consumer protocol", _beating(groups.ConsumerGroup)),
    MetadataRow("pinned-metadata", f"one core: metadata of {_TOPICS:,} topics", _all_metadata, partitions=1),
)  # fmt: skip
