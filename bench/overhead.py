"""`python -m bench.overhead`: what our own clients cost beside confluent-kafka, in processor time for each record.

The same records are produced and consumed by a plain loop over confluent-kafka, as its own guide has it, and by ours,
by turns in one process. Counted is the time of the whole process, with librdkafka's threads, and without the broker,
which is another one. Shown are medians and what they are to the plain loop's.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
from tests.support.brokers import Barnabas

from barnabas import AsyncConsumer, AsyncProducer, Consumer, Producer
from bench.clients import rdkafka

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE: Final = b"x" * 100
RECORDS: Final = 100_000
TOPIC: Final = "overhead"


def plain_produce(address: str, count: int) -> None:
    """A callback for each record, and a poll after each, as confluent-kafka's examples have it."""
    failed = 0

    def count_failure(error: Any, _: Any) -> None:
        nonlocal failed
        failed += error is not None

    producer = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for _ in range(count):
        while True:
            try:
                producer.produce(TOPIC, VALUE, on_delivery=count_failure)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    if failed:
        raise RuntimeError(f"{failed} records did not arrive")


def produce(address: str, count: int) -> None:
    """`Producer.send`, which gives a future for each record."""
    with Producer(address) as producer:
        for _ in range(count):
            producer.send(TOPIC, VALUE)


def produce_asyncio(address: str, count: int) -> None:
    """`await AsyncProducer.send`, the same in an event loop."""

    async def work() -> None:
        async with AsyncProducer(address) as producer:
            for _ in range(count):
                await producer.send(TOPIC, VALUE)

    asyncio.run(work())


def plain_consume(address: str, count: int) -> None:
    """A poll for each record, as confluent-kafka's guide has it; what a program wants to know of it is asked for."""
    _plain_consume(address, count, lambda consumer: [consumer.poll(1.0)])


def plain_consume_batches(address: str, count: int) -> None:
    """The same with 500 records at a time."""
    _plain_consume(address, count, lambda consumer: consumer.consume(500, 1.0))


def _plain_consume(address: str, count: int, read: Callable[[Any], list[Any]]) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "group.id": "plain",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    left = count
    while left > 0:
        for message in read(consumer):
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise RuntimeError(error.str())
            _ = message.key(), message.value(), message.partition(), message.offset()
            left -= 1
    consumer.close()


def consume(address: str, count: int) -> None:
    """A loop over `Consumer`."""
    with Consumer(address, TOPIC, auto_offset_reset="earliest") as consumer:
        for left, record in zip(range(count, 0, -1), consumer, strict=False):
            _ = record.key, record.value, record.partition, record.offset
            if left == 1:
                break


def consume_asyncio(address: str, count: int) -> None:
    """An `async for` over `AsyncConsumer`."""

    async def work() -> None:
        left = count
        async with AsyncConsumer(address, TOPIC, auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                _ = record.key, record.value, record.partition, record.offset
                left -= 1
                if not left:
                    break

    asyncio.run(work())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--records", type=int, default=RECORDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-overhead-") as folder, Barnabas(Path(folder)) as broker:
        rdkafka.create_topics(broker.port, [TOPIC], 1)
        for ways in (
            (plain_produce, produce, produce_asyncio),
            (plain_consume, plain_consume_batches, consume, consume_asyncio),
        ):
            costs = _measured(ways, broker.bootstrap, options.records, options.turns)
            plain = median(costs[0])
            for way, cost in zip(ways, costs, strict=True):
                ratios = median(each / first for each, first in zip(cost, costs[0], strict=True))
                print(
                    f"{way.__name__.replace('_', ' '):21} {median(cost):6.2f} µs a record, {median(cost) / plain:.2f} "
                    f"times the plain loop (median of the turns' ratios: {ratios:.2f})",
                    flush=True,
                )


def _measured(ways: tuple[Callable[[str, int], None], ...], address: str, count: int, turns: int) -> list[list[float]]:
    """Microseconds of processor time for each record: a list for each way, with a figure for each turn."""
    costs: list[list[float]] = [[] for _ in ways]
    for way in ways:
        way(address, count // 10)  # so that everything is loaded
    for _ in range(turns):
        for way, cost in zip(ways, costs, strict=True):
            before = time.process_time()
            way(address, count)
            cost.append((time.process_time() - before) / count * 1e6)
    return costs


if __name__ == "__main__":
    main()
