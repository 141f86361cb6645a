"""The delegation tokens of a cluster, in the metadata tree.

They are read when they are needed, and written by whichever broker is asked: every broker knows at once what was made,
renewed and expired. Logins by token are rare, and at most `MOST_LOOKUPS` of them read the tree at a time, since anybody
can name a token.

Every user may have tokens made for himself, and each is stored for days. So the tokens of an owner that are stored have
a limit, expired or not, and each names few renewers. Brokers do not agree about creations: those of several brokers at
once may go beyond the limit by some. Where all tokens are read, threads go through them, `MOST_READS` at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

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

T = TypeVar("T")

logger = logging.getLogger(__name__)

MOST_LOOKUPS: Final = 16
MOST_READS: Final = 2
"""Readings of all tokens at a time."""
LARGEST: Final = 4 * 1024
"""Bytes that a token takes in the tree, with the names of its renewers."""
MOST_RENEWERS: Final = 100
"""Each is some 60 bytes of memory in every broker, and twice that in each description of the token."""
ATTEMPTS: Final = 20
"""To change a token that other brokers change at the same time."""
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
        self._creating = asyncio.Lock()
        """Held from the counting of an owner's tokens until the new one is stored."""
        self._changing = asyncio.Lock()
        """Held while a token is changed, for of many changes of one token at once one alone would be written."""
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
        token_id = secrets.token_urlsafe(ID_BYTES)
        async with self._creating:
            token = rules.create(token_id, parties, lifetime_ms, self._times, self._clock.now_ms())
            data = _encode(token)
            await self._make_room(parties.owner)
            async with _asking():
                await self._store().create(DelegationTokenNode.path(token_id), data, parents=True)
        logger.info("Made a delegation token for %s, as %s asked.", parties.owner, parties.requester)
        return token

    async def _make_room(self, owner: str) -> None:
        """Remove as many expired tokens of an owner as one more needs; raises PolicyViolation if that is not enough."""
        most = self._settings.number("delegation.token.max.per.owner")
        stored = await self._read_all(partial(rules.of_owner, owner=owner))
        now, excess = self._clock.now_ms(), len(stored) + 1 - most
        for token in stored:
            if excess <= 0:
                break
            if token.is_expired(now) and await self._remove(token):
                excess -= 1
        if excess > 0:
            raise PolicyViolation(f"{owner} has {len(stored)} delegation tokens, of at most {most}: let some expire.")

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
        return await self._read_all(lambda tokens: rules.visible(tokens, principal, owners, may_describe))

    async def _change(self, hmac: bytes, decide: Callable[[TokenInfo, int], TokenInfo | None]) -> int:
        """Replace a token by what is decided of it as it is; gives until when it is accepted then."""
        found = await self._read_all(partial(rules.find_by_hmac, wanted=hmac, key=self._key))
        if found is None:
            raise _not_found()
        async with self._changing:
            for _ in range(ATTEMPTS):
                read = await self._read(found.token_id)
                if read is None:
                    raise _not_found()
                before, version = read
                now = self._clock.now_ms()
                after = decide(before, now)
                with contextlib.suppress(BadVersion, NoNode):
                    await self._write(before.token_id, after, version)
                    return now if after is None else after.expires_ms
        raise RequestTimedOut("Other brokers change the delegation token all the time.")

    async def _read(self, token_id: str) -> tuple[TokenInfo, int] | None:
        """A token as it is, with the version of its node; None if it is gone."""
        path = DelegationTokenNode.path(token_id)
        async with _asking():
            node = await self._store().find(path)
            return None if node is None else (DelegationTokenNode.decode(path, node.data), node.version)

    async def _write(self, token_id: str, after: TokenInfo | None, version: int) -> None:
        """Replace or remove a token, if its node has this version. Raises BadVersion, NoNode."""
        path = DelegationTokenNode.path(token_id)
        async with _asking():
            store = self._store()
            if after is None:
                await store.delete(path, version)
            else:
                await store.set(path, DelegationTokenNode.encode(after), version)

    async def _read_all(self, choose: Callable[[list[TokenInfo]], T]) -> T:
        """What `choose` finds in all tokens. It runs in a thread."""
        async with self._reads:
            async with _asking():
                nodes = await self._store().subtree(DelegationTokensNode.path)
            return await asyncio.to_thread(lambda: choose(self._decode(nodes)))

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
        for token in await self._read_all(partial(rules.expired, now_ms=now)):
            await self._remove(token)

    async def _remove(self, token: TokenInfo) -> bool:
        """Remove a token that is still what it was; whether it is gone, by whomever."""
        read = await self._read(token.token_id)
        if read is None:
            return True
        now, version = read
        if now != token:
            return False
        try:
            await self._write(token.token_id, None, version)
        except NoNode:
            return True
        except BadVersion:
            return False
        return True

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


def _not_found() -> DelegationTokenNotFound:
    return DelegationTokenNotFound("There is no such delegation token.")


def _encode(token: TokenInfo) -> bytes:
    """What is stored of a new token. Raises PolicyViolation for too much."""
    if len(token.renewers) > MOST_RENEWERS:
        raise PolicyViolation(f"A delegation token has at most {MOST_RENEWERS} renewers.")
    data = DelegationTokenNode.encode(token)
    if len(data) > LARGEST:
        raise PolicyViolation(f"A delegation token takes at most {LARGEST} bytes with the names of its renewers.")
    return data


@contextlib.asynccontextmanager
async def _asking() -> AsyncIterator[None]:
    """Turn what a store that cannot be reached raises into what a client understands."""
    try:
        yield
    except (BadVersion, NoNode):
        raise
    except StoreError as error:
        raise RequestTimedOut(f"The metadata store does not answer: {error}") from error
