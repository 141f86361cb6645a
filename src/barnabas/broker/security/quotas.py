"""The client quotas of one broker: what the metadata tree says, applied to requests and connections.

Quotas follow the metadata cache, as all dynamic settings do. A request of a client under a quota has a `Meter`: it says
for how long the client has to wait, which the response carries, and mutes the client's connection for that time. What
brokers send each other is not counted.

Usage of time is the processor time of the threads that read the request, handle it and write its response: the event
loop's, and those of a pool for what is large. Kafka counts what passes meanwhile, in its handlers and network threads.
A request's time counts against the next one, so that a response can be written with a throttle time in it.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from kio.static.primitive import i32Timedelta

from barnabas.machines.security.quota_entities import CLIENT_KEYS, QuotaEntity, stored_quotas
from barnabas.machines.security.quotas import ClientShares, QuotaLimits, QuotaWindow
from barnabas.model.errors import ThrottlingQuotaExceeded
from barnabas.protocol.wire.durations import MILLISECOND

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
    from concurrent.futures import Executor, Future

    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import ClusterImage, ConfigResource
    from barnabas.metadata.images.cache import Delta
    from barnabas.model.clock import Clock
    from barnabas.model.config.values import Values
    from barnabas.net.connection import Connection

logger = logging.getLogger(__name__)

KINDS: Final = frozenset({"users", "clients", "ips"})
"""Of settings in the tree, those that hold quotas."""

P = ParamSpec("P")
T = TypeVar("T")


def entity_of_resource(resource: ConfigResource) -> QuotaEntity | None:
    """Whose quotas a resource's settings hold; None if they hold none."""
    match resource.kind:
        case "users":
            return QuotaEntity(resource.name, resource.client_id)
        case "clients":
            return QuotaEntity(client_id=resource.name)
        case "ips":
            return QuotaEntity(ip=resource.name)
    return None


def quotas_of(image: ClusterImage) -> Iterator[tuple[QuotaEntity, dict[str, float]]]:
    """All quotas that are set in a cluster."""
    for resource, settings in image.configs.items():
        if resource.kind in KINDS and (quotas := stored_quotas(settings)):
            entity = entity_of_resource(resource)
            assert entity is not None  # its kind is one of those
            yield entity, quotas


class ClientQuotas:
    """Quotas in force on this broker, and what clients have used of them."""

    def __init__(self, values: Values, clock: Clock, executor: Executor) -> None:
        number = values.number
        self.shares = ClientShares(
            QuotaWindow(number("quota.window.num"), number("quota.window.size.seconds")),
            QuotaWindow(number("controller.quota.window.num"), number("controller.quota.window.size.seconds")),
        )
        self.is_on = False
        """Whether there is any quota for users or client ids, so that requests have to be counted."""
        self.clock = clock
        self._executor = executor
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        """Of hosts that quotas are for."""
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` when there are other quotas."""
        self._subscribers.append(callback)

    def on_change(self, delta: Delta) -> None:
        """Take over quotas from an image of the metadata."""
        if not (delta.is_whole or any(resource.kind in KINDS for resource in delta.configs)):
            return
        quotas = dict(quotas_of(delta.after))
        if quotas != self._quotas:
            self._quotas = quotas
            self._apply()
            self._look_up(entity.ip for entity in quotas if entity.ip)
            logger.info("Quotas are in force for %d users, client ids and addresses.", len(quotas))

    def _apply(self) -> None:
        limits = QuotaLimits(dict(self._by_address(self._quotas)))
        self.shares.limits = limits
        self.is_on = bool(limits.keys & set(CLIENT_KEYS))
        for callback in self._subscribers:
            callback()

    def _by_address(
        self, quotas: Mapping[QuotaEntity, Mapping[str, float]]
    ) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        """The quotas, with addresses instead of names of hosts."""
        for entity, values in quotas.items():
            if not entity.ip:
                yield entity, values
            else:
                for address in self._addresses.get(entity.ip) or literal(entity.ip):
                    yield QuotaEntity(ip=address), values

    def _look_up(self, hosts: Iterable[str]) -> None:
        """Have the addresses of hosts looked up, which may take a while, and then use their quotas."""
        self._addresses = {
            host: found for host, found in self._addresses.items() if QuotaEntity(ip=host) in self._quotas
        }
        for host in hosts:
            if host not in self._addresses and not literal(host):
                self._executor.submit(addresses, host).add_done_callback(self._on_addresses(host))

    def _on_addresses(self, host: str) -> Callable[[Future[tuple[str, ...]]], None]:
        from asyncio import get_running_loop

        loop = get_running_loop()

        def note(found: tuple[str, ...]) -> None:
            if QuotaEntity(ip=host) in self._quotas:
                self._addresses[host] = found
                self._apply()

        return lambda done: None if done.cancelled() else _call(loop, note, done.result())

    def begin(self, connection: Connection, caller: Caller) -> Meter | None:
        """Measure a request; None for brokers, which have no quotas."""
        if caller.broker_id is not None:
            return None
        return Meter(self, connection, *identity(caller))

    def mutations(self, caller: Caller, *, strict: bool) -> MutationQuota:
        """What a client may change of topics in one request; `strict` if it knows the error for too much."""
        return MutationQuota(self, *identity(caller), strict=strict)

    def delivered(self, caller: Caller, size: int) -> int:
        """A member of a share group is sent so many bytes: for how many milliseconds it gets no more.

        They are locked for the member, so they are not held back, as a consumer's are.
        """
        return self.shares.delivered(*identity(caller), size, self.clock.monotonic())

    def delay_connection(self, ip: str) -> float:
        """The seconds after which a new connection is closed, because its address opened too many; 0 if it may be."""
        return self.shares.connected(ip, self.clock.monotonic()) / 1000


def identity(caller: Caller) -> tuple[str, str]:
    """A caller's user and client id, as quotas know them."""
    return caller.principal.partition(":")[2], caller.client_id or ""


def literal(host: str) -> tuple[str, ...]:
    """The address, as connections have it, if that is what is written; else nothing."""
    try:
        return (str(ip_address(host)),)
    except ValueError:
        return ()


def addresses(host: str) -> tuple[str, ...]:
    """All addresses of a host, looked up; none if it is not known."""
    try:
        return tuple({str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return ()


def _call(loop: AbstractEventLoop, function: Callable[[T], None], argument: T) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, argument)


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
            if threading.get_ident() == self._thread:
                self._connection.mute(milliseconds / 1000)
            else:
                _call(self._connection.server.loop, self._connection.mute, milliseconds / 1000)

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
            _call(self._connection.server.loop, self.took, seconds)


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
