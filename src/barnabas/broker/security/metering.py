"""One request of a client under a quota: what it used, and for how long its client has to wait.

A `Meter` says for how long, which the response carries, and mutes the client's connection for that time. What brokers
send each other is not counted.

Usage of time is the processor time of the threads that read the request, handle it and write its response: the event
loop's, and those of a pool for what is large. Kafka counts what passes meanwhile, in its handlers and network threads.
A request's time counts against the next one, so that a response can be written with a throttle time in it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kio.static.primitive import i32Timedelta

from barnabas.broker.security.quotas import ClientIdentity
from barnabas.model.errors import ThrottlingQuotaExceeded
from barnabas.protocol.wire.durations import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from barnabas.broker.security.quotas import ClientQuotas
    from barnabas.net.connection import Connection

P = ParamSpec("P")
T = TypeVar("T")


class MutationQuota:
    """What one request may change of topics: as many partitions as its client has tokens for."""

    __slots__ = ("_client_id", "_quotas", "_refused_ms", "_strict", "_taken", "_user")

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str, *, strict: bool) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._strict = strict
        self._taken = 0
        self._refused_ms = 0

    def take(self, partitions: int) -> int:
        """Count partitions that are created or deleted; if that is to be refused, the milliseconds to wait instead.

        A client that knows the error is refused what it has no tokens for. Others are served, and have to wait.
        """
        shares, now = self._quotas.shares, self._quotas.clock.monotonic()
        if self._strict and (wait := shares.mutation_wait_ms(self._user, self._client_id, now)):
            return wait
        self._taken += partitions
        shares.mutated(self._user, self._client_id, partitions, now)
        return 0

    def refusal(self, wait_ms: int) -> ThrottlingQuotaExceeded:
        """The error of what was refused, which the client may try again after this time."""
        self._refused_ms = wait_ms
        return ThrottlingQuotaExceeded("The throttling quota has been exceeded.")

    def give_back(self, partitions: int) -> None:
        """Partitions that were counted could not be created or deleted."""
        self._taken -= partitions
        self._quotas.shares.mutated(self._user, self._client_id, -partitions, self._quotas.clock.monotonic())

    @property
    def throttle_time(self) -> i32Timedelta:
        """For how long the client has to wait, as a response has it."""
        if self._strict or not self._taken:
            return throttle_time(self._refused_ms)
        now = self._quotas.clock.monotonic()
        return throttle_time(self._quotas.shares.mutation_wait_ms(self._user, self._client_id, now))


def throttle_time(milliseconds: int) -> i32Timedelta:
    """A time to wait, as responses have it."""
    return i32Timedelta.parse(timedelta(milliseconds=milliseconds))


class Meter:
    """One request of a client, while there are quotas."""

    __slots__ = ("_client_id", "_connection", "_is_timed", "_quotas", "_thread", "_user", "throttle_ms")

    def __init__(self, quotas: ClientQuotas, connection: Connection, user: str, client_id: str) -> None:
        self._quotas = quotas
        self._connection = connection
        self._user = user
        self._client_id = client_id
        self._thread = threading.get_ident()
        """The event loop's."""
        self._is_timed = quotas.shares.is_timed(user, client_id)
        self.throttle_ms = 0
        """For how long the client has to wait, as its response tells it."""

    def check_time(self) -> None:
        """Have the client wait if its requests before this have taken too much time."""
        if self._is_timed:
            shares = self._quotas.shares
            self.throttle(shares.time_wait_ms(self._user, self._client_id, self._quotas.clock.monotonic()))

    def produced(self, size: int) -> None:
        """The request brings so many bytes to be stored."""
        shares = self._quotas.shares
        self.throttle(shares.produced(self._user, self._client_id, size, self._quotas.clock.monotonic()))

    def fetched(self, size: int) -> bool:
        """Whether so many bytes of records may be sent now."""
        wait = self._quotas.shares.fetched(self._user, self._client_id, size, self._quotas.clock.monotonic())
        self.throttle(wait)
        return not wait

    @property
    def most_fetched(self) -> int:
        """The most bytes of records that may be sent at once."""
        return self._quotas.shares.most_at_once(self._user, self._client_id)

    def throttle(self, milliseconds: int) -> None:
        """Have the client wait, and not read what it sends until then. A longer time counts."""
        if milliseconds > self.throttle_ms:
            self.throttle_ms = milliseconds
            mute = partial(self._connection.mute, whose=ClientIdentity(self._user, self._client_id))
            if threading.get_ident() == self._thread:
                mute(milliseconds / 1000)
            else:
                self._call_soon(mute, milliseconds / 1000)

    def stamp(self, response: Any) -> Any:
        """The response with the time that its client has to wait."""
        known = getattr(response, "throttle_time", None)
        if known is None:
            return response
        self.throttle(known // MILLISECOND)
        return replace(response, throttle_time=throttle_time(self.throttle_ms)) if self.throttle_ms else response

    def timed(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function, whose processor time is counted, in whatever thread it runs."""
        if not self._is_timed:
            return function

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.took(time.thread_time() - began)

        return call

    def watch(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T] | TimedSteps:
        """The coroutine, whose processor time is counted at every step."""
        return TimedSteps(coroutine, self) if self._is_timed else coroutine

    def took(self, seconds: float) -> None:
        """So much processor time was spent."""
        if threading.get_ident() == self._thread:
            self._quotas.shares.took(self._user, self._client_id, seconds, self._quotas.clock.monotonic())
        else:
            self._call_soon(self.took, seconds)

    def _call_soon(self, function: Callable[[float], None], seconds: float) -> None:
        """Call it on the event loop, from another thread."""
        loop = self._connection.server.loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(function, seconds)


class TimedSteps:
    """Awaits a coroutine, and counts the processor time of each of its steps."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], meter: Meter) -> None:
        self._coroutine = coroutine
        self._meter = meter

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = self._step(None)
        while True:
            began = time.thread_time()
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            finally:
                self._meter.took(time.thread_time() - began)
            try:
                step = self._step((yield waited_for))
            except BaseException as error:  # whatever it was, the coroutine is told
                step = self._throw(error)

    def _step(self, value: Any) -> Callable[[], Any]:
        return lambda: self._coroutine.send(value)

    def _throw(self, error: BaseException) -> Callable[[], Any]:
        return lambda: self._coroutine.throw(error)
