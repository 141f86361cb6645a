"""How many delegation tokens are stored, how large they are, and how many readings of all of them go on at a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from barnabas.broker.security.delegation_tokens import MOST_READS, MOST_RENEWERS, DelegationTokens
from barnabas.machines.security import delegation_tokens as rules
from barnabas.metadata.delegation_tokens import DelegationTokenNode, DelegationTokensNode
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.model.clock import ManualClock
from barnabas.model.errors import DelegationTokenNotFound, PolicyViolation, RequestTimedOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from barnabas.metadata.stores.store import StoredNode

MOST = 3
SETTINGS = {
    "delegation.token.max.lifetime.ms": 1_000_000,
    "delegation.token.expiry.time.ms": 100_000,
    "delegation.token.max.per.owner": MOST,
}
ALICE = rules.TokenParties("User:alice", "User:alice", ())
BOB = rules.TokenParties("User:bob", "User:bob", ())


class Rig(NamedTuple):
    """The tokens of a broker, the tree that they are in, and the time."""

    tokens: DelegationTokens
    store: SqliteStore
    clock: ManualClock

    async def stored_ids(self) -> set[str]:
        return {node.path.rpartition("/")[2] for node in await self.store.subtree(DelegationTokensNode.path)}


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Rig]:
    settings: Any = SimpleNamespace(number=SETTINGS.__getitem__)
    store, clock = SqliteStore(folder / "metadata"), ManualClock()
    await store.start()
    try:
        yield Rig(DelegationTokens("key", settings, lambda: store, clock), store, clock)
    finally:
        await store.close()


async def test_tokens_that_expired_count_until_they_are_removed(tmp_path: Path) -> None:
    """Who had tokens made for a millisecond could have any number of them stored, until the controller looked."""
    async with running(tmp_path) as rig:
        of_alice = await rig.tokens.create(ALICE, -1)
        for _ in range(5 * MOST):
            newest = await rig.tokens.create(BOB, 1)
            rig.clock.advance(2)
            assert len(await rig.stored_ids()) <= 1 + MOST
        assert {of_alice.token_id, newest.token_id} <= await rig.stored_ids()


async def test_tokens_that_are_accepted_make_no_room(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        expired, *others = [await rig.tokens.create(BOB, lifetime) for lifetime in (1, -1, -1)]
        rig.clock.advance(1)
        with pytest.raises(PolicyViolation, match="User:bob has 3 delegation tokens"):
            await rig.tokens.create(BOB, -1)
        assert expired.token_id in await rig.stored_ids(), "its last millisecond is not over"
        rig.clock.advance(1)
        new = await rig.tokens.create(BOB, -1)
        assert await rig.stored_ids() == {each.token_id for each in (*others, new)}
        with pytest.raises(PolicyViolation):
            await rig.tokens.create(BOB, -1)


async def test_an_expired_token_that_changes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker, whose clock is behind, may renew it."""
    async with running(tmp_path) as rig:
        token, *_ = [await rig.tokens.create(BOB, lifetime) for lifetime in (5, -1, -1)]
        rig.clock.advance(10)
        later = rules.renew(token, "User:bob", 4, rules.TokenTimes(5, 5), token.issued_ms)
        read = rig.store.subtree

        async def read_before_it_changes(path: str) -> list[StoredNode]:
            found = await read(path)
            await rig.store.set(DelegationTokenNode.path(token.token_id), DelegationTokenNode.encode(later))
            return found

        monkeypatch.setattr(rig.store, "subtree", read_before_it_changes)
        with pytest.raises(PolicyViolation):
            await rig.tokens.create(BOB, -1)
        monkeypatch.undo()
        assert token.token_id in await rig.stored_ids()


async def test_creations_at_once_keep_within_the_limit(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        made = await asyncio.gather(*(rig.tokens.create(BOB, -1) for _ in range(20)), return_exceptions=True)
        assert len(await rig.stored_ids()) == MOST
    assert sum(isinstance(each, PolicyViolation) for each in made) == 20 - MOST


@pytest.mark.parametrize("brokers", [1, 3])
async def test_renewals_at_once_are_all_heard(tmp_path: Path, brokers: int) -> None:
    """Some were told that there is no such token: of those that read it together one alone could write it."""
    async with running(tmp_path) as rig, contextlib.AsyncExitStack() as others:
        rigs = [rig, *[await others.enter_async_context(running(tmp_path)) for _ in range(brokers - 1)]]
        tokens = [each.tokens for each in rigs]
        hmac = rig.tokens.hmac(await rig.tokens.create(BOB, -1))
        renewals = [tokens[number % brokers].renew(hmac, "User:bob", number) for number in range(30)]
        assert len(await asyncio.gather(*renewals)) == 30
        ends = [tokens[number % brokers].expire(hmac, "User:bob", -1) for number in range(5)]
        ended = await asyncio.gather(*ends, return_exceptions=True)
        assert sorted(type(each).__name__ for each in ended) == [*["DelegationTokenNotFound"] * 4, "int"]
        assert await rig.stored_ids() == set()


async def test_a_token_that_others_change_all_the_time_is_not_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as rig:
        token = await rig.tokens.create(BOB, -1)
        find = rig.store.find

        async def find_before_it_changes(path: str) -> StoredNode | None:
            found = await find(path)
            await rig.store.set(path, DelegationTokenNode.encode(token))
            return found

        monkeypatch.setattr(rig.store, "find", find_before_it_changes)
        with pytest.raises(RequestTimedOut):
            await rig.tokens.renew(rig.tokens.hmac(token), "User:bob", 1)


async def test_a_token_names_each_renewer_once_and_few_of_them(tmp_path: Path) -> None:
    renewers = tuple(f"User:{number}" for number in range(MOST_RENEWERS + 1))
    async with running(tmp_path) as rig:
        token = await rig.tokens.create(BOB._replace(renewers=renewers[:-1] * 70), -1)
        assert token.renewers == renewers[:-1]
        with pytest.raises(PolicyViolation, match="100 renewers"):
            await rig.tokens.create(BOB._replace(renewers=renewers), -1)
        with pytest.raises(PolicyViolation, match="4096 bytes"):
            await rig.tokens.create(BOB._replace(renewers=("User:" + "b" * 4096,)), -1)
        assert await rig.stored_ids() == {token.token_id}


@pytest.mark.parametrize("request_name", ["describe", "renew"])
async def test_going_over_all_tokens_takes_two_threads_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    """Each request took another thread of those that all parts of a broker share."""
    arrived, go_on = threading.Semaphore(0), threading.Event()

    def wait(*_: object, **__: object) -> None:
        arrived.release()
        assert go_on.wait(30)

    monkeypatch.setattr(rules, "find_by_hmac", wait)
    async with running(tmp_path) as rig:
        await rig.tokens.create(BOB, -1)

        async def ask() -> None:
            if request_name == "describe":
                await rig.tokens.visible("User:somebody", None, wait)  # type: ignore[arg-type]
            else:
                with pytest.raises(DelegationTokenNotFound):
                    await rig.tokens.renew(b"", "User:bob", 1)

        asked = [asyncio.create_task(ask()) for _ in range(MOST_READS)]
        try:
            for _ in asked:
                assert await asyncio.to_thread(arrived.acquire, timeout=30)
            assert rig.tokens._reads.locked(), "whoever asks now has to wait"
        finally:
            go_on.set()
            await asyncio.gather(*asked)


async def test_a_creation_decodes_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    decode = DelegationTokenNode.decode

    def noted(path: str, data: bytes) -> Any:
        decoded.append(path)
        return decode(path, data)

    monkeypatch.setattr(DelegationTokenNode, "decode", noted)
    async with running(tmp_path) as rig:
        for number in range(5):
            await rig.tokens.create(BOB._replace(owner=f"User:{number}"), -1)
        await rig.tokens.visible("User:bob", None, lambda _: True)
    assert len(decoded) == len(set(decoded)) == 5
