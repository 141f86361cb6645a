"""Memberships of several brokers over one SQLite store, without the rest of the brokers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from uuid import uuid4

from barnabas.broker.controller.membership import ClusterMembership, MembershipOptions
from barnabas.machines.controller.image import Endpoint
from barnabas.metadata.images.cache import MetadataCache
from barnabas.metadata.stores import sqlite_tree
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.znodes import Registration
from barnabas.model.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


def registration(broker_id: int = 0) -> Registration:
    """What a broker says of itself when it comes up."""
    return Registration(
        broker_id=broker_id,
        endpoints={"PLAINTEXT": Endpoint("localhost", 9092 + broker_id)},
        incarnation_id=uuid4(),
    )


class Members:
    """Memberships over one file, all stopped at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[ClusterMembership] = []

    def member(
        self, open_store: Callable[[], SqliteStore] | None = None, options: MembershipOptions | None = None
    ) -> ClusterMembership:
        """A membership that is not started, over plain stores or those that `open_store` makes."""
        made = ClusterMembership(
            open_store or (lambda: SqliteStore(self.path)), MetadataCache(), ManualClock(), options
        )
        self.all.append(made)
        return made

    async def started(
        self,
        broker_id: int = 0,
        open_store: Callable[[], SqliteStore] | None = None,
        options: MembershipOptions | None = None,
    ) -> ClusterMembership:
        """The membership of a broker that has registered."""
        made = self.member(open_store, options)
        await made.start(registration(broker_id))
        return made

    async def store(self) -> SqliteStore:
        """The tree, as another program opens it."""
        store = SqliteStore(self.path)
        await store.start()
        return store


@contextlib.asynccontextmanager
async def cluster(path: Path) -> AsyncIterator[Members]:
    """A cluster without members yet; nothing in it takes longer than 20 seconds."""
    found = Members(path / "metadata.db")
    try:
        async with asyncio.timeout(30):
            yield found
    finally:
        for member in found.all:
            await member.stop()


def expire(path: Path, session: int) -> None:
    """End a session behind its owner's back."""
    connection = sqlite_tree.connect(path, 5.0)
    with sqlite_tree.transaction(connection):
        sqlite_tree.end_session(connection, session)
    connection.close()
