"""The command line: our tools and Apache Kafka's, by turns, on the same broker.

In these rows "Kafka" and "Barnabas" are the tools; the broker is Barnabas for both. A tool is measured from exec to
exit where that is what its user waits for, and by its own figures where it measures by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.clients import rdkafka, tools
from bench.clients.java import Produce, payload_file
from bench.lab import PARTITIONS, show
from bench.results import Better, Kind, Metric, Target, throughput
from bench.rows.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.brokers import Broker
    from bench.clients.tools import Done
    from bench.lab import Lab, Samples, Scale

KAFKA, BARNABAS = "Kafka", "Barnabas"
_LISTED: Final = 50
"""Topics to list."""
_LIST: Final = Target(1 / 6)
_CPU: Final = Metric("tool-cpu", "CPU of the tool", "s", Kind.CPU, Better.LOWER, detail=True)


class ToolRow(Row):
    """Runs both tools by turns on the broker of Barnabas."""

    def measure(self, lab: Lab) -> Samples:
        """Prepare the broker, then alternate."""
        broker = next(broker for broker in lab.brokers() if broker.name == BARNABAS)
        samples: Samples = {KAFKA: [], BARNABAS: []}
        with lab.turn(broker), ExitStack() as stack:
            once = self.prepare(lab, broker, stack)
            for repetition in range(lab.scale.discarded + lab.scale.repetitions):
                counts = repetition >= lab.scale.discarded
                for tool in (KAFKA, BARNABAS) if repetition % 2 == 0 else (BARNABAS, KAFKA):
                    values = once(tool)
                    if counts:
                        samples[tool].append(values)
                    show(self.name, tool, repetition, values, self.metrics(lab.scale), counts=counts)
        return samples

    @abstractmethod
    def prepare(self, lab: Lab, broker: Broker, stack: ExitStack) -> Callable[[str], dict[str, float]]:
        """Make what the tools work on, for as long as `stack` is open; gives what one turn of a tool does."""


class ListRow(ToolRow):
    """`topics --list`: most of what its user waits for is a program that starts."""

    name = "topics-list"
    title = "topics --list"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Exec to exit."""
        return (Metric("seconds", "exec to exit", "s", Kind.START, Better.LOWER, _LIST, "topics --list"), _CPU)

    def prepare(self, lab: Lab, broker: Broker, stack: ExitStack) -> Callable[[str], dict[str, float]]:
        """Make some topics."""
        names = sorted(stack.enter_context(lab.topic(broker, 1)) for _ in range(_LISTED))
        where = ("--bootstrap-server", f"127.0.0.1:{broker.port}", "--list")

        def once(tool: str) -> dict[str, float]:
            if tool == KAFKA:
                done = tools.kafka("org.apache.kafka.tools.TopicCommand", *where, flags=tools.SCRIPT_FLAGS)
            else:
                done = tools.ours("topics", *where)
            if not set(names) <= set(done.output.splitlines()):
                raise RuntimeError(f"the tool of {tool} did not list all topics:\n{done.output}")
            return {"seconds": done.seconds, "tool-cpu": done.cpu}

        return once


@dataclass(frozen=True)
class ProducerPerfRow(ToolRow):
    """producer-perf without a limit, with payloads of a file, so that making them costs nothing."""

    name: str
    title: str
    size: int
    records: Callable[[Scale], int]
    target: Target
    ours: tuple[str, ...] = ()
    """What our tool is told beside the words that both take."""

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The tool's own rate."""
        return _rate(self.target)

    def prepare(self, lab: Lab, broker: Broker, stack: ExitStack) -> Callable[[str], dict[str, float]]:
        """Each turn fills a topic of its own."""
        records = self.records(lab.scale)

        def once(tool: str) -> dict[str, float]:
            with lab.topic(broker, PARTITIONS) as topic:
                words = [
                    "--bootstrap-server", f"127.0.0.1:{broker.port}", "--topic", topic,
                    "--num-records", str(records), "--throughput", "-1",
                    "--payload-file", str(payload_file(lab.folder, self.size)),
                    "--command-property", "acks=1",
                ]  # fmt: skip
                done = _run(tool, "org.apache.kafka.tools.ProducerPerformance", "producer-perf", words, self.ours)
                lab.expect_records(broker, topic, PARTITIONS, records)
            return {"throughput": tools.produced(done.output, records), "tool-cpu": done.cpu}

        return once


@dataclass(frozen=True)
class ConsumerPerfRow(ToolRow):
    """consumer-perf from the beginning of a topic that is in the page cache."""

    name: str
    title: str
    size: int
    records: Callable[[Scale], int]
    target: Target
    ours: tuple[str, ...] = ()
    """What our tool is told beside the words that both take."""

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The tool's own rate while fetching."""
        return _rate(self.target)

    def prepare(self, lab: Lab, broker: Broker, stack: ExitStack) -> Callable[[str], dict[str, float]]:
        """Fill one topic for all turns."""
        records = self.records(lab.scale)
        topic = stack.enter_context(lab.topic(broker, PARTITIONS))
        Produce(topic, records, self.size).run(broker.port, lab.folder)
        rdkafka.consume(broker.port, topic, PARTITIONS, records)
        words = ["--bootstrap-server", f"127.0.0.1:{broker.port}", "--topic", topic, "--num-records", str(records)]

        def once(tool: str) -> dict[str, float]:
            done = _run(tool, "org.apache.kafka.tools.ConsumerPerformance", "consumer-perf", words, self.ours)
            return {"throughput": tools.consumed(done.output, records), "tool-cpu": done.cpu}

        return once


def _rate(target: Target) -> tuple[Metric, ...]:
    return (Metric("throughput", "throughput", throughput().unit, Kind.THROUGHPUT, Better.HIGHER, target), _CPU)


def _run(tool: str, main: str, command: str, words: list[str], ours: tuple[str, ...]) -> Done:
    return tools.kafka(main, *words) if tool == KAFKA else tools.ours(command, *words, *ours)


_NOT_SLOWER: Final = Target(1.0)

TOPICS_LIST = ListRow()
_TWO: Final = ("--processes", "2")
PERF = (
    ProducerPerfRow("producer-perf-1k", "producer-perf, 1 KB", 1024, lambda scale: scale.records_1k, _NOT_SLOWER),
    ProducerPerfRow("producer-perf-100", "producer-perf, 100 B", 100, lambda scale: scale.records_100, _NOT_SLOWER),
    ProducerPerfRow(
        "producer-perf-two",
        "producer-perf, 100 B, --processes 2",
        100,
        lambda scale: scale.records_100,
        _NOT_SLOWER,
        _TWO,
    ),
    ConsumerPerfRow("consumer-perf-1k", "consumer-perf, 1 KB", 1024, lambda scale: scale.records_1k, _NOT_SLOWER),
    ConsumerPerfRow("consumer-perf-100", "consumer-perf, 100 B", 100, lambda scale: scale.records_100, _NOT_SLOWER),
    ConsumerPerfRow(
        "consumer-perf-two",
        "consumer-perf, 100 B, --processes 2",
        100,
        lambda scale: scale.records_100,
        _NOT_SLOWER,
        _TWO,
    ),
)
