"""Bugs that are planted on purpose, to see how soon the simulation finds them: `--bug NAME`.

A bug is a small patch of the broker that somebody could have written. It is planted in the process of a world, which
ends with it. Bugs that show when one call fails are planted in `tests/failing_calls/bugs.py`.
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
    "stale-image-deletes": controller.stale_image_deletes,
    "clamped": replication.clamped,
    "lease": storage.lease_given_back_twice,
}
