"""The certificates of a broker: those of its listeners, and the one that it shows to other brokers.

They are loaded at the start, and again when a file of theirs or a setting has changed. New ones are used from the next
connection on; open connections stay as they are. What cannot be used, or would turn clients away, is refused with a
reason, and the old certificate stays: KIP-978's rules are in `net/contexts`.

Files are read in threads.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.tasks import TaskSet
from barnabas.model.certificates import read_certificate
from barnabas.model.config.listeners import METRICS, metrics_listener
from barnabas.model.config.principal_rules import PrincipalRules
from barnabas.model.config.tls import client_auth
from barnabas.model.errors import ConfigError, InvalidRequest
from barnabas.net.contexts import (
    TlsContext,
    check_successor,
    check_trusts_itself,
    client_context,
    listener_context,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from barnabas.broker.settings import Changed, Settings
    from barnabas.model.config.listeners import Listener
    from barnabas.model.config.per_listener import ListenerValues

    OfListener = Callable[[str], ListenerValues]

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 5.0
"""How often the files are looked at."""
LOCATIONS: Final = ("ssl.keystore.location", "ssl.truststore.location")


class _Loaded(NamedTuple):
    """What was made of one state of settings and files."""

    listeners: Mapping[str, TlsContext]
    client: TlsContext | None


class Certificates:
    """The TLS contexts of a broker with at least one listener that has TLS."""

    def __init__(self, settings: Settings) -> None:
        static = settings.static
        self._settings = settings
        self._tls = {each.name: each for each in static.listeners if each.uses_tls}
        metrics = metrics_listener(static)
        if metrics is not None and metrics.uses_tls:
            self._tls[METRICS] = metrics.listener
        self._between = static.inter_broker_listener
        self._loaded = _Loaded({}, None)
        self._seen: Mapping[str, object] = {}
        """What the files looked like when they were last read."""
        self._rules = {
            each.name: PrincipalRules(static.of_listener(each.name).text("ssl.principal.mapping.rules"))
            for each in static.listeners
            if each.protocol == "SSL"
        }
        self._reloading = asyncio.Lock()
        self._tasks = TaskSet()

    async def load(self) -> None:
        """Load everything for the first time; raises ConfigError."""
        self._seen = await asyncio.to_thread(self._look)
        self._loaded = await asyncio.to_thread(self._load, self._settings.of_listener)
        self._warn_of_expiry()

    def start(self) -> None:
        """Follow files and settings."""
        self._settings.subscribe(self._on_settings)
        if self._settings.dynamic or self._settings.dynamic_default:
            self._tasks.spawn(self._reload())  # settings of the metadata tree, which was not open at the start
        self._tasks.spawn(self._watch(), "certificates")

    async def stop(self) -> None:
        """Follow them no more."""
        await self._tasks.cancel()

    def listener(self, listener: Listener) -> Callable[[], TlsContext] | None:
        """What gives the context for the next connection of a listener; None if it has no TLS."""
        return (lambda: self._loaded.listeners[listener.name]) if listener.uses_tls else None

    def metrics(self) -> Callable[[], ssl.SSLContext] | None:
        """What gives the context for the next connection of the metrics listener; None if it has no TLS."""
        return (lambda: self._loaded.listeners[METRICS].context) if METRICS in self._tls else None

    def expiries(self) -> dict[str, datetime]:
        """When the certificates of listeners end."""
        loaded = self._loaded.listeners.items()
        return {name: made.certificate.not_after for name, made in loaded if made.certificate is not None}

    def client(self) -> ssl.SSLContext | None:
        """The context for the next connection to another broker; None if brokers talk without TLS."""
        client = self._loaded.client
        return None if client is None else client.context

    def principal(self, listener: str, certificate: bytes) -> str | None:
        """The principal of a certificate that a client has shown, if the listener has its clients known by them.

        Raises NoMatchingRule.
        """
        rules = self._rules.get(listener)
        return None if rules is None else f"User:{rules.name_of(read_certificate(certificate).subject)}"

    async def check(self, dynamic: Mapping[str, str], *, all_brokers: bool) -> None:
        """Refuse dynamic settings whose certificates cannot be used, with InvalidRequest."""
        if any(".ssl." in f".{name}" for name in dynamic):
            proposed = self._settings.proposed(dynamic, all_brokers=all_brokers)
            try:
                await asyncio.to_thread(self._load, proposed, self._loaded)
            except ConfigError as error:
                raise InvalidRequest(str(error)) from None

    # Changes

    def _on_settings(self, changed: Changed) -> None:
        if any(".ssl." in f".{name}" for name in changed.keys):
            self._tasks.spawn(self._reload())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if await asyncio.to_thread(self._look) != self._seen:
                await self._reload()

    async def _reload(self) -> None:
        """Use what settings and files say now, or say why not and go on with what was.

        One at a time: what was read first would otherwise stay, if it were loaded last.
        """
        async with self._reloading:
            self._seen = await asyncio.to_thread(self._look)
            try:
                self._loaded = await asyncio.to_thread(self._load, self._settings.of_listener, self._loaded)
            except ConfigError as error:
                logger.error(
                    "Could not load the new certificates of %s. The old ones stay in use: %s",
                    ", ".join(self._tls),
                    error,
                )
            except Exception:  # the next ones are to be looked at all the same
                logger.exception(
                    "Could not load the new certificates of %s. The old ones stay in use.", ", ".join(self._tls)
                )
            else:
                logger.info("Certificates of %s were loaded again.", ", ".join(self._tls))
                self._warn_of_expiry()

    def _look(self) -> Mapping[str, object]:
        """What the files look like: when they were written, by which inode, and how large they are."""
        found: dict[str, object] = {}
        for listener in {*self._tls, self._between}:
            values = self._settings.of_listener(listener)
            for location in filter(None, map(values.text_or_none, LOCATIONS)):
                try:
                    stat = Path(location).stat()
                    found[location] = stat.st_mtime_ns, stat.st_ino, stat.st_size
                except OSError as error:
                    found[location] = error.errno
                except ValueError:  # no path at all, such as one with a zero byte: loading says so
                    found[location] = None
        return found

    def _load(self, of_listener: OfListener, old: _Loaded | None = None) -> _Loaded:
        """Make all contexts, and hold them against the old ones. Runs in a thread; raises ConfigError."""
        contexts: dict[str, TlsContext] = {}
        client = None
        for name, listener in self._tls.items():
            values = of_listener(name)
            try:
                contexts[name] = listener_context(values, client_auth(values, sasl=listener.uses_sasl))
                if name == self._between:
                    client = client_context(values)
                    check_trusts_itself(contexts[name], client)
                if old is not None:
                    check_successor(old.listeners[name], contexts[name], values)
            except ConfigError as error:
                raise ConfigError(f"listener {name}: {error}") from None
        return _Loaded(contexts, client)

    def _warn_of_expiry(self) -> None:
        now = datetime.now(UTC)
        for name, made in self._loaded.listeners.items():
            if made.certificate is not None and not made.certificate.not_before <= now <= made.certificate.not_after:
                logger.warning(
                    "The certificate of listener %s is valid from %s to %s: clients refuse it now.",
                    name,
                    f"{made.certificate.not_before:%Y-%m-%d %H:%M} UTC",
                    f"{made.certificate.not_after:%Y-%m-%d %H:%M} UTC",
                )
