"""Producers of Apache Kafka's Java client for a workload, in a JVM that can be killed under them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self, cast

from tests.history.clients import Transacting
from tests.support.java_producers import JavaClients

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka import Producer

REQUEST_TIMEOUT: Final = 1.5
"""Seconds after which a producer takes a request for lost."""


class Machines:
    """One JVM at a time. Whoever asks while there is none waits for the next."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._clients = JavaClients(log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.kill()

    def producer(self, settings: Mapping[str, object]) -> Producer:
        """A producer in the present JVM."""
        with self._lock:
            return cast("Producer", self._clients.producer(settings))

    def kill(self) -> None:
        """kill -9 all producers; those who work with them get others, with the same transactional ids."""
        with self._lock:
            self._clients.kill()
            self._clients = JavaClients(self._log)


class JavaTransacting(Transacting):
    """As librdkafka's, with a client that has an epoch for each transaction."""

    RATE: Final = 100.0

    def __init__(self, machines: Machines, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        self._machines = machines
        super().__init__(name, bootstrap, topic, partitions, self.RATE, {"transactional.id": name})

    def _made(self) -> Producer:
        self._lives += 1
        self._prepared = False
        return self._machines.producer(
            {
                "bootstrap.servers": self._bootstrap,
                "linger.ms": 0,
                "request.timeout.ms": int(REQUEST_TIMEOUT * 1000),
                "delivery.timeout.ms": 30_000,
                **self._config,
            }
        )
