"""Connections to a cluster in one user's name, which threads of the console borrow for a question.

A `ClusterAdmin` is for one thread. So each question is asked in a thread with a connection of its own, and connections
that are idle wait for the next one. A connection may have died since it was last used, as brokers stop and start: what
only reads is then asked a second time, over a new one. A change is never sent twice.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.to_thread

from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.errors import BrokerUnreachable, LoginFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 8.0
MOST_IDLE: Final = 4
MOST_AT_ONCE: Final = 16
"""Questions of one user that are under way; others wait for their turn."""
GONE_SECONDS: Final = 10.0
"""How long a question may still be under way to a broker that has gone down."""


class Connections:
    """A cluster, as one user sees it."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, Any], timeout: float = TIMEOUT_SECONDS) -> None:
        self._given = self._bootstrap_servers = bootstrap_servers
        self._avoided: set[str] = set()
        self._silent: set[str] = set()
        self._up: set[str] = set()
        self._gone: dict[str, float] = {}
        """When brokers went that are down."""
        self.properties = dict(properties)
        self.timeout = timeout
        """Seconds for each question."""
        self._idle: list[ClusterAdmin] = []
        self._lock = threading.Lock()
        self._closed = False
        self._limiter: anyio.CapacityLimiter | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the session of this user is over."""
        return self._closed

    @property
    def avoids_some(self) -> bool:
        """Whether there is a broker that hangs, and that is asked last from now on.

        One that has just gone may still be asked something, and hang in that.
        """
        return bool(self._silent) or any(time.monotonic() - went < GONE_SECONDS for went in self._gone.values())

    async def ask(self, question: Callable[[ClusterAdmin], T]) -> T:
        """The answer to what only reads; raises what the clients raise."""
        return await self._in_thread(lambda: self.ask_here(question))

    async def change(self, change: Callable[[ClusterAdmin], T]) -> T:
        """Have something changed, over a connection that is new."""

        def run() -> T:
            with self._new() as cluster:
                return change(cluster)

        return await self._in_thread(run)

    async def _in_thread(self, run: Callable[[], T]) -> T:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MOST_AT_ONCE)
        return await anyio.to_thread.run_sync(run, limiter=self._limiter, abandon_on_cancel=True)

    def ask_here(self, question: Callable[[ClusterAdmin], T]) -> T:
        """As `ask`, in this thread."""
        with self._lock:
            used = self._idle.pop() if self._idle else None
        if used is not None:
            try:
                return self._ask(used, question)
            except LoginFailed:
                raise
            except BrokerUnreachable:  # it may have been the connection alone
                pass
        return self._ask(self.open(), question)

    @contextmanager
    def borrowed(self) -> Iterator[ClusterAdmin]:
        """A connection for long work in this thread; it is closed at the end."""
        with self._new() as cluster:
            yield cluster

    def _ask(self, cluster: ClusterAdmin, question: Callable[[ClusterAdmin], T]) -> T:
        try:
            answer = question(cluster)
        except BrokerUnreachable:
            cluster.__exit__()
            raise
        except BaseException:
            self._give_back(cluster)
            raise
        self._give_back(cluster)
        return answer

    def _give_back(self, cluster: ClusterAdmin) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append(cluster)
                return
        cluster.__exit__()

    def open(self, bootstrap_servers: str | None = None) -> ClusterAdmin:
        """A connection to the cluster, or to one broker of it, that is the caller's; nothing is opened yet."""
        return ClusterAdmin(bootstrap_servers or self._bootstrap_servers, self.properties, self.timeout)

    def avoid(self, nodes: Collection[str], silent: Collection[str], down: Collection[str]) -> None:
        """Go last to brokers that hang, of those that are up, or that are down from now on.

        The first address that was given may be that of one, also under another name.
        """
        now = time.monotonic()
        gone = {each: now for each in down if each in self._up}
        self._gone = {each: went for each, went in (self._gone | gone).items() if each in down}
        self._up, self._silent = set(nodes), set(silent)
        avoided, given = {*silent, *down}, self._given.split(",")
        wanted = [*nodes, *given] if avoided else [*given, *nodes]
        order = sorted(dict.fromkeys(each.strip() for each in wanted), key=lambda address: address in avoided)
        self._bootstrap_servers = ",".join(order)
        if avoided - self._avoided:  # a connection that is idle may be to one of these
            self._close_idle()
        self._avoided = avoided

    @contextmanager
    def _new(self) -> Iterator[ClusterAdmin]:
        with self.open() as cluster:
            yield cluster

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        with self._lock:
            self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for cluster in idle:
            cluster.__exit__()
