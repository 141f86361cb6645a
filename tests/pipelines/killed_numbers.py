"""The records of a trial: numbers in JSON, some of them spoilt, with a new field now and then.

{"n": 0, "since_0": 0}          a row
{"n": "700"}                    no row, since `n` is a number
{"n": 2102                      no row, since it is no JSON
{"n": 2500, "since_1": 2500}    a row with a column that the tables did not have before
"""

from __future__ import annotations

import json
import re
import threading
from typing import Final

from barnabas.clients import Producer

PER_SECOND: Final = 250
BAD_EVERY: Final = 701
"""Odd, so that bad numbers of both sorts are in all partitions; some commits have none."""
FIELD_EVERY: Final = 2500
MOST_FIELDS: Final = 20


def value_of(number: int) -> bytes:
    """The value of the record that has a number."""
    if not is_bad(number):
        return json.dumps({"n": number, field_of(number): number}).encode()
    if number % 4 < 2:
        return json.dumps({"n": str(number)}).encode()
    return json.dumps({"n": number}).encode()[:-1]


def number_in(value: bytes | None) -> int:
    """The number that a record has, whatever became of it."""
    found = re.search(rb"\d+", value or b"")
    assert found is not None, value
    return int(found[0])


def is_bad(number: int) -> bool:
    """Whether a number's record fits no table."""
    return number % BAD_EVERY == BAD_EVERY - 1


def field_of(number: int) -> str:
    """The field that a good record has beside its number."""
    return f"since_{min(number // FIELD_EVERY, MOST_FIELDS - 1)}"


class Numbers(threading.Thread):
    """Sends 0, 1, 2, ... until it is told to end; each is acknowledged, whatever the broker goes through.

    It waits for that every time, so that no partition is ever far behind the others: windows would leave numbers out
    that come late.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer(self._servers, delivery_timeout_ms=300_000) as producer:
            while not self._over.is_set():
                for _ in range(PER_SECOND // 20):
                    producer.send(self._topic, value_of(self.sent), partition=self.sent % self._partitions)
                    self.sent += 1
                producer.flush()
                self._over.wait(0.05)

    def end(self) -> int:
        """Wait until all have arrived; how many there are."""
        self._over.set()
        self.join(300)
        assert not self.is_alive()
        return self.sent
