"""The thread that lets deliveries happen while the program does something else.

librdkafka sends by itself, but tells what became of records only to a thread that polls. A thread that always polls
would fight with a busy sender for Python's lock, once per record (measured: half the rate). So a sender polls now and
then itself, and this thread steps back while records are sent at a high rate.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from barnabas.clients.config import log

POLL_SECONDS: Final = 0.05
BUSY_SENDS: Final = 256
"""A sender of this many records between two looks polls often enough itself."""
BUSY_SECONDS: Final = 0.002
POLL_EVERY: Final = 128
"""How many records a sender may send between two polls of its own; a power of two."""


class Pump(threading.Thread):
    """Polls a producer of confluent-kafka until it is stopped. `sends` is counted by the senders."""

    def __init__(self, client: Any) -> None:
        super().__init__(name="barnabas-producer", daemon=True)
        self.sends = 0
        self._client = client
        self._stopping = False

    def run(self) -> None:
        """Poll, unless a sender is busy doing it."""
        seen = 0
        while not self._stopping:
            before, seen = seen, self.sends
            if seen - before > BUSY_SENDS:
                time.sleep(BUSY_SECONDS)
                continue
            try:
                self._client.poll(POLL_SECONDS)
            except Exception:
                log.exception("a callback of the producer failed")

    def stop(self) -> None:
        """End the thread and wait for its end."""
        self._stopping = True
        if self.is_alive() and threading.current_thread() is not self:
            self.join()
