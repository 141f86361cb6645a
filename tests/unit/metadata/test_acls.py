"""ACLs in the metadata tree: where Kafka has them, by whoever writes them, and read again by notes."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from barnabas.machines.security.acls import (
    Acl,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.metadata import acls
from barnabas.metadata.acls import AclChanges, AclChangesNode, AclNode
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.znodes import MalformedNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from barnabas.metadata.stores.store import StoredNode

ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")
TEAM = ResourcePattern(AclResourceType.GROUP, "team-", PatternType.PREFIXED)
READ = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = Entry("User:bob", "10.0.0.1", Operation.DESCRIBE_CONFIGS, Permission.DENY)

ODD_NAMES = ("odd", "acl_changes_", "acl_changes_0000000001x", "acl_changes_1_2", "0000000001", "acl_changes_²")
"""Names of nodes that are no notes."""


def only(rules: dict[ResourcePattern, set[Entry]]) -> dict[ResourcePattern, frozenset[Entry]]:
    return {pattern: frozenset(entries) for pattern, entries in rules.items()}


@asynccontextmanager
async def a_store(folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder / "metadata")
    await store.start()
    try:
        await acls.lay_out(store)
        yield store
    finally:
        await store.close()


async def test_acls_stand_where_kafka_reads_them_and_as_it_writes_them(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        await acls.add(store, [Acl(ORDERS, READ), Acl(ORDERS, WRITE), Acl(TEAM, READ)])
        stored = json.loads((await store.get("/kafka-acl/Topic/orders")).data)
        assert stored["version"] == 1
        assert {
            "principal": "User:bob",
            "permissionType": "Deny",
            "operation": "DescribeConfigs",
            "host": "10.0.0.1",
        } in stored["acls"]
        assert await store.find("/kafka-acl-extended/prefixed/Group/team-") is not None
        (literal,) = await store.children("/kafka-acl-changes")
        assert (await store.get(f"/kafka-acl-changes/{literal}")).data == b"TOPIC:orders"
        (other,) = await store.children("/kafka-acl-extended-changes")
        assert json.loads((await store.get(f"/kafka-acl-extended-changes/{other}")).data) == {
            "version": 1,
            "resourceType": "GROUP",
            "name": "team-",
            "patternType": "PREFIXED",
        }
        assert await acls.load_all(store) == only({ORDERS: {READ, WRITE}, TEAM: {READ}})


async def test_two_writers_of_one_resource_lose_nothing_of_each_other(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        entries = [Entry(f"User:{number}", "*", Operation.READ, Permission.ALLOW) for number in range(20)]
        await asyncio.gather(*(acls.add(store, [Acl(ORDERS, entry)]) for entry in entries))
        assert await acls.load_all(store) == {ORDERS: frozenset(entries)}
        await asyncio.gather(*(acls.remove(store, [Acl(ORDERS, entry)]) for entry in entries[1:]))
        assert await acls.load_all(store) == only({ORDERS: {entries[0]}})


async def test_a_resource_without_acls_has_no_node(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        await acls.add(store, [Acl(ORDERS, READ)])
        await acls.remove(store, [Acl(ORDERS, READ)])
        assert await store.find(AclNode.path(ORDERS)) is None


async def test_what_a_note_names_is_read_once(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = AclChanges()
        assert await changes.read(store) == ({}, True)
        await acls.add(store, [Acl(ORDERS, READ), Acl(TEAM, WRITE)])
        assert await changes.read(store) == (only({ORDERS: {READ}, TEAM: {WRITE}}), False)
        assert await changes.read(store) == ({}, False)
        await acls.remove(store, [Acl(ORDERS, READ)])
        assert await changes.read(store) == ({ORDERS: frozenset()}, False)


async def test_who_misses_a_note_or_cannot_read_it_reads_everything(tmp_path: Path) -> None:
    async with a_store(tmp_path) as store:
        changes = AclChanges()
        await acls.add(store, [Acl(ORDERS, READ)])
        await changes.read(store)
        await acls.add(store, [Acl(ORDERS, WRITE)])
        for name in await store.children(AclChangesNode.literal):
            await store.delete(f"{AclChangesNode.literal}/{name}")
        await acls.add(store, [Acl(TEAM, READ), Acl(ORDERS, READ)])
        assert await changes.read(store) == (only({ORDERS: {READ, WRITE}, TEAM: {READ}}), True)
        await store.create(AclChangesNode.prefix(AclChangesNode.extended), b"of tomorrow", sequential=True)
        assert (await changes.read(store))[1]


async def test_what_is_no_note_among_notes_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "KEPT", 3)
    odd = [f"{folder}/{name}" for folder in (AclChangesNode.literal, AclChangesNode.extended) for name in ODD_NAMES]
    async with a_store(tmp_path) as store:
        changes = AclChanges()
        for path in odd:
            await store.create(path, b"mine")
        await acls.add(store, [Acl(ORDERS, READ), Acl(TEAM, READ)])
        assert await changes.read(store) == (only({ORDERS: {READ}, TEAM: {READ}}), True)
        await acls.add(store, [Acl(ORDERS, WRITE)])
        assert await changes.read(store) == (only({ORDERS: {READ, WRITE}}), False)
        for _ in range(7):
            await acls.add(store, [Acl(ORDERS, READ)])
        assert None not in await store.find_many(odd)


@pytest.mark.parametrize("name", [5, None, ["orders"]])
async def test_a_note_whose_name_is_no_text_has_everything_read(tmp_path: Path, name: object) -> None:
    async with a_store(tmp_path) as store:
        changes = AclChanges()
        await acls.add(store, [Acl(TEAM, READ)])
        await changes.read(store)
        note = {"version": 1, "resourceType": "TOPIC", "name": name, "patternType": "PREFIXED"}
        await store.create(AclChangesNode.prefix(AclChangesNode.extended), json.dumps(note).encode(), sequential=True)
        assert await changes.read(store) == (only({TEAM: {READ}}), True)


async def test_to_forget_counts_also_while_notes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_store(tmp_path) as store:
        changes = AclChanges()
        await changes.read(store)
        await acls.add(store, [Acl(ORDERS, READ)])
        find_many = store.find_many

        async def find_and_forget(paths: Sequence[str]) -> list[StoredNode | None]:
            changes.forget()
            return await find_many(paths)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(store, "find_many", find_and_forget)
            assert await changes.read(store) == (only({ORDERS: {READ}}), False)
        assert await changes.read(store) == (only({ORDERS: {READ}}), True)


async def test_old_notes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "KEPT", 3)
    async with a_store(tmp_path) as store:
        changes = AclChanges()
        await changes.read(store)
        for _ in range(7):
            await acls.add(store, [Acl(ORDERS, READ)])
        assert len(await store.children(AclChangesNode.literal)) == 3
        assert await changes.read(store) == (only({ORDERS: {READ}}), True)


@pytest.mark.parametrize("name", ["a/b", "..", "%2F", "a\nb", "ünïcode", "*", "a b"])
def test_every_name_has_a_path_of_its_own(name: str) -> None:
    for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
        pattern = ResourcePattern(AclResourceType.TRANSACTIONAL_ID, name, pattern_type)
        path = AclNode.path(pattern)
        assert AclNode.pattern(path) == pattern
        assert path.count("/") == (3 if pattern_type is PatternType.LITERAL else 4)
        assert AclChangesNode.decode(f"{AclChangesNode.folder(pattern)}/x", AclChangesNode.encode(pattern)) == pattern


@pytest.mark.parametrize(
    "data", [b"[]", b"{}", b'{"version":2,"acls":[]}', b'{"version":1,"acls":[{"principal":"a"}]}']
)
def test_rules_that_cannot_be_read_are_an_error_and_not_no_rules(data: bytes) -> None:
    with pytest.raises(MalformedNode):
        AclNode.decode("/kafka-acl/Topic/t", data)
