"""A producer that sends at a steady pace and notes when each record was acknowledged."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import KafkaError, Message

_PAUSE: Final = 0.005
_DEADLINE: Final = 120.0


class Pulse:
    """Sends to one partition with acks=all for as long as its block runs."""

    def __init__(self, ports: Sequence[int], topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._acknowledged: list[float] = []
        self._failed: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def expect(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = len(self._acknowledged) + more
        deadline = time.monotonic() + _DEADLINE
        while len(self._acknowledged) < wanted:
            if self._failed or time.monotonic() > deadline:
                raise RuntimeError(f"{more} more records were not acknowledged; {self._failed[:1]}")
            time.sleep(_PAUSE)

    def longest_gap(self) -> float:
        """The most seconds between two acknowledgements that followed each other."""
        return longest_gap(self._acknowledged)

    def _run(self) -> None:
        while not self._over.is_set():
            self._producer.produce(self._topic, b"x" * 100, partition=self._partition, on_delivery=self._note_delivery)
            self._producer.poll(_PAUSE)
        self._producer.flush(_DEADLINE)

    def _note_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acknowledged.append(time.monotonic())
        else:
            self._failed.append(str(error))


def longest_gap(moments: Sequence[float]) -> float:
    """The longest time between two neighbours."""
    return max((later - earlier for earlier, later in pairwise(moments)), default=0.0)
