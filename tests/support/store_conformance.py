"""What every MetadataStore must do: one suite, run over SQLite by the unit tests and over a real ZooKeeper beside them.

A test class derives from `StoreConformance` and has a fixture `tree` that gives a `Tree`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from barnabas.metadata.stores.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    Set,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

DEADLINE = 60.0


class Tree(Protocol):
    """An empty tree that any number of stores can be opened on."""

    def store(self) -> MetadataStore:
        """A new store that is not started yet."""
        ...

    async def expire(self, store: MetadataStore) -> None:
        """End a store's session behind its back."""
        ...


class Stores:
    """Opens stores of one tree and closes them at the end of a test."""

    def __init__(self, tree: Tree, closing: contextlib.AsyncExitStack) -> None:
        self._tree = tree
        self._closing = closing

    async def open(self) -> MetadataStore:
        store = self._tree.store()
        await store.start()
        self._closing.push_async_callback(store.close)
        return store

    async def expire(self, store: MetadataStore) -> None:
        await self._tree.expire(store)


def scenario(test: Callable[[Any, Stores], Awaitable[None]]) -> Callable[[Any, Tree], Coroutine[Any, Any, None]]:
    """Give a test what opens stores, and close these after it."""

    @functools.wraps(test)
    async def run(self: Any, tree: Tree) -> None:
        async with asyncio.timeout(DEADLINE), contextlib.AsyncExitStack() as closing:
            await test(self, Stores(tree, closing))

    del run.__wrapped__  # pytest would look for the fixtures of the coroutine
    return run


class StoreConformance:
    @scenario
    async def test_reads_back_what_was_created(self, stores: Stores) -> None:
        store = await stores.open()
        assert await store.create("/a", b"1") == "/a"
        node = await store.get("/a")
        assert (node.path, node.data, node.version, node.owner) == ("/a", b"1", 0, 0)
        assert node.czxid == node.mzxid > 0
        assert await store.find("/a") == node
        assert await store.find("/b") is None
        with pytest.raises(NoNode):
            await store.get("/b")

    @scenario
    async def test_needs_a_parent_unless_asked_to_make_it(self, stores: Stores) -> None:
        store = await stores.open()
        with pytest.raises(NoNode):
            await store.create("/a/b/c")
        await store.create("/a/b/c", b"x", parents=True)
        await store.create("/a/b/d", parents=True)
        assert await store.children("/a/b") == ["c", "d"]
        with pytest.raises(NodeExists):
            await store.create("/a/b/c", parents=True)

    @scenario
    async def test_raises_versions_and_refuses_old_ones(self, stores: Stores) -> None:
        store = await stores.open()
        await store.create("/a", b"0")
        assert await store.set("/a", b"1", 0) == 1
        assert await store.set("/a", b"2") == 2
        with pytest.raises(BadVersion) as failed:
            await store.set("/a", b"3", 1)
        assert failed.value.path == "/a"
        node = await store.get("/a")
        assert (node.data, node.version) == (b"2", 2)
        assert node.mzxid > node.czxid
        with pytest.raises(BadVersion):
            await store.delete("/a", 1)
        with pytest.raises(NoNode):
            await store.set("/b", b"")
        await store.delete("/a", 2)
        with pytest.raises(NoNode):
            await store.delete("/a")

    @scenario
    async def test_a_node_made_again_has_a_new_creation_id(self, stores: Stores) -> None:
        store = await stores.open()
        ids = []
        for _ in range(3):
            await store.create("/a")
            ids.append((await store.get("/a")).czxid)
            await store.delete("/a")
        assert ids == sorted(set(ids))

    @scenario
    async def test_keeps_a_node_with_children(self, stores: Stores) -> None:
        store = await stores.open()
        await store.create("/a/b", parents=True)
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")
        assert await store.find("/a") is None

    @scenario
    async def test_names_children_sorted(self, stores: Stores) -> None:
        store = await stores.open()
        for name in ("/p/b", "/p/a", "/p/a/deep", "/p/a-b", "/p/a.b"):
            await store.create(name, parents=True)
        assert await store.children("/p") == ["a", "a-b", "a.b", "b"]
        assert await store.children("/p/b") == []
        assert "p" in await store.children("/")
        with pytest.raises(NoNode):
            await store.children("/nothing")

    @scenario
    async def test_reads_a_whole_subtree(self, stores: Stores) -> None:
        store = await stores.open()
        paths = ["/t", "/t/a", "/t/a/partitions", "/t/a/partitions/0", "/t/a-b", "/t/ä", "/tt"]
        await store.multi([Create(path, path.encode()) for path in paths])
        nodes = await store.subtree("/t")
        assert [node.path for node in nodes] == sorted(paths[1:-1])
        assert all(node.data == node.path.encode() for node in nodes)
        assert nodes[0] == await store.get(nodes[0].path)
        assert await store.subtree("/t/a-b") == []
        assert await store.subtree("/nothing") == []
        assert {node.path for node in await store.subtree("/")} >= set(paths)

    @scenario
    async def test_reads_many_nodes(self, stores: Stores) -> None:
        store = await stores.open()
        paths = [f"/n{number}" for number in range(2500)]
        for at in range(0, 2500, 500):
            await store.multi([Create(path, path.encode()) for path in paths[at : at + 500]])
        wanted = ["/nothing", *reversed(paths), "/n3"]
        found = await store.find_many(wanted)
        assert found[0] is None
        assert [node.data.decode() for node in found[1:] if node is not None] == wanted[1:]
        assert found[-1] == await store.get("/n3")
        assert await store.find_many([]) == []

    @scenario
    async def test_numbers_sequential_nodes(self, stores: Stores) -> None:
        store = await stores.open()
        await store.create("/q")
        made = [await store.create("/q/n_", sequential=True) for _ in range(3)]
        assert made == sorted(set(made))
        assert all(len(path) == len("/q/n_") + 10 and path[-10:].isdigit() for path in made)
        await store.delete(made[-1])
        assert await store.create("/q/n_", sequential=True) > made[-1]

    @scenario
    async def test_multi_does_everything(self, stores: Stores) -> None:
        store = await stores.open()
        await store.create("/epoch", b"1")
        await store.create("/old")
        await store.multi(
            [Check("/epoch", 0), Create("/a", b"a"), Create("/a/b", b"b"), Set("/epoch", b"2", 0), Delete("/old", 0)]
        )
        assert (await store.get("/a/b")).data == b"b"
        assert (await store.get("/epoch")).data == b"2"
        assert await store.find("/old") is None
        await store.multi([])

    @pytest.mark.parametrize(
        ("last", "error"),
        [
            (Check("/epoch", 1), BadVersion),
            (Check("/nothing"), NoNode),
            (Create("/epoch"), NodeExists),
            (Create("/nothing/b"), NoNode),
            (Set("/epoch", b"", 3), BadVersion),
            (Delete("/epoch", 3), BadVersion),
            (Delete("/parent"), NotEmpty),
        ],
    )
    async def test_multi_does_nothing_if_one_fails(self, tree: Tree, last: Operation, error: type[Exception]) -> None:
        @scenario
        async def run(_: object, stores: Stores) -> None:
            store = await stores.open()
            await store.create("/epoch", b"1")
            await store.create("/parent/child", parents=True)
            with pytest.raises(error):
                await store.multi([Create("/new"), last, Set("/epoch", b"2")])
            assert await store.find("/new") is None
            assert (await store.get("/epoch")).version == 0

        await run(self, tree)

    @scenario
    async def test_an_ephemeral_node_goes_with_its_store(self, stores: Stores) -> None:
        a, b = await stores.open(), await stores.open()
        await a.create("/parent")
        await a.create("/parent/e", b"a", ephemeral=True)
        await a.multi([Create("/f", ephemeral=True)])
        assert (await b.get("/parent/e")).owner == a.session_id != 0
        with pytest.raises(NodeExists):
            await b.create("/parent/e", ephemeral=True)
        with pytest.raises(NodeExists):
            await b.multi([Create("/f", ephemeral=True)])
        with pytest.raises(NoChildrenForEphemerals):
            await b.create("/parent/e/child")
        await a.close()
        assert await b.find("/parent/e") is None
        assert await b.find("/f") is None
        assert await b.find("/parent") is not None
        await b.create("/parent/e", ephemeral=True)

    @scenario
    async def test_an_expired_session_can_do_nothing(self, stores: Stores) -> None:
        a, b = await stores.open(), await stores.open()
        await a.create("/e", ephemeral=True)
        expired = asyncio.Event()
        a.on_expiry(expired.set)
        await stores.expire(a)
        await expired.wait()
        assert await b.find("/e") is None
        with pytest.raises(SessionExpired):
            await a.create("/x")
        with pytest.raises(SessionExpired):
            await a.get("/")
        assert await b.find("/x") is None

    @scenario
    async def test_a_closed_store_is_unavailable(self, stores: Stores) -> None:
        store = await stores.open()
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.get("/")

    @scenario
    async def test_sees_what_others_wrote(self, stores: Stores) -> None:
        a, b = await stores.open(), await stores.open()
        await a.create("/a", b"1")
        await b.sync()
        assert (await b.get("/a")).data == b"1"
        await b.set("/a", b"2", 0)
        with pytest.raises(BadVersion):
            await a.set("/a", b"3", 0)

    @scenario
    async def test_a_watch_tells_of_every_kind_of_change(self, stores: Stores) -> None:
        a, b = await stores.open(), await stores.open()
        for writer in (a, b):
            told = asyncio.Event()
            watch = a.watch("/w", told.set)
            await a.find("/w")
            changes: list[Callable[[], Awaitable[object]]] = [
                functools.partial(writer.create, "/w"),
                functools.partial(writer.set, "/w", b"new"),
                functools.partial(writer.create, "/w/child"),
                functools.partial(writer.delete, "/w/child"),
                functools.partial(writer.delete, "/w"),
            ]
            for change in changes:
                await change()
                await told.wait()
                await a.find("/w")
                told.clear()
            watch.cancel()

    @scenario
    async def test_a_watch_never_misses_the_last_change(self, stores: Stores) -> None:
        a, b = await stores.open(), await stores.open()
        await b.create("/w", b"0")
        told = asyncio.Event()
        a.watch("/w", told.set)
        seen = (await a.get("/w")).data

        async def change() -> None:
            for number in range(1, 31):
                await b.set("/w", str(number).encode())

        changing = asyncio.create_task(change())
        while seen != b"30":
            await told.wait()
            told.clear()
            seen = (await a.get("/w")).data
        await changing

    @scenario
    async def test_a_watch_is_silent_about_other_nodes_and_after_it_is_cancelled(self, stores: Stores) -> None:
        store = await stores.open()
        await store.create("/w")
        calls: list[str] = []
        watch = store.watch("/w", lambda: calls.append("w"))
        other = asyncio.Event()
        store.watch("/other", other.set)
        await store.create("/w2")
        await store.create("/other")
        await other.wait()
        assert calls == []
        watch.cancel()
        other.clear()
        await store.set("/w", b"1")
        await store.set("/other", b"1")
        await other.wait()
        assert calls == []

    @scenario
    async def test_a_watch_tells_that_an_ephemeral_node_went(self, stores: Stores) -> None:
        a, b = await stores.open(), await stores.open()
        await a.create("/e", ephemeral=True)
        told = asyncio.Event()
        b.watch("/e", told.set)
        await b.get("/e")
        await a.close()
        await told.wait()
        assert await b.find("/e") is None

    @scenario
    async def test_one_of_many_wins(self, stores: Stores) -> None:
        contenders = [await stores.open() for _ in range(8)]

        async def campaign(store: MetadataStore, place: str) -> bool:
            try:
                await store.create(place, ephemeral=True)
            except NodeExists:
                return False
            return True

        for term in range(5):
            place = f"/leader-{term}"
            assert sum(await asyncio.gather(*(campaign(store, place) for store in contenders))) == 1

    @scenario
    async def test_refuses_what_is_no_path(self, stores: Stores) -> None:
        store = await stores.open()
        for path in ("", "a", "/", "/a/", "//a", "/a/../b", "/a\0b"):
            with pytest.raises(ValueError, match="no path"):
                await store.create(path)
            with pytest.raises(ValueError, match="no path"):
                await store.multi([Create(path)])
