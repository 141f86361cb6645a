"""Bugs that are planted on purpose, to see how soon the simulation finds them: `--bug NAME`.

A bug is a small patch of the broker that somebody could have written. It is planted in the process of a world, which
ends with it. Bugs that show when one call fails are planted in `tests/failing_calls/bugs.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.whole.planted import controller, replication, shares, storage

if TYPE_CHECKING:
    from collections.abc import Callable

BUGS: Final[dict[str, Callable[[], None]]] = {
    "early-acks": replication.early_acks,
    "own-end": replication.own_end,
    "unsure-ends": replication.unsure_ends,
    "lagging-joins": replication.lagging_joins,
    "no-truncation": replication.no_truncation,
    "restarted-leads": controller.restarted_leads,
    "recovery-point": storage.recovery_point,
    "no-duplicates": storage.no_duplicates,
    "uncommitted-reads": storage.uncommitted_reads,
    "stale-image": controller.stale_image,
    "stale-image-deletes": controller.stale_image_deletes,
    "clamped": replication.clamped,
    "divided-batch": replication.divided_batch,
    "stopped-leads": replication.stopped_leads,
    "truncation-on-the-loop": replication.truncation_on_the_loop,
    "lease": storage.lease_given_back_twice,
    "leases-kept": storage.leases_kept,
    "files-kept-open": storage.files_kept_open,
    "queue-early-answers": shares.early_answers,
    "queue-locks-kept": shares.locks_kept,
    "queue-locks-lost": shares.locks_lost,
    "queue-counts-lost": shares.counts_lost,
    "queue-gaps-done": shares.gaps_done,
    "queue-unfenced": shares.unfenced,
    "queue-snapshot-forgets": shares.snapshot_forgets,
    "queue-no-letters": shares.no_letters,
}

BUGS_OF_QUEUES: Final = frozenset(name for name in BUGS if name.startswith("queue-"))
"""Bugs that only show where there are workers (`--queues`)."""
