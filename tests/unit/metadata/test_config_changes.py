"""Notes of changed settings: read once, in order, and everything is read again when some are missing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from barnabas.machines.controller.image import ALL_BROKERS, ConfigResource
from barnabas.metadata import config_changes
from barnabas.metadata.config_changes import KEPT, ConfigChanges
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.znodes import ConfigChangesNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    import pytest

    from barnabas.metadata.stores.store import StoredNode

TOPIC, BROKER = ConfigResource.topic("t"), ConfigResource.broker(1)


@asynccontextmanager
async def a_store(folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder / "metadata")
    await store.start()
    try:
        await store.create(ConfigChangesNode.path, parents=True)
        yield store
    finally:
        await store.close()


async def test_what_a_note_names_is_read_once(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = ConfigChanges()
        await changes.skip(store)
        assert await changes.read(store) == ({}, False)
        await config_changes.write(store, {TOPIC: {"a": "1"}, BROKER: {"b": "2"}})
        assert await changes.read(store) == ({TOPIC: {"a": "1"}, BROKER: {"b": "2"}}, False)
        assert await changes.read(store) == ({}, False)
        await config_changes.write(store, {TOPIC: {"a": "3"}})
        assert await changes.read(store) == ({TOPIC: {"a": "3"}}, False)


async def test_who_never_looked_reads_everything(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        await config_changes.write(store, {TOPIC: {"a": "1"}, ALL_BROKERS: {"b": "2"}})
        changes = ConfigChanges()
        assert await changes.read(store) == ({TOPIC: {"a": "1"}, ALL_BROKERS: {"b": "2"}}, True)
        assert await changes.read(store) == ({}, False)
        changes.forget()
        assert (await changes.read(store))[1]


async def test_who_misses_notes_reads_everything(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = ConfigChanges()
        await changes.skip(store)
        await config_changes.write(store, {TOPIC: {"a": "1"}})
        for _ in range(KEPT):
            await config_changes.note(store, [BROKER])
        assert len(await store.children(ConfigChangesNode.path)) == KEPT
        assert await changes.read(store) == ({TOPIC: {"a": "1"}}, True)


async def test_who_cannot_read_a_note_or_finds_it_gone_reads_everything(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = ConfigChanges()
        await changes.skip(store)
        await config_changes.write(store, {TOPIC: {"a": "1"}})
        await store.create(ConfigChangesNode.prefix, b"of tomorrow", sequential=True)
        assert await changes.read(store) == ({TOPIC: {"a": "1"}}, True)
        assert await changes.read(store) == ({}, False)
        await config_changes.write(store, {TOPIC: {"a": "2"}})
        find_many = store.find_many

        async def find_none(paths: Sequence[str]) -> list[StoredNode | None]:
            store.find_many = find_many  # type: ignore[method-assign]
            return [None for _ in paths]

        store.find_many = find_none  # type: ignore[method-assign]
        assert await changes.read(store) == ({TOPIC: {"a": "2"}}, True)


async def test_to_forget_counts_also_while_notes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_store(tmp_path) as store:
        changes = ConfigChanges()
        await changes.skip(store)
        await config_changes.write(store, {TOPIC: {"a": "1"}})
        find_many = store.find_many

        async def find_and_forget(paths: Sequence[str]) -> list[StoredNode | None]:
            changes.forget()
            return await find_many(paths)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(store, "find_many", find_and_forget)
            assert await changes.read(store) == ({TOPIC: {"a": "1"}}, False)
        assert await changes.read(store) == ({TOPIC: {"a": "1"}}, True)


async def test_what_is_no_note_among_notes_is_left_alone(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = ConfigChanges()
        await changes.skip(store)
        odd = [f"{ConfigChangesNode.path}/{name}" for name in ("odd", "config_change_1x", "config_change_")]
        for path in odd:
            await store.create(path, b"mine")
        await config_changes.write(store, {TOPIC: {"a": "1"}})
        assert await changes.read(store) == ({TOPIC: {"a": "1"}}, True)
        await config_changes.write(store, {TOPIC: {"a": "2"}})
        assert await changes.read(store) == ({TOPIC: {"a": "2"}}, False)
        for _ in range(KEPT):
            await config_changes.note(store, [BROKER])
        assert None not in await store.find_many(odd)


async def test_a_resource_without_a_node_has_no_settings(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = ConfigChanges()
        await changes.skip(store)
        await config_changes.note(store, [TOPIC])
        assert await changes.read(store) == ({TOPIC: None}, False)


async def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    """Such as of several programs that add users or quotas to one store."""
    async with a_store(tmp_path) as store:

        async def add(key: str) -> None:
            await config_changes.edit(store, TOPIC, lambda kept: {**kept, key: "1"})

        await asyncio.gather(*(add(str(number)) for number in range(8)))
        await config_changes.edit(store, TOPIC, lambda _: None)
        configs, _ = await ConfigChanges().read(store)
        assert configs == {TOPIC: {str(number): "1" for number in range(8)}}


async def test_a_note_with_any_number_hides_none_after_it(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = ConfigChanges()
        await changes.skip(store)
        await config_changes.write(store, {TOPIC: {"a": "0"}})
        for number, name in enumerate(("2147483647", "9999999999", "1", "-000000001"), 1):
            await store.create(f"{ConfigChangesNode.prefix}{name}", b"?")
            await changes.read(store)
            await config_changes.write(store, {TOPIC: {"a": str(number)}})
            assert await changes.read(store) == ({TOPIC: {"a": str(number)}}, False)
            assert await changes.read(store) == ({}, False)


async def test_a_folder_that_is_made_anew_begins_anew(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = ConfigChanges()
        await config_changes.write(store, {TOPIC: {"a": "1"}})
        await changes.skip(store)
        for name in await store.children(ConfigChangesNode.path):
            await store.delete(f"{ConfigChangesNode.path}/{name}")
        await store.delete(ConfigChangesNode.path)
        await store.create(ConfigChangesNode.path)
        await config_changes.write(store, {TOPIC: {"a": "2"}})
        assert await changes.read(store) == ({TOPIC: {"a": "2"}}, True)
        await config_changes.write(store, {TOPIC: {"a": "3"}})
        assert await changes.read(store) == ({TOPIC: {"a": "3"}}, False)
