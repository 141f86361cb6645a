"""Bugs of the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.controller import active_controller
from barnabas.broker.controller import membership as broker_membership
from barnabas.broker.replication import strays
from barnabas.machines.controller import membership
from barnabas.metadata.images.loading import load
from tests.simulation.whole.loop import PROCESS, Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.machines.controller.elections import Live
    from barnabas.machines.controller.image import PartitionImage
    from barnabas.metadata.deletions import StrayReplica
    from barnabas.metadata.images.loading import Loaded
    from barnabas.metadata.stores.store import MetadataStore


def restarted_leads() -> None:
    """A replica that restarted stays in sync, although its disk may have lost what it had."""

    def elect_after_restart(partition: PartitionImage, live: Live, restarted: frozenset[int]) -> PartitionImage:
        return partition

    membership.elect_after_restart = elect_after_restart  # type: ignore[attr-defined]


def stale_image() -> None:
    """A broker begins its first term as the controller with what it read when it started (finding 6)."""
    read_at_start: dict[Process | None, Loaded] = {}

    async def load_at_start(store: MetadataStore) -> Loaded:
        loaded = read_at_start[PROCESS.get()] = await load(store)
        return loaded

    async def load_in_term(store: MetadataStore) -> Loaded:
        return read_at_start.pop(PROCESS.get(), None) or await load(store)

    broker_membership.load = load_at_start  # type: ignore[attr-defined]
    active_controller.load = load_in_term  # type: ignore[attr-defined]


def stale_image_deletes() -> None:
    """As above, and a log that the image does not name is deleted, whatever the tree records (finding 3)."""

    async def all_of_them(store: MetadataStore, broker_id: int, replicas: Sequence[StrayReplica]) -> list[bool]:
        return [True] * len(replicas)

    stale_image()
    strays.removable = all_of_them  # type: ignore[attr-defined]
