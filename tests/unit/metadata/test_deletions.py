"""Records of deleted topics: written with the deletion, whoever finishes it, and bounded in number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.controller.membership import ClusterMembership
from barnabas.machines.controller.image import Endpoint
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.metadata import deletions
from barnabas.metadata.images.cache import MetadataCache
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.topic_znodes import DeletedTopicNode, DeletedTopicsNode, DeletionNode
from barnabas.metadata.transfer import export_tree, import_tree
from barnabas.metadata.znodes import Registration, SecretNode
from barnabas.model.clock import ManualClock
from barnabas.model.ids import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from uuid import UUID

    import pytest

REGISTRATION = Registration(broker_id=1, endpoints={"PLAINTEXT": Endpoint("localhost", 9092)})


async def run(folder: Path, story: Callable[[ClusterMembership], Awaitable[None]]) -> None:
    async def main() -> None:
        member = ClusterMembership(lambda: SqliteStore(folder / "metadata"), MetadataCache(), ManualClock())
        await member.open()
        try:
            await member.start(REGISTRATION)
            await story(member)
        finally:
            await member.stop()

    await main()


async def make(member: ClusterMembership, name: str) -> UUID:
    made = (await member.controller.create_topics([TopicToCreate(name, 1, 1)]))[name]
    assert not isinstance(made, Exception)
    return made.topic_id


async def records(member: ClusterMembership) -> set[str]:
    return set(await member.store.children(DeletedTopicsNode.path))


async def test_a_deletion_is_recorded(tmp_path: Path) -> None:
    async def story(member: ClusterMembership) -> None:
        topic_id = await make(member, "t")
        assert not await records(member)
        await member.controller.delete_topics(["t"])
        assert await records(member) == {uuid_to_text(topic_id)}

    await run(tmp_path, story)


async def test_one_that_was_cut_short_is_recorded_by_who_finishes_it(tmp_path: Path) -> None:
    ids: list[UUID] = []

    async def before(member: ClusterMembership) -> None:
        ids.append(await make(member, "t"))
        await member.store.create(DeletionNode.path("t"))

    async def after(member: ClusterMembership) -> None:
        assert "t" not in member.cache.image.topics
        assert await records(member) == {uuid_to_text(ids[0])}

    await run(tmp_path, before)
    await run(tmp_path, after)
    await run(tmp_path, after)


async def test_there_are_never_too_many_records_and_the_newest_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "MOST", 5)
    monkeypatch.setattr(deletions, "_KEPT", 3)
    monkeypatch.setattr("barnabas.broker.controller.active_controller._DELETIONS", 1)

    async def story(member: ClusterMembership) -> None:
        ids = []
        for number in range(7):
            ids.append(await make(member, f"t{number}"))
            await member.controller.delete_topics([f"t{number}"])
            assert len(await records(member)) <= 5
        assert await deletions.recorded(member.store, ids) == {*ids[-4:]}

    await run(tmp_path, story)


async def test_records_go_with_an_exported_tree_and_the_secret_does_not(tmp_path: Path) -> None:
    async def story(member: ClusterMembership) -> None:
        topic_id = await make(member, "t")
        await member.controller.delete_topics(["t"])
        target = SqliteStore(tmp_path / "target")
        await target.start()
        try:
            await import_tree(target, await export_tree(member.store))
            assert await target.find(DeletedTopicNode.path(topic_id)) is not None
            assert await target.find(SecretNode.path) is None
        finally:
            await target.close()

    await run(tmp_path, story)
