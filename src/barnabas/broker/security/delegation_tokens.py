"""The delegation tokens of a cluster, in the metadata tree.

They are read when they are needed, and written by whichever broker is asked: every broker knows at once what was made,
renewed and expired. Logins by token are rare, and at most `MOST_LOOKUPS` of them read the tree at a time, since anybody
can name a token.

Every user may have tokens made for himself, and each stays for days. So the tokens of an owner have a limit; and where
all tokens are read, threads go through them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.security.login_threads import LoginThreads
from barnabas.machines.security import delegation_tokens as rules
from barnabas.machines.security.login_step import Identity, LoginRefused
from barnabas.machines.security.scram import ScramCredential
from barnabas.metadata.delegation_tokens import DelegationTokenNode, DelegationTokensNode
from barnabas.metadata.stores.store import BadVersion, NoNode, StoreError
from barnabas.metadata.znodes import MalformedNode
from barnabas.model.errors import DelegationTokenNotFound, PolicyViolation, RequestTimedOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from collections.abc import Set as AbstractSet

    from barnabas.broker.settings import Settings
    from barnabas.machines.security.delegation_tokens import TokenInfo
    from barnabas.machines.security.scram import ScramMechanism, ScramOpening
    from barnabas.metadata.stores.store import MetadataStore, StoredNode
    from barnabas.model.clock import Clock

logger = logging.getLogger(__name__)

MOST_LOOKUPS: Final = 16
MOST_READS: Final = 2
"""Readings of all tokens at a time."""
LARGEST: Final = 64 * 1024
"""Bytes that a token takes in the tree: it names those who may renew it."""
ATTEMPTS: Final = 5
"""To change a token that others change at the same time."""
ID_BYTES: Final = 16


class DelegationTokens:
    """Makes, renews, expires and finds tokens, whose passwords are made with `key`.

    `store` raises StoreError while it is not open.
    """

    def __init__(self, key: str, settings: Settings, store: Callable[[], MetadataStore], clock: Clock) -> None:
        self._key = key
        self._settings = settings
        self._store = store
        self._clock = clock
        self._lookups = asyncio.Semaphore(MOST_LOOKUPS)
        self._reads = asyncio.Semaphore(MOST_READS)
        self._known: dict[str, tuple[bytes, TokenInfo]] = {}
        """Tokens that were read, by their paths, and what stood there: few change between two readings."""
        self._threads = LoginThreads("delegation token")

    @property
    def _times(self) -> rules.TokenTimes:
        number = self._settings.number
        return rules.TokenTimes(number("delegation.token.max.lifetime.ms"), number("delegation.token.expiry.time.ms"))

    def hmac(self, token: TokenInfo) -> bytes:
        """The password of a token."""
        return rules.token_hmac(token.token_id, self._key)

    async def create(self, parties: rules.TokenParties, lifetime_ms: int) -> TokenInfo:
        """Make a token. Raises PolicyViolation for one that is too large, or one too many."""
        token_id, now = secrets.token_urlsafe(ID_BYTES), self._clock.now_ms()
        token = rules.create(token_id, parties, lifetime_ms, self._times, now)
        data = DelegationTokenNode.encode(token)
        if len(data) > LARGEST:
            raise PolicyViolation(f"A delegation token takes at most {LARGEST} bytes with the names of its renewers.")
        most = self._settings.number("delegation.token.max.per.owner")
        if rules.count_accepted(await self._all(), parties.owner, now) >= most:
            raise PolicyViolation(f"{parties.owner} has {most} delegation tokens: let some of them expire.")
        async with _asking():
            await self._store().create(DelegationTokenNode.path(token_id), data, parents=True)
        logger.info("Made a delegation token for %s, as %s asked.", parties.owner, parties.requester)
        return token

    async def renew(self, hmac: bytes, principal: str, period_ms: int) -> int:
        """Have a token accepted for longer; gives until when."""
        return await self._change(hmac, lambda token, now: rules.renew(token, principal, period_ms, self._times, now))

    async def expire(self, hmac: bytes, principal: str, period_ms: int) -> int:
        """Have a token accepted until then, or no more; gives until when."""
        return await self._change(hmac, lambda token, now: rules.expire(token, principal, period_ms, now))

    async def visible(
        self, principal: str, owners: AbstractSet[str] | None, may_describe: Callable[[TokenInfo], bool]
    ) -> list[TokenInfo]:
        """The tokens that a principal is told of; `may_describe` is called in a thread."""
        return await asyncio.to_thread(rules.visible, await self._all(), principal, owners, may_describe)

    async def _change(self, hmac: bytes, decide: Callable[[TokenInfo, int], TokenInfo | None]) -> int:
        for _ in range(ATTEMPTS):
            tokens = await self._all()
            found = await asyncio.to_thread(rules.find_by_hmac, tokens, hmac, self._key)
            if found is None:
                break
            now = self._clock.now_ms()
            after = decide(found, now)
            with contextlib.suppress(BadVersion, NoNode):
                async with _asking():
                    await self._write(found, after)
                return now if after is None else after.expires_ms
        raise DelegationTokenNotFound("There is no such delegation token.")

    async def _write(self, before: TokenInfo, after: TokenInfo | None) -> None:
        """Replace a token, if it is what it was. Raises BadVersion, NoNode."""
        path, store = DelegationTokenNode.path(before.token_id), self._store()
        node = await store.get(path)
        if DelegationTokenNode.decode(path, node.data) != before:
            raise BadVersion(path)
        if after is None:
            await store.delete(path, node.version)
        else:
            await store.set(path, DelegationTokenNode.encode(after), node.version)

    async def _all(self) -> list[TokenInfo]:
        async with self._reads:
            async with _asking():
                nodes = await self._store().subtree(DelegationTokensNode.path)
            return await asyncio.to_thread(self._decode, nodes)

    def _decode(self, nodes: Iterable[StoredNode]) -> list[TokenInfo]:
        """The tokens in these nodes. Runs in a thread."""
        before = self._known
        known: dict[str, tuple[bytes, TokenInfo]] = {}
        for path, data, *_ in nodes:
            known_before = before.get(path)
            if known_before is not None and known_before[0] == data:
                known[path] = known_before
                continue
            try:
                known[path] = data, DelegationTokenNode.decode(path, data)
            except MalformedNode as error:
                logger.error("A delegation token cannot be read: %s", error)
        self._known = known
        return [token for _, token in known.values()]

    async def remove_expired(self) -> None:
        """Remove the tokens that are accepted no more."""
        now = self._clock.now_ms()
        for token in await self._all():
            if token.is_expired(now):
                with contextlib.suppress(BadVersion, NoNode):
                    async with _asking():
                        await self._write(token, None)

    async def find_scram(
        self, mechanism: ScramMechanism, opening: ScramOpening, decoy: ScramCredential
    ) -> tuple[ScramCredential, Identity | None]:
        """What a client has to know to log in with a token, and who it is then; a decoy if there is no such token."""
        async with self._lookups:
            token = await self._find(opening.name)
            if token is None or token.is_expired(self._clock.now_ms()):
                return decoy, None
            password = rules.token_password(token.token_id, self._key)
            credential = await self._threads.run(
                partial(ScramCredential.of_password, mechanism, password, decoy.salt), len(opening.name)
            )
        kind, _, name = token.owner.partition(":")
        return credential, Identity(name, kind=kind, is_token=True, expires_ms=token.expires_ms)

    async def _find(self, token_id: str) -> TokenInfo | None:
        if not DelegationTokenNode.is_id(token_id):
            return None
        path = DelegationTokenNode.path(token_id)
        try:
            node = await self._store().find(path)
            return None if node is None else DelegationTokenNode.decode(path, node.data)
        except StoreError as error:
            raise LoginRefused(f"the delegation token cannot be looked up: {error}") from error


@contextlib.asynccontextmanager
async def _asking() -> AsyncIterator[None]:
    """Turn what a store that cannot be reached raises into what a client understands."""
    try:
        yield
    except (BadVersion, NoNode):
        raise
    except StoreError as error:
        raise RequestTimedOut(f"The metadata store does not answer: {error}") from error
