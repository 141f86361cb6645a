"""Queues (share groups): messages that workers acknowledge, how long that takes, what it holds, how it grows.

Workers are plain sockets (`bench/clients/shares`), since Java's share consumer costs more than the brokers: they fetch
and acknowledge as it does, and do nothing with what they get.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.clients import sockets, wire
from bench.clients.share_members import ShareGroup
from bench.clients.shares import Acquired, ShareFrames, ShareWorker, ShareWorkers
from bench.lab import PARTITIONS
from bench.measure import memory_mb
from bench.results import PEAK, Better, Kind, Metric, Target, percentile
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.brokers import Broker
    from bench.lab import Lab, Samples, Scale

_WORKERS: Final = (1, 10, 100)
_MEMBERS: Final = (10, 100, 1_000)
_MOST_MEMBERS: Final = 1_000
"""What group.share.max.size allows."""
_IN_BATCH: Final = 150
"""Messages of 100 B in a batch of 16 KB."""
_MESSAGE: Final = b"x" * 100
_AS_MANY: Final = Target(1.0)
_NOT_LONGER: Final = Target(1.0)
_SHARE_PARTITIONS: Final = 1_000
_HELD: Final = 150
"""Messages in flight in each of them."""
_UNTIMED: Final = 20
_SETTLE: Final = 1.0


class QueueRow(TurnRow):
    """A row over one topic per broker, which was filled before."""

    partitions = PARTITIONS

    def batches(self, scale: Scale) -> int:
        """Batches of 150 messages in each partition."""
        return max(1, scale.queued // _IN_BATCH // self.partitions)

    def messages(self, scale: Scale) -> int:
        """Messages in the topic."""
        return self.batches(scale) * _IN_BATCH * self.partitions

    def measure(self, lab: Lab) -> Samples:
        """Fill one topic per broker, then alternate: each turn has groups of its own, which read from the beginning."""
        self._topics: dict[str, str] = {}
        with ExitStack() as stack:
            for broker in lab.brokers():
                with lab.turn(broker):
                    topic = self._topics[broker.name] = lab.create_topic(broker, self.partitions)
                    stack.callback(self._drop, lab, broker, topic)
                    self._fill(lab, broker, topic)
            return super().measure(lab)

    def topic(self, broker: Broker) -> str:
        """The topic that was filled."""
        return self._topics[broker.name]

    def group(self, broker: Broker, size: int) -> ShareGroup:
        """A new group, which has joined."""
        return ShareGroup(broker.port, f"{self.name}-{size}-{time.monotonic_ns()}", self.topic(broker), size)

    def _fill(self, lab: Lab, broker: Broker, topic: str) -> None:
        batch, error = wire.batch([_MESSAGE] * _IN_BATCH), wire.produce_error_at(topic)
        for partition in range(self.partitions):
            request = wire.produce_request(topic, partition, batch)
            sockets.pipeline(broker.port, request, error, self.batches(lab.scale))

    @staticmethod
    def _drop(lab: Lab, broker: Broker, topic: str) -> None:
        with lab.turn(broker):
            lab.delete_topic(broker, topic)


@dataclass(eq=False)
class WorkersRow(QueueRow):
    """Groups of one, ten and a hundred workers that empty a queue."""

    name: str
    title: str
    most: int
    """Messages that a worker wants at once."""
    exact: bool
    """Whether it gets no more than that; otherwise batches are not divided."""
    total: Callable[[Scale], int] | None = None
    """Messages after which it is enough, if not all."""

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Messages a second for each number of workers, and what they cost; how busy the client was."""
        return (*self._each(), PEAK)

    def _each(self) -> Iterator[Metric]:
        for size in _WORKERS:
            who = f"{size} worker{'s' if size > 1 else ''}"
            rate, caption = f"{who}, messages/s", f"{self.title}, {who}"
            yield Metric(f"rate-{size}", who, "messages/s", Kind.THROUGHPUT, Better.HIGHER, _AS_MANY, caption)
            yield Metric(f"cpu-{size}", f"{who}, broker CPU", "s/million", Kind.CPU, Better.LOWER, caption=caption)
            yield Metric(f"client-{size}", rate, "of one core", Kind.CPU, Better.LOWER, detail=True)

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Empty the queue with each number of workers."""
        values = {"peak": 0.0}
        total = self.messages(lab.scale) if self.total is None else self.total(lab.scale)
        for size in _WORKERS:
            with (
                self.group(broker, size) as group,
                ShareWorkers(broker.port, group, self.most, exact=self.exact) as workers,
                broker.meter() as meter,
            ):
                load = workers.work(total)
            values[f"rate-{size}"] = total / load.seconds
            values[f"cpu-{size}"] = meter.cpu / (total / 1e6)
            values[f"client-{size}"] = load.client_cpu / load.seconds
            values["peak"] = max(values["peak"], meter.peak_mb)
        return values


class AcknowledgementRow(QueueRow):
    """One worker that acknowledges message by message, each in a request of its own."""

    name = "queue-acknowledge"
    title = "queue: acknowledgement of one message"
    partitions = 1

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The middle and the tail of ShareAcknowledge, until the answer is there."""
        return tuple(
            Metric(key, key, "µs", Kind.LATENCY, Better.LOWER, _NOT_LONGER, f"{self.title}, {key}")
            for key in ("p50", "p99")
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Acknowledge one after the other."""
        samples: list[float] = []
        wanted = lab.scale.latencies + _UNTIMED
        with self.group(broker, 1) as group:
            [member] = group.members
            with closing(ShareWorker(broker.port, ShareFrames(group.name, member.name), member.places)) as worker:
                while len(samples) < wanted:
                    worker.ask()
                    worker.take()
                    for message in _single(worker):
                        started = time.perf_counter()
                        worker.acknowledge([message])
                        samples.append(time.perf_counter() - started)
                    worker.held = []
        timed = samples[_UNTIMED:wanted]
        return {"p50": percentile(timed, 0.50) * 1e6, "p99": percentile(timed, 0.99) * 1e6}


def _single(worker: ShareWorker) -> Iterator[Acquired]:
    """Each message that a worker holds."""
    for place, first, last in worker.held:
        for offset in range(first, last + 1):
            yield Acquired(place, offset, offset)


class InFlightRow(QueueRow):
    """A thousand share partitions with messages in flight, every second of them acknowledged, the others held."""

    name = "queue-memory"
    title = "queue: 1,000 share partitions in flight"
    partitions = _SHARE_PARTITIONS

    def batches(self, scale: Scale) -> int:
        """One in each partition."""
        return 1

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """What the broker holds with them, and how much of that is new."""
        return (
            Metric("memory", "memory", "MB", Kind.MEMORY, Better.LOWER, caption=self.title),
            Metric("each", "growth by each", "KB", Kind.MEMORY, Better.LOWER, detail=True),
            Metric("seconds", "to acquire and acknowledge", "s", Kind.LATENCY, Better.LOWER, _NOT_LONGER, self.title),
            PEAK,
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Acquire everything, and acknowledge so that nothing can be told in few words."""
        before = memory_mb(broker.pid)
        with self.group(broker, 1) as group, broker.meter() as meter:
            [member] = group.members
            frames = ShareFrames(group.name, member.name, _HELD * _SHARE_PARTITIONS)
            with closing(ShareWorker(broker.port, frames, member.places)) as worker:
                started = time.perf_counter()
                held = _acquire_all(worker, _HELD * _SHARE_PARTITIONS)
                for messages in held:
                    worker.acknowledge([each for each in messages if each.first % 2])
                seconds = time.perf_counter() - started
                time.sleep(_SETTLE)
                after = memory_mb(broker.pid)
        grown = max(after - before, 0.0) * 1e3 / _SHARE_PARTITIONS
        return {"memory": after, "each": grown, "seconds": seconds, "peak": meter.peak_mb}


def _acquire_all(worker: ShareWorker, total: int) -> list[list[Acquired]]:
    """All messages of a queue, of which nothing is acknowledged; for each partition a list of single messages."""
    found: list[list[Acquired]] = []
    count = 0
    while count < total:
        worker.ask()
        worker.take()
        by_place: dict[object, list[Acquired]] = {}
        for message in _single(worker):
            by_place.setdefault(message.place, []).append(message)
            count += 1
        found += by_place.values()
        worker.held = []
    return found


class MembersRow(QueueRow):
    """Groups of ten, a hundred and a thousand members: heartbeats that change nothing, and one more member."""

    name = "queue-members"
    title = "queue: growth with members"

    def batches(self, scale: Scale) -> int:
        """One in each partition: nobody reads them."""
        return 1

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Microseconds of the broker for a heartbeat, and milliseconds until all know of a new member."""
        return (
            *(
                Metric(
                    f"heartbeat-{size}", f"heartbeat of {size:,}, broker CPU", "µs", Kind.CPU, Better.LOWER,
                    _NOT_LONGER, f"heartbeat in a share group of {size:,}",
                )
                for size in _MEMBERS
            ),
            *(
                Metric(
                    f"join-{size}", f"one more of {size:,}", "ms", Kind.LATENCY, Better.LOWER,
                    caption=f"one more member in a share group of {size:,}",
                )
                for size in _MEMBERS
            ),
        )  # fmt: skip

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """A new group of each size."""
        values = {}
        total = lab.scale.heartbeats
        for size in _MEMBERS:
            with self.group(broker, min(size, _MOST_MEMBERS - 1)) as group:
                group.heartbeats(total // 10)
                with broker.meter() as meter:
                    group.heartbeats(total)
                values[f"heartbeat-{size}"] = meter.cpu / total * 1e6
                values[f"join-{size}"] = median(group.rebalance() for _ in range(lab.scale.guests)) * 1e3
        return values


QUEUES = (
    WorkersRow("queue", "queue: 100 B × 6 partitions, 500 at a time", 500, exact=False),
    WorkersRow(
        "queue-singles", "queue: one message at a time", 1, exact=True, total=lambda scale: scale.single_messages
    ),
    AcknowledgementRow(),
    InFlightRow(),
    MembersRow(),
)
