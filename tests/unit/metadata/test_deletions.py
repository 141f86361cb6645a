"""Records of deleted topics: written with the deletion, whoever finishes it, and bounded in number."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.controller import Controller
from barnabas.machines.controller.image import Endpoint
from barnabas.machines.controller.requests import NewTopic
from barnabas.metadata import deletions
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.sqlite import SqliteStore
from barnabas.metadata.transfer import export_tree, import_tree
from barnabas.metadata.znodes import DeletedTopicNode, DeletedTopicsNode, DeletionNode, Registration, SecretNode
from barnabas.model.clock import ManualClock
from barnabas.model.ids import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from uuid import UUID

    import pytest

REGISTRATION = Registration(broker_id=1, endpoints={"PLAINTEXT": Endpoint("localhost", 9092)})


def run(folder: Path, story: Callable[[Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        controller = Controller(lambda: SqliteStore(folder / "metadata"), MetadataCache(), ManualClock())
        await controller.open()
        try:
            await controller.start(REGISTRATION)
            await story(controller)
        finally:
            await controller.stop()

    asyncio.run(main())


async def make(controller: Controller, name: str) -> UUID:
    made = (await controller.create_topics([NewTopic(name, 1, 1)]))[name]
    assert not isinstance(made, Exception)
    return made.topic_id


async def records(controller: Controller) -> set[str]:
    return set(await controller.store.children(DeletedTopicsNode.path))


def test_a_deletion_is_recorded(tmp_path: Path) -> None:
    async def story(controller: Controller) -> None:
        topic_id = await make(controller, "t")
        assert not await records(controller)
        await controller.delete_topics(["t"])
        assert await records(controller) == {uuid_to_text(topic_id)}

    run(tmp_path, story)


def test_one_that_was_cut_short_is_recorded_by_who_finishes_it(tmp_path: Path) -> None:
    ids: list[UUID] = []

    async def before(controller: Controller) -> None:
        ids.append(await make(controller, "t"))
        await controller.store.create(DeletionNode.path("t"))

    async def after(controller: Controller) -> None:
        assert "t" not in controller.cache.image.topics
        assert await records(controller) == {uuid_to_text(ids[0])}

    run(tmp_path, before)
    run(tmp_path, after)
    run(tmp_path, after)


def test_there_are_never_too_many_records_and_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "MOST", 5)
    monkeypatch.setattr(deletions, "_KEPT", 3)
    monkeypatch.setattr("barnabas.broker.office._DELETIONS", 1)

    async def story(controller: Controller) -> None:
        ids = []
        for number in range(7):
            ids.append(await make(controller, f"t{number}"))
            await controller.delete_topics([f"t{number}"])
            assert len(await records(controller)) <= 5
        assert await deletions.recorded(controller.store, ids) == {*ids[-4:]}

    run(tmp_path, story)


def test_records_go_with_an_exported_tree_and_the_secret_does_not(tmp_path: Path) -> None:
    async def story(controller: Controller) -> None:
        topic_id = await make(controller, "t")
        await controller.delete_topics(["t"])
        target = SqliteStore(tmp_path / "target")
        await target.start()
        try:
            await import_tree(target, await export_tree(controller.store))
            assert await target.find(DeletedTopicNode.path(topic_id)) is not None
            assert await target.find(SecretNode.path) is None
        finally:
            await target.close()

    run(tmp_path, story)
