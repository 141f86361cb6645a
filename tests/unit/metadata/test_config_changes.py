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
    from collections.abc import AsyncIterator
    from pathlib import Path

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
