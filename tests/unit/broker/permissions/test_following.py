"""A broker's rules follow the metadata tree, whatever stands in it and whatever fails."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.permissions import following
from barnabas.broker.permissions.access import Permissions
from barnabas.broker.permissions.audit import AuditLog
from barnabas.broker.permissions.following import AclFollower
from barnabas.machines.security.acls import Acl, AclResourceType, Entry, Operation, Permission, ResourcePattern
from barnabas.machines.security.authorizer import Authorizer
from barnabas.metadata import acls
from barnabas.metadata.acls import AclChangesNode, AclNode
from barnabas.metadata.stores.sqlite import SqliteStore
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")
PAYMENTS = ResourcePattern(AclResourceType.TOPIC, "payments")
BILLS = ResourcePattern(AclResourceType.TOPIC, "bills")
EVERYTHING = ResourcePattern(AclResourceType.TOPIC, "*")
READ = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = Entry("User:bob", "*", Operation.WRITE, Permission.ALLOW)

NOT_BOB = Entry("User:bob", "*", Operation.ALL, Permission.DENY)


class Following:
    """A broker's rules, and the tree that they follow."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.permissions = Permissions(Authorizer(super_users=["User:root"]), AuditLog(lambda: 0.0))
        self.follower = AclFollower(self.permissions)

    def has(self, *entries: Entry) -> bool:
        """Whether exactly these ACLs are in force."""
        return set(self.permissions.rules) == {Acl(ORDERS, entry) for entry in entries}

    def may(self, user: str, topic: str, operation: Operation = Operation.READ) -> bool:
        """Whether a user may do this to a topic."""
        rules = self.permissions.rules
        return bool(rules.decide(f"User:{user}", "10.0.0.1", operation, AclResourceType.TOPIC, topic))


@asynccontextmanager
async def following_tree(folder: Path) -> AsyncIterator[Following]:
    store = SqliteStore(folder / "metadata")
    await store.start()
    one = Following(store)
    try:
        await one.follower.open(store)
        yield one
        await one.follower.stop()
    finally:
        await store.close()


async def test_what_is_no_note_does_not_end_the_following(tmp_path: Path) -> None:
    async with following_tree(tmp_path) as one:
        await one.store.create(f"{AclChangesNode.literal}/of-an-operator", b"?")
        await acls.add(one.store, [Acl(ORDERS, READ)])
        await until(lambda: one.has(READ))
        await acls.remove(one.store, [Acl(ORDERS, READ)])
        await until(one.has)


@pytest.mark.parametrize(
    "name", ["acl_changes_9999999999", "acl_changes_2147483647", "acl_changes_1", "acl_changes_-000000001"]
)
async def test_a_note_with_any_number_hides_no_revocation(tmp_path: Path, name: str) -> None:
    async with following_tree(tmp_path) as one:
        await acls.add(one.store, [Acl(ORDERS, READ), Acl(ORDERS, WRITE)])
        await until(lambda: one.has(READ, WRITE))
        await one.store.create(f"{AclChangesNode.literal}/{name}", b"?")
        await one.follower.catch_up()
        await acls.remove(one.store, [Acl(ORDERS, READ)])
        await until(lambda: one.has(WRITE))
        await acls.remove(one.store, [Acl(ORDERS, WRITE)])
        await until(one.has)


async def test_a_folder_of_notes_that_is_made_anew_hides_no_revocation(tmp_path: Path) -> None:
    async with following_tree(tmp_path) as one:
        await acls.add(one.store, [Acl(ORDERS, READ)])
        await acls.add(one.store, [Acl(ORDERS, WRITE)])
        await until(lambda: one.has(READ, WRITE))
        await delete_folder(one.store, AclChangesNode.literal)
        await acls.remove(one.store, [Acl(ORDERS, READ)])
        await until(lambda: one.has(WRITE))
        await acls.remove(one.store, [Acl(ORDERS, WRITE)])
        await until(one.has)


async def test_a_node_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(following, "_RETRY_SECONDS", 0.01)
    async with following_tree(tmp_path) as one:
        await acls.add(one.store, [Acl(ORDERS, READ), Acl(PAYMENTS, READ), Acl(PAYMENTS, NOT_BOB)])
        await until(lambda: one.may("alice", "orders") and one.may("alice", "payments"))
        await one.store.set(AclNode.path(PAYMENTS), b"?")
        await one.store.create(AclNode.path(BILLS), b"?")
        for pattern in (PAYMENTS, BILLS):
            await one.store.create(
                AclChangesNode.prefix(AclChangesNode.literal), AclChangesNode.encode(pattern), sequential=True
            )
        await acls.remove(one.store, [Acl(ORDERS, READ)])
        await acls.add(one.store, [Acl(EVERYTHING, WRITE)])
        await until(lambda: not one.may("alice", "orders") and one.may("bob", "orders", Operation.WRITE))
        assert one.may("alice", "payments"), "its last ACLs stay"
        assert not one.may("bob", "payments", Operation.WRITE), "its last ACLs stay"
        assert not one.may("bob", "bills", Operation.WRITE), "there may be a denial in what cannot be read"
        assert one.may("root", "bills")
        assert caplog.text.count("ACLs cannot be read") == 2
        one.follower.reload()
        await one.store.delete(AclNode.path(BILLS))
        await until(lambda: one.may("bob", "bills", Operation.WRITE))
        await one.store.set(AclNode.path(PAYMENTS), AclNode.encode([WRITE]))
        await until(lambda: one.may("bob", "payments", Operation.WRITE) and not one.may("alice", "payments"))
        assert caplog.text.count("ACLs cannot be read") == 2


async def test_what_cannot_be_read_at_the_start_is_for_super_users_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "metadata")
    await store.start()
    await store.create(AclNode.path(PAYMENTS), b"?", parents=True)
    await acls.add(store, [Acl(EVERYTHING, WRITE)])
    await store.close()
    async with following_tree(tmp_path) as one:
        assert one.may("bob", "orders", Operation.WRITE)
        assert not one.may("bob", "payments", Operation.WRITE)
        assert one.may("root", "payments", Operation.WRITE)


async def delete_folder(store: SqliteStore, folder: str) -> None:
    for name in await store.children(folder):
        await store.delete(f"{folder}/{name}")
    await store.delete(folder)


async def test_a_failure_of_any_kind_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(following, "_RETRY_SECONDS", 0.01)
    async with following_tree(tmp_path) as one:
        with monkeypatch.context() as failing:
            failing.setattr(one.permissions, "replace", None)
            await acls.add(one.store, [Acl(ORDERS, READ)])
            await until(lambda: "The last ones stay in force" in caplog.text and "TypeError" in caplog.text)
        await until(lambda: one.has(READ))
        await acls.add(one.store, [Acl(ORDERS, WRITE)])
        await until(lambda: one.has(READ, WRITE))
