"""What a client notices that sends one record after the other."""

from __future__ import annotations

import time
from statistics import quantiles
from typing import Final

from bench.clients import hot, wire

_RECORDS: Final = 1_000


def latencies(port: int, topic: str, partition: int) -> list[float]:
    """Percentiles in microseconds of 1,000 Produce requests of a record, each sent after the answer to the last."""
    frame = wire.produce_request(topic, partition, wire.batch(hot.RECORD))
    error = wire.produce_error_at(topic)
    took = []
    with wire.connect(port) as connection:
        for _ in range(_RECORDS):
            began = time.perf_counter()
            connection.sendall(frame)
            if any(wire.receive(connection)[error]):
                raise RuntimeError("a record was refused")
            took.append((time.perf_counter() - began) * 1e6)
    return quantiles(took, n=100)
