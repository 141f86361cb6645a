"""Bugs that are planted on purpose, to see how soon the simulation finds them: `--bug NAME`.

A bug is a small patch of the broker that somebody could have written. It is planted in the process of a world, which
ends with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.whole.planted import controller, replication, storage

if TYPE_CHECKING:
    from collections.abc import Callable

BUGS: Final[dict[str, Callable[[], None]]] = {
    "early-acks": replication.early_acks,
    "own-end": replication.own_end,
    "lagging-joins": replication.lagging_joins,
    "no-truncation": replication.no_truncation,
    "restarted-leads": controller.restarted_leads,
    "recovery-point": storage.recovery_point,
    "no-duplicates": storage.no_duplicates,
    "uncommitted-reads": storage.uncommitted_reads,
    "stale-image": controller.stale_image,
    "clamped": replication.clamped,
    "checkpoints-stay": storage.checkpoints_stay,
    "lease": storage.lease_given_back_twice,
    "index-after-marker": storage.index_after_marker,
    "index-not-synced": storage.index_not_synced,
    "sealed-active": storage.sealed_active,
    "stale-swap": storage.stale_swap,
}
