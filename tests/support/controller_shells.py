"""Shells of controllers over one embedded store, each as it is in a broker of its own."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from uuid import uuid4

from barnabas.broker.controller import Controller
from barnabas.machines.controller.image import Endpoint
from barnabas.metadata import sqlite_tree
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.sqlite import SqliteStore
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


class Cluster:
    """Controllers over one file, all closed at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.controllers: list[Controller] = []

    def controller(self, open_store: Callable[[], SqliteStore] | None = None, patience: float = 0) -> Controller:
        """A controller that is not started, over plain stores or those that `open_store` makes."""
        made = Controller(
            open_store or (lambda: SqliteStore(self.path)), MetadataCache(), ManualClock(), patience=patience
        )
        self.controllers.append(made)
        return made

    async def started(
        self, broker_id: int = 0, open_store: Callable[[], SqliteStore] | None = None, patience: float = 0
    ) -> Controller:
        """A controller whose broker has registered."""
        made = self.controller(open_store, patience)
        await made.start(registration(broker_id))
        return made

    async def store(self) -> SqliteStore:
        """The tree, as another program opens it."""
        store = SqliteStore(self.path)
        await store.start()
        return store


@contextlib.asynccontextmanager
async def cluster(path: Path) -> AsyncIterator[Cluster]:
    """A cluster without members yet; nothing in it takes longer than 20 seconds."""
    found = Cluster(path / "metadata.db")
    try:
        async with asyncio.timeout(30):
            yield found
    finally:
        for controller in found.controllers:
            await controller.stop()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, within the deadline of the cluster."""
    while not condition():
        await asyncio.sleep(0.005)


def expire(path: Path, session: int) -> None:
    """End a session behind its owner's back."""
    connection = sqlite_tree.connect(path, 5.0)
    with sqlite_tree.transaction(connection):
        sqlite_tree.end_session(connection, session)
    connection.close()
