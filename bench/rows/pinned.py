"""The broker alone: it has one core, and a client that costs little keeps it busy from another.

In the other rows clients share the processor with the broker, and most of them measure the clients. Here requests come
from prepared frames over eight connections with five unanswered each, and the broker is the limit; a note tells where
it was not. Where it says so, the bare system calls of the same requests are measured in the same turn on the same core
(`bench/floor`), and the row tells how much of that rate the broker reaches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from kio.schema.metadata.v12.request import MetadataRequest

from bench.brokers import Barnabas, Kafka
from bench.clients import groups, hot, rdkafka, wire
from bench.clients.flood import Flood, Requests
from bench.clients.flood_requests import Idempotent, LongPolls, Repeated, Transactions, ring
from bench.floor import Floor
from bench.lab import PARTITIONS
from bench.results import PEAK, Better, Kind, Metric, Target, cpu
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
"""A client that is as busy as this is the limit."""
_FASTER: Final = Target(1.5)
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
    kinds: ClassVar = (PinnedKafka, PinnedBarnabas)

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The rate, what a request costs, and how much of the possible that is."""
        rate = "MB/s" if self.megabytes else "requests/s"
        return (
            Metric("throughput", "throughput", rate, Kind.THROUGHPUT, Better.HIGHER, _FASTER),
            cpu(None, "µs/request"),
            Metric("limit", "of the limit", "%", Kind.THROUGHPUT, Better.HIGHER, _OF_THE_LIMIT, f"{self.title}: limit"),
            Metric("client", "client CPU", "of one core", Kind.CPU, Better.LOWER, detail=True),
            PEAK,
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Keep the broker busy, and then the floor with the same requests."""
        if _BROKER_CORE == _CLIENT_CORE:
            raise RuntimeError("a row with a pinned broker needs two cores")
        seconds = lab.scale.pinned_seconds
        with (
            lab.topic(broker, self.partitions) as topic,
            self.clients(broker.port, topic) as clients,
            _on_client_core(),
        ):
            with Flood(broker.port, clients) as flood:
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
                "peak": meter.peak_mb,
            }
            if self.floor:
                floor = self._floor(lab, clients)
                values["limit"] = 100 * (load.requests / load.seconds) / (floor.requests / floor.seconds)
        if values["client"] > _BUSY:
            lab.note(f"{self.title}: the client was the limit with {broker.name}.")
        return values

    def _floor(self, lab: Lab, clients: list[Requests]) -> Load:
        kind, size = self.floor
        folder = lab.folder / "floor"
        folder.mkdir()
        try:
            place = folder
            if kind == "send":
                place = folder / "sent"
                place.write_bytes(bytes(int(size)))
            with Floor(_BROKER_CORE, kind, str(place), size) as floor, Flood(floor.port, clients) as flood:
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
