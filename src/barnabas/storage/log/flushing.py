"""Bringing a log to the disk, in an order that a crash at any moment can do no harm to.

First the batches (and of segments that are complete, the indexes), then the leader epochs, then the names of new files;
only when all of that has succeeded does the log move its recovery point. While the disk is busy the log goes on: what
is to be synced is written down in a plan first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage import checkpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.log.epochs import EpochStart, LeaderEpochs
    from barnabas.storage.producers.snapshots import Snapshots
    from barnabas.storage.segments.segment import Segment
    from barnabas.storage.segments.segments import Segments


class FlushPlan(NamedTuple):
    """What one flush brings to the disk."""

    segments: Sequence[Segment]
    snapshots: Sequence[int]
    epochs: Sequence[EpochStart]
    epoch_changes: int
    name_changes: int
    truncations: int


class Flusher:
    """Knows what of a log's files is on disk already."""

    __slots__ = ("_epoch_changes", "_name_changes", "_path", "_store", "is_new")

    def __init__(self, store: LogDirectory, path: str) -> None:
        self._store = store
        self._path = path
        self._epoch_changes = 0
        self._name_changes = 0
        self.is_new = False
        """The partition's directory was just made: its own name is to be synced, too."""

    def is_behind(self, segments: Segments, epochs: LeaderEpochs) -> bool:
        """Whether names or epochs have changed since the last flush."""
        return segments.changes != self._name_changes or epochs.changes != self._epoch_changes

    def sync(self, plan: FlushPlan, snapshots: Snapshots) -> list[Segment]:
        """Carry out the plan; returns the segments that need no more, unless they were cut. Runs in a thread."""
        files = self._store.files
        complete = [segment for segment in plan.segments if segment.sync()]
        for offset in plan.snapshots:
            snapshots.sync(offset)
        if plan.epoch_changes != self._epoch_changes:
            checkpoints.write_epochs(files, self._path, plan.epochs, sync=True)
            self._epoch_changes = plan.epoch_changes
        if plan.name_changes != self._name_changes:
            topic_id_file = f"{self._path}/{checkpoints.PARTITION_METADATA}"
            if files.exists(topic_id_file):
                files.sync_file(topic_id_file)
            files.sync_dir(self._path)
            if self.is_new:
                files.sync_dir(self._store.path)
                self.is_new = False
            self._name_changes = plan.name_changes
        return complete
