"""Who uses the console: nobody in particular, or users of the cluster that have logged in.

Where the cluster's listener asks for a login, so does the console, and it asks brokers in the user's name: what
somebody may do is what the cluster lets them. The password or the provider's token stays in this process's memory, as
long as the session.
Where the listener asks for none, everybody is the same, as for any other client.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from barnabas.clients.errors import LoginFailed
from barnabas.clients.wire import diagnosis
from barnabas.console.cluster.connections import Connections
from barnabas.console.cluster.observer import Observer
from barnabas.console.oidc import EXPIRED, OidcFailed
from barnabas.model.config.sasl import OAUTHBEARER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from barnabas.console.oidc import TokenHolder
    from barnabas.console.settings import ConsoleSettings

T = TypeVar("T")

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 12 * 3600
MOST_SESSIONS: Final = 500
LOGINS_AT_ONCE: Final = 8
LOGINS_OF_ONE: Final = 2
"""Logins from one address at the same time: whoever guesses passwords there keeps nobody else waiting."""
FAILED_SECONDS: Final = 1.0
"""How long a login takes that fails: guessing is slow."""
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""By which the console logs in, the best first."""
_OF_LOGINS: Final = ("sasl.", "enable.sasl.")


class NoLoginAsked(Exception):
    """A login where there is none: nobody would check the name, and what is done by it would be in the audit log."""


class TooManyLogins(Exception):
    """A login that is not tried: those before it are not done."""


class ConsoleSession:
    """Somebody who uses the console."""

    def __init__(self, user: str | None, observer: Observer, token: TokenHolder | None = None) -> None:
        self.user = user
        self.observer = observer
        self.token = token
        """Of a provider, if the user logged in there."""
        self.used = time.monotonic()

    @property
    def connections(self) -> Connections:
        """The cluster in this user's name."""
        return self.observer.connections


class Sessions:
    """All who use the console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        properties = settings.properties
        self.own = Observer(Connections(settings.bootstrap_servers, properties))
        """The cluster as the console itself sees it."""
        self._anonymous = ConsoleSession(None, self.own)
        self._by_token: dict[str, ConsoleSession] = {}
        self._listener: diagnosis.ListenerProtocol | None = None
        self._logins = anyio.CapacityLimiter(LOGINS_AT_ONCE)
        self._provider_logins = anyio.CapacityLimiter(LOGINS_AT_ONCE)
        """Apart from the others: a provider may take long to answer."""
        self._waiting = Counter[str]()
        """Logins by the address that they come from."""

    async def login_required(self) -> bool:
        """Whether the cluster's listener asks for a login; while no broker answers, what the properties say."""
        protocol = self._settings.properties.get("security.protocol", "").upper()
        if self._listener is None:
            find_out = partial(diagnosis.find_out, tls_first=protocol.endswith("SSL"))
            for each in self._settings.bootstrap_servers.split(","):
                self._listener = await anyio.to_thread.run_sync(find_out, each.strip())
                if self._listener is not None:
                    break
        if self._listener is None:
            return protocol.startswith("SASL")
        return bool(self._listener.mechanisms)

    async def find(self, token: str | None) -> ConsoleSession | None:
        """Whose token it is; the one session of all where no login is asked for; else None."""
        found = self._by_token.get(token) if token else None
        if found is not None:
            is_over = found.token is not None and found.token.is_over
            if is_over or time.monotonic() - found.used > IDLE_SECONDS:
                self.end(token)
                return None
            found.used = time.monotonic()
            return found
        return None if await self.login_required() else self._anonymous

    async def log_in(self, user: str, password: str, address: str) -> str:
        """A new token, for the user that the cluster lets in with this password.

        Raises BrokerUnreachable, NoLoginAsked, TooManyLogins.
        """
        async with self._turn(address, self._logins):
            login = {"sasl.mechanism": self._best_mechanism(), "sasl.username": user, "sasl.password": password}
            return self._begin(user, await self._connect(login))

    async def begin_with(self, begin: Callable[[], T], address: str) -> T:
        """The first half of a login with a provider, which `begin` may have to ask.

        Raises OidcFailed, TooManyLogins.
        """
        async with self._turn(address, self._provider_logins):
            return await anyio.to_thread.run_sync(begin)

    async def log_in_with(self, finish: Callable[[], TokenHolder], address: str) -> tuple[str, str]:
        """A new token, and the user that the cluster lets in with a provider's one, which `finish` gets.

        Raises BrokerUnreachable, NoLoginAsked, OidcFailed, TooManyLogins.
        """
        async with self._turn(address, self._provider_logins):
            holder = await anyio.to_thread.run_sync(finish)
            connections = await self._connect({"sasl.mechanism": OAUTHBEARER, "oauth_cb": holder})
            return self._begin(holder.user, connections, holder), holder.user

    @asynccontextmanager
    async def _turn(self, address: str, limiter: anyio.CapacityLimiter) -> AsyncIterator[None]:
        """The turn of a login: some at a time, few of one address, and one that fails takes a while."""
        if self._waiting[address] >= LOGINS_OF_ONE and not self._settings.behind_proxy:
            raise TooManyLogins("Too many logins are under way. Wait a moment, and try again.")
        self._waiting[address] += 1
        try:
            async with limiter:
                try:
                    yield
                except (LoginFailed, OidcFailed) as error:
                    if not (isinstance(error, OidcFailed) and error.word == EXPIRED):
                        await anyio.sleep(FAILED_SECONDS)
                    raise
        finally:
            self._waiting -= Counter((address,))

    async def takes_passwords(self) -> bool:
        """Whether the cluster's listener takes logins with a password."""
        await self.login_required()
        return self._listener is None or any(each in self._listener.mechanisms for each in MECHANISMS)

    async def _connect(self, login: Mapping[str, Any]) -> Connections:
        """Connections with a login that the cluster has accepted."""
        if not await self.login_required():
            raise NoLoginAsked("The cluster asks for no login.")
        connections = Connections(self._settings.bootstrap_servers, self._properties_of(login))
        try:
            await connections.ask(lambda cluster: cluster.wire.nodes())
        except BaseException:
            connections.close()
            raise
        return connections

    def _begin(self, user: str, connections: Connections, holder: TokenHolder | None = None) -> str:
        self._make_room()
        token = secrets.token_urlsafe(32)
        self._by_token[token] = ConsoleSession(user, Observer(connections), holder)
        return token

    def end(self, token: str | None) -> None:
        """Forget a session and its password."""
        session = self._by_token.pop(token, None) if token else None
        if session is not None:
            session.observer.close()
            if session.token is not None:
                session.token.forget()

    def close(self) -> None:
        """Forget all."""
        for token in list(self._by_token):
            self.end(token)
        self.own.close()

    def _best_mechanism(self) -> str:
        offered = self._listener.mechanisms if self._listener is not None else MECHANISMS
        return next((each for each in MECHANISMS if each in offered), MECHANISMS[0])

    def _properties_of(self, login: Mapping[str, Any]) -> dict[str, Any]:
        """The console's own properties, with another login."""
        kept = {name: value for name, value in self._settings.properties.items() if not name.startswith(_OF_LOGINS)}
        listener = self._listener
        protocol = self._settings.properties.get("security.protocol") or (
            listener.protocol if listener is not None else "SASL_SSL"
        )
        return {**kept, "security.protocol": protocol, **login}

    def _make_room(self) -> None:
        """End sessions that were not used for long; where there are too many, the one that was not for longest."""
        now = time.monotonic()
        for token, session in list(self._by_token.items()):
            if now - session.used > IDLE_SECONDS:
                self.end(token)
        while len(self._by_token) >= MOST_SESSIONS:
            self.end(min(self._by_token, key=lambda token: self._by_token[token].used))
