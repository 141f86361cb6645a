"""The keys (JWKS) of an issuer of tokens, as they are now.

They come from a file or over https, from the one address that is configured, if the list of allowed addresses has it:
whoever may change a broker's configuration must not make it read other files or reach inside other networks
(CVE-2025-27817). They are fetched again after sasl.oauthbearer.jwks.endpoint.refresh.ms, and sooner when a token names
a key that is not among them, but not more often than sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms allows.

One fetch at a time is under way. Who has a key that is known never waits for it, however slow the issuer is, and
whatever keys others name. Who names one that is not known waits for the fetch that is under way, as all do that log in
when a broker has just started; the tokens that wait so have a limit in bytes, since anybody can make one up.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.daemon_threads import in_daemon_thread
from barnabas.broker.security.https_documents import MOST_SECONDS, DocumentUnavailable, fetch
from barnabas.machines.security.login_step import LoginRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from joserfc.jwk import KeySet

    from barnabas.model.clock import Clock
    from barnabas.model.config.per_listener import ListenerValues

logger = logging.getLogger(__name__)

MOST_WAITING: Final = 4 * 1024 * 1024
"""Bytes of tokens that wait for keys: those of some thousand clients."""


class IssuerKeys:
    """The keys of one listener's issuer."""

    def __init__(self, values: ListenerValues, clock: Clock, fetch_document: Callable[[str], bytes] = fetch) -> None:
        self._clock = clock
        self._fetch_document = fetch_document
        self._url = values.text_or_none("sasl.oauthbearer.jwks.endpoint.url") or ""
        self._refresh_ms = values.number("sasl.oauthbearer.jwks.endpoint.refresh.ms")
        self._backoff_ms = values.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")
        self._keys: KeySet | None = None
        self._fetched_ms = 0
        self._tried_ms: int | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0

    async def find(self, key_id: str | None, size: int) -> KeySet:
        """The keys that a token of so many bytes is checked with. Raises LoginRefused if there are none yet."""
        is_known = self._has(key_id)
        if self._should_fetch(is_known=is_known):
            self._tried_ms = self._clock.now_ms()
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        if not is_known and self._fetching is not None:
            await self._wait(self._fetching, size)
        if self._keys is None:
            raise LoginRefused("there are no keys to check the token's signature with")
        return self._keys

    def _has(self, key_id: str | None) -> bool:
        return self._keys is not None and (key_id is None or any(key.kid == key_id for key in self._keys))

    def _should_fetch(self, *, is_known: bool) -> bool:
        now = self._clock.now_ms()
        if self._fetching is not None or (self._tried_ms is not None and now - self._tried_ms < self._backoff_ms):
            return False
        return not is_known or now - self._fetched_ms >= self._refresh_ms

    async def _wait(self, fetching: asyncio.Task[None], size: int) -> None:
        if self._waiting + size > MOST_WAITING:
            raise LoginRefused("too many others wait for the keys of the issuer")
        self._waiting += size
        try:
            await asyncio.wait((fetching,), timeout=MOST_SECONDS)
        finally:
            self._waiting -= size

    async def _fetch(self) -> None:
        began = self._clock.now_ms()
        try:
            document = await in_daemon_thread("jwks", self._fetch_document, self._url)
            self._keys, self._fetched_ms = read_keys(document), began
        except DocumentUnavailable as error:
            logger.error("The keys of OAUTHBEARER tokens cannot be fetched from %s: %s", self._url, error)
        finally:
            self._fetching = None


def read_keys(data: bytes) -> KeySet:
    """The public keys of a JWKS document; raises DocumentUnavailable."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        found = json.loads(data)["keys"]
        public = [key for key in found if key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig"]
        if not public:
            raise DocumentUnavailable("it has no key that signatures can be checked with")
        return KeySet.import_key_set({"keys": public})
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DocumentUnavailable(f"it is no JWKS document: {type(error).__name__}") from None
