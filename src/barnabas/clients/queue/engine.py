"""What the parts of a queue share: the messages that wait to be taken, and whether it goes on.

Everything here is guarded by one condition, `changed`, which threads also wait on. The threads are the one of the
membership, one for each broker that leads an assigned partition, and those of the program.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.clients.errors import ClientClosed
from barnabas.model.permissions import read_from

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from barnabas.clients.queue.leader import HeldRecord
    from barnabas.clients.wire.connection import WireClient
    from barnabas.model.permissions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What a queue was opened with."""

    bootstrap_servers: str
    properties: Mapping[str, str]
    topics: tuple[str, ...]
    group_id: str
    member_id: str
    prefetch: int
    longest_work: float
    max_wait: timedelta
    max_bytes: int
    request_timeout: float

    @property
    def action(self) -> Action:
        """What it takes to work on the queue."""
        return read_from(self.topics[0] if len(self.topics) == 1 else None, self.group_id)

    def connect(self, bootstrap_servers: str | None = None) -> WireClient:
        """A connection of its own to the cluster, or to one broker of it."""
        from barnabas.clients.wire.connection import WireClient

        return WireClient(
            bootstrap_servers or self.bootstrap_servers, properties=self.properties, timeout=self.request_timeout
        )


class QueueEngine:
    """The messages that wait, and the end."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.changed = threading.Condition()
        self.waiting: deque[HeldRecord] = deque()
        """Acquired, and not taken by the program yet."""
        self.closing = False
        self.leaders_unknown = False
        """Whether a broker said that it does not lead what it was asked for."""
        self._failure: Exception | None = None

    @property
    def room(self) -> int:
        """How many more messages to fetch: none until half of those that may wait are taken.

        Else a fetch for each message that is taken would bring one.
        """
        waiting = len(self.waiting)
        return self.settings.prefetch - waiting if waiting <= self.settings.prefetch // 2 else 0

    def fail(self, error: Exception) -> None:
        """It cannot go on: whoever takes a message is told why. The first reason counts."""
        with self.changed:
            self._failure = self._failure or error
            self.changed.notify_all()

    def close(self) -> None:
        """Begin to end."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def look_for_leaders(self) -> None:
        """Have the membership ask who leads the partitions."""
        with self.changed:
            self.leaders_unknown = True
            self.changed.notify_all()

    def take(self, timeout: float | None) -> HeldRecord | None:
        """The next message; None if none came within `timeout` seconds. Raises ClientClosed, and why it failed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while not self._has_valid():
                if self._failure is not None:
                    raise self._failure
                if self.closing:
                    raise ClientClosed("the queue is closed")
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self.changed.wait(left)
            self.changed.notify_all()  # there is room for another one
            return self.waiting.popleft()

    def _has_valid(self) -> bool:
        """Whether a message waits; those whose lock is over are given up, since others may have them."""
        while self.waiting and self.waiting[0].is_over():
            self.waiting[0].give_up()
            self.changed.notify_all()
        return bool(self.waiting)

    def put_back(self, held: HeldRecord) -> None:
        """A message that was taken and did not reach anybody comes first again."""
        with self.changed:
            self.waiting.appendleft(held)
            self.changed.notify_all()
