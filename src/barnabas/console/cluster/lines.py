"""A connection to each broker, over which all of them are asked the same thing at the same time.

One broker that hangs must not hold up what the others tell. So each is waited for twice as long as it took the last
time, and one that was late is not waited for again until it has answered: its question stays under way, and
what it says is there the next time. A line has one question at a time.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio
import anyio.to_thread

from barnabas.clients.errors import BrokerSilent, BrokerUnreachable
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.wire.connection import Node
    from barnabas.console.cluster.connections import Connections

T = TypeVar("T")

PATIENCE_SECONDS: Final = 1.25
"""How long a broker may take that took less than half of it the last time."""
STALE_SECONDS: Final = 10.0
"""How old an answer may be that was late, and that nobody has asked for since."""
MOST_AT_ONCE: Final = 32
"""Brokers that are asked at the same time."""


class BrokerLines(Generic[T]):
    """Asks brokers for one kind of thing; an answer that was late is given to who asks next."""

    def __init__(self, connections: Connections, patience: float = PATIENCE_SECONDS) -> None:
        self._connections = connections
        self._patience = patience
        self._lines: dict[Node, _Line[T]] = {}
        self._limiter: anyio.CapacityLimiter | None = None
        self._closed = False

    async def ask(self, questions: Mapping[Node, Callable[[ClusterAdmin], T]]) -> dict[Node, T | BarnabasError]:
        """What each broker answers; an error of those that refuse, cannot be reached or are late."""
        if self._closed:  # whoever asked has logged out meanwhile
            return {node: BrokerSilent("the session has ended") for node in questions}
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MOST_AT_ONCE)
        for node, question in questions.items():
            line = self._lines.setdefault(node, _Line(self._connections, node))
            line.begin(question, self._limiter)
        lines = {node: self._lines[node] for node in questions}
        patient = [line for line in lines.values() if not line.is_late]
        began = time.monotonic()
        for line in sorted(patient, key=lambda line: line.took):
            await line.wait(max(self._patience, 2 * line.took) - (time.monotonic() - began))
        await asyncio.sleep(0)  # for answers of those that were late before
        return {node: line.take(self._patience) for node, line in lines.items()}

    def is_late(self, node: Node) -> bool:
        """Whether a broker did not answer in time when it was last asked."""
        return node in self._lines and self._lines[node].is_late

    def close(self) -> None:
        """Ask nothing more; a question that is under way is not broken off."""
        self._closed = True
        self.keep(())

    def keep(self, nodes: Iterable[Node]) -> None:
        """Close connections to others: those that are in use when they are done."""
        for node in self._lines.keys() - set(nodes):
            self._lines.pop(node).close()


class _Line(Generic[T]):
    """The connection to one broker."""

    def __init__(self, connections: Connections, node: Node) -> None:
        self._connections = connections
        self._node = node
        self._cluster: ClusterAdmin | None = None
        self._task: asyncio.Task[T | BarnabasError] | None = None
        self._began = self._ended = 0.0
        self._closed = False
        self.is_late = False
        self.took = 0.0
        """Seconds until the last answer."""

    def begin(self, question: Callable[[ClusterAdmin], T], limiter: anyio.CapacityLimiter) -> None:
        """Ask, unless the question before is still under way, or its answer is there and new."""
        if self._task is not None and self._task.done() and time.monotonic() - self._ended > STALE_SECONDS:
            self._task, self.is_late = None, False
        if self._task is None:
            self._began = time.monotonic()
            self._task = asyncio.create_task(self._ask(question, limiter))

    async def wait(self, seconds: float) -> None:
        """Wait for the answer, for so long at most."""
        if self._task is not None and seconds > 0:
            await asyncio.wait((self._task,), timeout=seconds)

    def take(self, patience: float) -> T | BarnabasError:
        """The answer, or that there is none yet."""
        if self._task is None or not self._task.done():
            self.is_late = True
            waited = time.monotonic() - self._began
            return BrokerSilent(f"{self._node.address} has not answered for {waited:.1f} s")
        task, self._task = self._task, None
        answer = task.result()
        self.is_late = isinstance(answer, BarnabasError) and self.took > patience
        return answer

    def close(self) -> None:
        """Hang up; a question that is under way is not broken off."""
        self._closed = True
        if self._task is None or self._task.done():
            self._hang_up()

    async def _ask(self, question: Callable[[ClusterAdmin], T], limiter: anyio.CapacityLimiter) -> T | BarnabasError:
        began = time.monotonic()
        try:
            return await anyio.to_thread.run_sync(
                lambda: self._ask_here(question), limiter=limiter, abandon_on_cancel=True
            )
        except BarnabasError as error:
            return error
        finally:
            self._ended = time.monotonic()
            self.took = min(self._ended - began, self._connections.timeout / 2)
            if self._closed:
                self._hang_up()

    def _ask_here(self, question: Callable[[ClusterAdmin], T]) -> T:
        """A connection that has died since it was last used is no broker that does not answer."""
        if self._cluster is not None:
            try:
                return question(self._cluster)
            except BrokerSilent:
                self._hang_up()
                if time.monotonic() - self._began > self._connections.timeout / 2:
                    raise
        self._cluster = self._connections.open(self._node.address)
        try:
            return question(self._cluster)
        except BrokerUnreachable:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.__exit__()
