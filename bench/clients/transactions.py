"""Transactions of librdkafka, one at a time, and how long each takes to commit."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Producer

_TIMEOUT: Final = 30.0


def commit_latencies(port: int, topic: str, partitions: int, value: bytes, count: int, name: str) -> list[float]:
    """Seconds that a commit takes, of transactions with one record in each partition that have been delivered."""
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": name, "linger.ms": 0, "log_level": 2}
    with Producer(settings) as producer:
        producer.init_transactions(_TIMEOUT)
        samples = []
        for _ in range(count):
            producer.begin_transaction()
            for partition in range(partitions):
                producer.produce(topic, value, partition=partition)
            if producer.flush(_TIMEOUT):
                raise RuntimeError(f"records of a transaction were not delivered within {_TIMEOUT:.0f} seconds")
            started = time.perf_counter()
            producer.commit_transaction(_TIMEOUT)
            samples.append(time.perf_counter() - started)
        return samples
