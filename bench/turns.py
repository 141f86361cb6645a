"""`python -m bench.turns OLD NEW`: what the same requests cost the brokers of two source trees, by turns.

For changes of a few percent on a machine that is not quiet: a fixed number of requests from clients that cost little,
the processor time of the broker alone, medians over turns. A tree is a checkout of this repository; with an @ it is
followed by the interpreter that runs it, which has what Barnabas needs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import measure
from bench.brokers import Barnabas
from bench.clients import groups, rdkafka, sockets, wire
from bench.lab import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH: Final = [b"x" * 1010] * 15
"""What a Java producer puts into a batch of 16 KB."""
_COMMITTERS: Final = 50
_MEMBERS: Final = 100


class Tree(Barnabas):
    """The broker of one source tree."""

    def __init__(self, folder: Path, tree: str) -> None:
        path, _, python = tree.partition("@")
        self._environment = f"PYTHONPATH={Path(path).resolve() / 'src'}"
        self._python = python or sys.executable
        self._topics = 0
        super().__init__(folder)

    def command(self) -> list[str]:
        """As `barnabas start`, with this tree's code."""
        _, *words = super().command()
        return ["env", self._environment, self._python, "-c", "from barnabas.cli.main import main; main()", *words]

    def topic(self) -> str:
        """A new topic, whose logs have been written to."""
        self._topics += 1
        name = f"turns-{self._topics:04}"
        rdkafka.create_topics(self.port, [name], PARTITIONS)
        rdkafka.produce_one_each(self.port, [name], PARTITIONS)
        return name

    def cost(self, load: Callable[[int], object], count: int) -> float:
        """Microseconds of processor time for each of so many requests, after some that only warm up."""
        load(max(count // 10, 10))
        before = measure.cpu_seconds(self.pid)
        load(count)
        return (measure.cpu_seconds(self.pid) - before) / count * 1e6


def single_records(broker: Tree, topic: str) -> float:
    """50 connections, each with one Produce of one record in flight."""
    with sockets.Connections(broker.port, 50) as producers:
        return broker.cost(lambda count: producers.eagerly(topic, PARTITIONS, b"x" * 100, count), 20_000)


def one_batch(broker: Tree, topic: str) -> float:
    """Produce requests of one batch of 16 KB, five in flight."""
    request, error = wire.produce_request(topic, 0, wire.batch(_BATCH)), wire.produce_error_at(topic)
    return broker.cost(lambda count: sockets.pipeline(broker.port, request, error, count), 8_000)


def six_batches(broker: Tree, topic: str) -> float:
    """Produce requests (acks=all) with a batch of 16 KB for each of six partitions, five in flight."""
    request = wire.produce_batches(topic, range(PARTITIONS), wire.batch(_BATCH), -1)
    error = wire.produce_error_at(topic)
    return broker.cost(lambda count: sockets.pipeline(broker.port, request, error, count), 2_000)


def waiting_fetch(broker: Tree, topic: str) -> float:
    """A record that is produced while a fetch waits for it, and the fetch."""
    request, error = wire.produce_request(topic, 0, wire.batch([b"x" * 100])), wire.produce_error_at(topic)
    next_offset = 1
    with wire.connect(broker.port) as producer, wire.connect(broker.port) as consumer:

        def load(count: int) -> None:
            nonlocal next_offset
            for _ in range(count):
                consumer.sendall(wire.fetch_request(topic, 0, next_offset, 1 << 20, wait=True))
                producer.sendall(request)
                if wire.first_offset(wire.receive(consumer)) != next_offset or any(wire.receive(producer)[error]):
                    raise RuntimeError(f"the record at offset {next_offset} was not stored and fetched")
                next_offset += 1

        return broker.cost(load, 5_000)


def commits(broker: Tree, topic: str) -> float:
    """50 connections, each with one OffsetCommit of one partition in flight, a group each."""
    requests, error = groups.commit_requests(topic, _COMMITTERS), groups.commit_error_at(topic)
    for number in range(_COMMITTERS):
        groups.wait_for_coordinator(broker.port, f"commits-{number}")
    with sockets.Connections(broker.port, _COMMITTERS) as clients:
        return broker.cost(lambda count: clients.exchange(requests, error, count), 20_000)


def classic_rebalance(broker: Tree, topic: str) -> float:
    """A rebalance of 100 members of the classic protocol."""
    return _rebalance(broker, groups.ClassicGroup, topic)


def consumer_rebalance(broker: Tree, topic: str) -> float:
    """A rebalance of 100 members of the new protocol, and back."""
    return _rebalance(broker, groups.ConsumerGroup, topic)


def _rebalance(broker: Tree, kind: type[groups.ClassicGroup | groups.ConsumerGroup], topic: str) -> float:
    groups.wait_for_coordinator(broker.port, topic)
    with closing(kind(broker.port, topic, topic, _MEMBERS)) as group:
        return broker.cost(lambda count: [group.rebalance() for _ in range(count)], 20)


LOADS: Final = (
    single_records,
    one_batch,
    six_batches,
    waiting_fetch,
    commits,
    classic_rebalance,
    consumer_rebalance,
)


def main() -> None:
    """Measure, and print medians and their ratio to the first tree's."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description="Broker CPU of source trees, by turns.")
    parser.add_argument("trees", nargs="+", metavar="TREE[@PYTHON]", help="checkouts, the old one first")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=[load.__name__ for load in LOADS], help="these loads")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-turns-") as scratch, ExitStack() as stack:
        brokers = [Tree(Path(scratch) / str(number), tree) for number, tree in enumerate(options.trees)]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start()
        for load in [load for load in LOADS if options.only is None or load.__name__ in options.only]:
            costs: list[list[float]] = [[] for _ in brokers]
            for turn in range(options.turns):
                for number in range(len(brokers)) if turn % 2 else reversed(range(len(brokers))):
                    topic = brokers[number].topic()
                    costs[number].append(load(brokers[number], topic))
                    rdkafka.delete_topic(brokers[number].port, topic)
            first = median(costs[0])
            told = (f"{median(each):.1f} µs ({median(each) / first:.2f}×)" for each in costs)
            print(f"{load.__name__.replace('_', ' '):16}", *told, sep="  ", flush=True)


if __name__ == "__main__":
    main()
