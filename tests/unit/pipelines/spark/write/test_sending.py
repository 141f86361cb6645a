"""How long records wait for brokers that do not let us in, over a producer that the test makes up."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from confluent_kafka import KafkaError

from barnabas.pipelines.errors import NotWritten
from barnabas.pipelines.spark.write import sending
from barnabas.pipelines.spark.write.rows import SinkRecord
from barnabas.pipelines.spark.write.sending import RecordSender

CLIENT = {"bootstrap.servers": "any"}
RECORD = SinkRecord("t", None, b"v", None, -1)


class Buffered:
    """A producer of librdkafka; each flush leaves so many records, and the last one leaves as many for ever."""

    def __init__(self, config: dict[str, Any], left: deque[int]) -> None:
        self._left = left
        self._waiting = 0
        config["error_cb"](KafkaError(KafkaError._SSL, "ssl://localhost:9092/1: handshake failed"))

    def __len__(self) -> int:
        return self._waiting

    def produce(self, *_: object, **__: object) -> None:
        self._waiting += 1

    def flush(self, _: float) -> int:
        self._waiting = self._left.popleft() if len(self._left) > 1 else self._left[0]
        return self._waiting

    def purge(self) -> None:
        """Nothing is really there."""


def send(monkeypatch: pytest.MonkeyPatch, *left: int) -> None:
    monkeypatch.setattr(sending, "LOGIN_SECONDS", -1)
    monkeypatch.setattr(sending, "open_client", lambda _, __, config: Buffered(config, deque(left)))
    with RecordSender(CLIENT) as sender:
        for _ in range(3):
            sender.send(RECORD)
        sender.finish()


def test_nothing_arrives_where_no_broker_lets_us_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotWritten, match=r"3 records did not arrive: .*handshake failed"):
        send(monkeypatch, 3)


def test_a_login_that_failed_is_forgotten_once_a_record_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, 2, 2, 0)
