"""The conformance suite over a real ZooKeeper, and what only a server far away can do: go and come back."""

from __future__ import annotations

import asyncio
import builtins
import sys
import uuid
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]  # kazoo has no types

from barnabas.metadata.stores.bulk_reads import ReadMany
from barnabas.metadata.stores.store import Create, MetadataStore, StoreError, StoreRefused, StoreUnavailable
from barnabas.metadata.stores.zookeeper import Login, ZooKeeperStore
from barnabas.model.errors import StartupError
from tests.support.store_conformance import StoreConformance
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path


class ZooKeeperTree:
    def __init__(self, connect: str) -> None:
        self.connect = connect

    def store(self) -> ZooKeeperStore:
        return ZooKeeperStore(self.connect, session_timeout=10.0)

    async def expire(self, store: MetadataStore) -> None:
        """Take over the session by its id and password, and close it."""
        assert isinstance(store, ZooKeeperStore)
        thief = KazooClient(self.connect, client_id=store._client.client_id)
        await asyncio.to_thread(thief.start)
        await asyncio.to_thread(thief.stop)
        thief.close()


@pytest.fixture
def tree(chroot: str) -> ZooKeeperTree:
    return ZooKeeperTree(chroot)


class TestZooKeeper(StoreConformance):
    pass


async def test_goes_on_after_the_server_was_away(tmp_path: Path) -> None:
    server = ZooKeeper(tmp_path, longest_session_ms=60_000)
    port = server.port
    store, other = ZooKeeperStore(server.connect, session_timeout=60.0), ZooKeeperStore(server.connect)
    try:
        await store.start()
        await store.create("/e", b"1", ephemeral=True)
        session = store.session_id
        told = asyncio.Event()
        store.watch("/e", told.set)
        store.watch("/late", told.set)
        await store.get("/e")
        server.kill()
        waiting = asyncio.create_task(store.get("/e"))
        await told.wait()
        told.clear()
        server = ZooKeeper(tmp_path, port=port, longest_session_ms=60_000)
        await asyncio.wait([waiting])
        while waiting.exception() is not None:  # a connection broke: of the old server, or of one that starts
            assert isinstance(waiting.exception(), StoreUnavailable)
            waiting = asyncio.create_task(store.get("/e"))
            await asyncio.wait([waiting])
        assert (waiting.result().owner, store.session_id) == (session, session)

        await other.start()
        await other.set("/e", b"2")  # first: a watch that got lost with the connection tells without a change
        while not told.is_set():
            await other.create("/late", ephemeral=True, sequential=True)
            await asyncio.sleep(0.01)
        assert (await store.get("/e")).data == b"2"
    finally:
        await store.close()
        await other.close()
        server.kill()


@pytest.mark.parametrize("scheme", ["digest", "sasl"])
async def test_what_is_private_is_for_its_login_alone(zookeeper: ZooKeeper, scheme: str) -> None:
    login, path = Login(scheme, "broker", "secret"), f"/{uuid.uuid4().hex}"
    owner, friend = (ZooKeeperStore(zookeeper.connect + path, login=login, private=True) for _ in range(2))
    stranger = ZooKeeperStore(zookeeper.connect)
    stores = (owner, friend, stranger)
    for store in stores:
        await store.start()
    try:
        await owner.create("/kept", b"1")
        await owner.multi([Create("/also", b"2")])
        assert (await friend.get("/kept")).data == b"1"
        for name in ("", "/kept", "/also"):
            with pytest.raises(StoreRefused, match=r"does not let this broker use .*zookeeper\.auth\.username"):
                await stranger.get(path + name)
            with pytest.raises(StoreRefused, match="does not let this broker use"):
                await stranger.find_many(["/", path + name])
    finally:
        for store in stores:
            await store.close()


def test_a_server_that_comes_back_is_found_soon_however_long_it_was_away() -> None:
    retry = ZooKeeperStore("127.0.0.1:1")._client._conn_retry
    assert (retry.max_tries, retry.max_delay) == (-1, 1.0)


async def test_a_login_that_zookeeper_does_not_know_is_refused(chroot: str) -> None:
    store = ZooKeeperStore(chroot, login=Login("sasl", "broker", "wrong"), connect_timeout=5.0)
    with pytest.raises(StoreError):
        await store.start()
    await store.close()


async def test_a_server_that_cannot_read_many_nodes_at_once_is_too_old(
    chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReadMany, "type", 99)  # which no server knows, as servers before 3.6 do not know 22

    store = ZooKeeperStore(chroot)
    await store.start()
    try:
        with pytest.raises(StoreRefused, match=r"is older than 3\.6"):
            await store.find_many(["/"])
    finally:
        await store.close()


async def test_says_where_it_looked_for_a_server() -> None:
    store = ZooKeeperStore("127.0.0.1:1", connect_timeout=0.2)
    with pytest.raises(StoreUnavailable, match=r"no ZooKeeper answers at 127\.0\.0\.1:1 .*zookeeper\.connect"):
        await store.start()
    await store.close()


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_kazoo(name: str, *rest: object) -> object:
        if name.startswith("kazoo"):
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(builtins, "__import__", without_kazoo)
    for name in [name for name in sys.modules if name.startswith("kazoo")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StartupError, match=r"pip install 'kazoo\[sasl\]'"):
        ZooKeeperStore("localhost:2181")
