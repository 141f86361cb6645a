"""librdkafka's producer from its opening to its end, with the thread that polls it.

The promise: every record that librdkafka took gets an outcome, also if another thread closes the producer meanwhile.
After the end, and in a forked child, every call of librdkafka's raises ClientClosed.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.closed import Closed, left_in_parent
from barnabas.clients.producer.poller import Poller
from barnabas.clients.producer.serving import FatalFailure, serve

if TYPE_CHECKING:
    from barnabas.clients.producer.delivery import Settlements

SLICE: Final = 0.2
"""How long a call into librdkafka may keep Ctrl-C waiting, in seconds."""
GIVE_UP_SECONDS: Final = 1.0
"""How long it may take to hear of records that were given up."""

AFTER_FATAL_SECONDS: Final = 0.01
"""How long to wait after a fatal error, before it is looked again whether all records were told."""


class NativeProducer:
    """A producer of confluent-kafka."""

    def __init__(self, kafka: Any, client: Any, settlements: Settlements) -> None:
        self.kafka = kafka
        """The module confluent_kafka."""
        self.client = client
        self.settlements = settlements
        self.closed = False
        self.ended = threading.Event()
        self._shutting = threading.Lock()
        self.poller = Poller(client, settlements.failures)
        settlements.on_their_way = partial(_on_their_way, weakref.ref(self.poller))
        self.poller.start()
        self._finalizer = weakref.finalize(self, self.poller.abandon)
        self._finalizer.atexit = False  # the pollers flush at exit, also those whose producers were dropped

    def require_open(self) -> None:
        """Raise ClientClosed after the end."""
        if self.closed:
            self.client.flush  # noqa: B018  (which says why not)

    def wait_for_all(self, timeout: float | None, client: Any = None) -> None:
        """Wait until every record has an outcome. Raises TimeoutError."""
        if client is None:
            client = self.client
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE if deadline is None else min(SLICE, max(0.0, deadline - time.monotonic()))
            try:
                remaining = serve(client.flush, left)
            except FatalFailure as failure:
                self.settlements.failures.fail_for_good(failure)
                remaining = len(client)
                time.sleep(min(left, AFTER_FATAL_SECONDS))
            if not remaining:
                left = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
                self.settlements.failures.await_reason(min(GIVE_UP_SECONDS, left))
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"up to {remaining} records are still on their way after {timeout:g} s")

    def poll(self, seconds: float) -> None:
        """Hear what became of records. A fatal error is told by the next call, and to each record."""
        try:
            serve(self.client.poll, seconds)
        except FatalFailure as failure:
            self.settlements.failures.fail_for_good(failure)

    def give_up_all(self) -> None:
        """Give up what is on its way, after an error that the program knows of: `flush` and `close` are silent."""
        self.settlements.failures.ignore_all()
        self.purge(self.client)
        self.wait_for_all(GIVE_UP_SECONDS)

    def purge(self, client: Any) -> None:
        """Have librdkafka give up what is on its way, for no other reason than that."""
        self.settlements.failures.hold_no_more()
        client.purge()

    def shut(self) -> Any:
        """Take no more records; gives librdkafka's producer, or None if somebody has done this before."""
        with self._shutting:
            if self.closed:
                return None
            self.closed = True
            client, self.client = self.client, Closed("the producer")
            self._finalizer.detach()
            return client

    def end(self, client: Any, timeout: float | None) -> None:
        """Wait for what is on its way, give up what is late, and stop the poller.

        librdkafka's producer ends with its last reference, so a thread that is still in a call of it comes to no harm.
        """
        try:
            with suppress(TimeoutError):
                self.wait_for_all(timeout, client)
        finally:
            self._give_up_rest(client)
            self.ended.set()
            self.poller.stop()
            self.poller = Poller(self.client, self.settlements.failures)

    def await_end(self, client: Any) -> None:
        """A record came into the buffer while another thread closed the producer: that thread waits for it, or we."""
        self.ended.wait()
        self._give_up_rest(client)  # of what came too late for that

    def forked(self) -> None:
        """In a child of this process: what was sent is the parent's, and nothing can be sent here."""
        self._finalizer.detach()
        self.settlements.forked()
        self.client = left_in_parent("the producer", self.client)
        self.closed = True
        self.ended.set()

    def _give_up_rest(self, client: Any) -> None:
        """Give up what has not arrived: no future is left without an outcome."""
        if len(client):
            self.purge(client)
            with suppress(TimeoutError):
                self.wait_for_all(GIVE_UP_SECONDS, client)


def _on_their_way(poller: weakref.ref[Poller]) -> int:
    """How many records have no outcome yet; none once the producer is gone, which deliveries may outlive."""
    found = poller()
    return 0 if found is None else found.on_their_way()
