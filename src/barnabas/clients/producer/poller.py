"""The thread that lets deliveries happen while the program does something else.

librdkafka sends by itself, but reports what became of records only to a thread that polls. A thread that always polls
would fight with a busy sender for Python's lock, once per record (measured: half the rate). So a sender polls now and
then itself, and this thread steps back while records are sent at a high rate.

When a program forgets to close its producer, what waits is still sent, also at the program's end: for at most
EXIT_SECONDS, and with a ResourceWarning.
"""

from __future__ import annotations

import atexit
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.closed import left_in_parent, watch_forks
from barnabas.clients.config import log
from barnabas.clients.errors import NotDelivered
from barnabas.clients.producer.serving import FatalFailure, serve

if TYPE_CHECKING:
    from barnabas.clients.producer.delivery import Failures

POLL_SECONDS: Final = 0.05
BUSY_SENDS: Final = 256
"""A sender of this many records between two looks polls often enough itself."""
BUSY_SECONDS: Final = 0.002
POLL_EVERY: Final = 128
"""How many records a sender may send between two polls of its own; a power of two."""
EXIT_SECONDS: Final = 10.0
"""How long a program that ends waits for records of producers that it did not close."""

_running: set[Poller] = set()


class Poller(threading.Thread):
    """Polls a producer of confluent-kafka until it is stopped. `sends` is counted by the senders."""

    def __init__(self, client: Any, failures: Failures) -> None:
        super().__init__(name="barnabas-producer", daemon=True)
        self.sends = 0
        self._client = client
        self._failures = failures
        self._stopping = False
        self._abandoned = False

    def start(self) -> None:
        """Begin to poll."""
        _running.add(self)
        watch_forks(self)
        super().start()

    def run(self) -> None:
        """Poll, unless a sender is busy doing it."""
        seen = 0
        while not self._stopping:
            before, seen = seen, self.sends
            if seen - before > BUSY_SENDS:
                time.sleep(BUSY_SECONDS)
                continue
            try:
                self._poll()
            except BaseException:  # also sys.exit(), which would end this thread alone and leave the rest waiting
                log.exception("A callback of the producer failed.")
            if self._abandoned and not len(self._client):
                self._log_failures()
                break
        _running.discard(self)

    def _poll(self) -> None:
        try:
            serve(self._client.poll, POLL_SECONDS)
        except FatalFailure as failure:
            self._failures.fail_for_good(failure)

    def stop(self) -> None:
        """End the thread and wait for its end."""
        self._stopping = True
        _running.discard(self)
        if self.is_alive() and threading.current_thread() is not self:
            self.join()

    def abandon(self) -> None:
        """The producer was dropped without being closed: send what is left, and end."""
        if not self._stopping:
            self._abandoned = True
            self._warn()

    def on_their_way(self) -> int:
        """How many records have no outcome yet."""
        return len(self._client)

    def forked(self) -> None:
        """In a child: there is no such thread."""
        _running.discard(self)
        self._stopping = True
        self._client = left_in_parent("the producer", self._client)

    def flush_at_exit(self, deadline: float) -> None:
        """Wait for what is left, and say what did not arrive."""
        if not self._abandoned:
            self._warn()
        try:
            left = serve(self._client.flush, max(0.0, deadline - time.monotonic()))
        except FatalFailure as failure:
            self._failures.fail_for_good(failure)
            left = len(self._client)
        except BaseException:
            log.exception("A callback of the producer failed.")
            left = len(self._client)
        self._failures.await_reason(0)
        if left:
            log.error(
                "%d records were not delivered: the program ended without closing their producer, and they did not "
                "arrive within %g s.",
                left,
                EXIT_SECONDS,
            )
        self._log_failures()

    def _warn(self) -> None:
        warnings.warn(
            "a producer was not closed, and its last records may be lost: close it, or use it in a with",
            ResourceWarning,
            stacklevel=3,
        )

    def _log_failures(self) -> None:
        count, errors = self._failures.forget()
        if count:
            log.error("%s", NotDelivered(count, errors))


@atexit.register
def _flush_all() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    for poller in list(_running):
        poller.flush_at_exit(deadline)
