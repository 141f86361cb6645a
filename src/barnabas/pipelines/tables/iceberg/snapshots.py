"""The snapshots of an Iceberg table: how far the load is at each, and which ones may be dropped."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyiceberg.table import Table as Loaded
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate

from barnabas.pipelines.tables.errors import TableError
from barnabas.pipelines.tables.iceberg.metadata import NOTE, NOTE_SNAPSHOT
from barnabas.pipelines.tables.notes import Note, from_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.table.snapshots import Snapshot


def current_note(table: Loaded, location: str) -> Note | None:
    """How far the table is at its current snapshot; None in a table of somebody else. Raises TableError if unknown.

    That is what the newest snapshot of ours says among those that led to the current one; those of others between them
    changed rows, and not which records are in the table. After a rollback it is not the last note that was made. A
    snapshot that somebody expired may be missing on the way; a table from before `barnabas.snapshot` is trusted then.
    """
    if NOTE not in table.properties:
        return None
    last = from_text(table.properties[NOTE])
    anchor = table.properties.get(NOTE_SNAPSHOT)
    for snapshot in _lineage(table):
        if str(snapshot.snapshot_id) == anchor:
            return last
        if (text := _note_of(snapshot)) is not None:
            return replace(from_text(text), version=last.version)  # numbers of commits are not used twice
        if str(snapshot.parent_snapshot_id) == anchor:
            return last
    if anchor is None:
        return last
    current = table.metadata.current_snapshot_id
    raise TableError(
        f"{location} is at snapshot {current}, and the snapshots between it and those of its load were expired: it is "
        "not known whether it was rolled back, and so which records are in it. If it has all that was ever loaded, set "
        f"the table property {NOTE_SNAPSHOT} to {current}; otherwise load into another table."
    )


def _lineage(table: Loaded) -> Iterator[Snapshot]:
    """The current snapshot and those that led to it, as far as they are known."""
    by_id = {each.snapshot_id: each for each in table.metadata.snapshots}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None


def _note_of(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(NOTE)


def droppable_snapshots(table: Loaded) -> list[Snapshot]:
    """The snapshots that may be forgotten, in the order in which they were made.

    Those with a name stay, the current one among them; and so do those between it and the newest one of ours, without
    which nobody could say any more how far the table is.
    """
    kept = {reference.snapshot_id for reference in table.metadata.refs.values()}
    for snapshot in _lineage(table):
        kept.add(snapshot.snapshot_id)
        if _note_of(snapshot) is not None or str(snapshot.snapshot_id) == table.properties.get(NOTE_SNAPSHOT):
            break
    return [each for each in table.metadata.snapshots if each.snapshot_id not in kept]


def drop_snapshots(table: Loaded, snapshots: Sequence[Snapshot]) -> None:
    """Drop snapshots in a commit of its own, if all names still mean what they did. Raises CommitFailedException.

    pyiceberg's own `expire_snapshots` does not ask: what somebody has rolled back to meanwhile would be gone.
    """
    references = [{"ref": name, "snapshot-id": each.snapshot_id} for name, each in table.metadata.refs.items()]
    requirements: tuple[AssertTableUUID | AssertRefSnapshotId, ...] = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        *map(AssertRefSnapshotId.model_validate, references),
    )
    update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [each.snapshot_id for each in snapshots]})
    table.catalog.commit_table(table, requirements, (update,))


def time_after(snapshots: Sequence[Snapshot]) -> datetime:
    """A moment at which these had all been made."""
    return datetime.fromtimestamp(max(each.timestamp_ms for each in snapshots) / 1000 + 1, UTC)


def without_history(table: Loaded, others: Sequence[Snapshot] = ()) -> Loaded:
    """The table as if it had no history but these: what a transaction is to begin with.

    For one snapshot pyiceberg copies all that a transaction knows of the table some fifteen times, each time with every
    snapshot that there ever was. A transaction needs the last one. What it commits are changes, which the catalog makes
    to the whole of the table, and only if its last snapshot is still this one.
    """
    last = table.current_snapshot()
    snapshots = [*others, *([] if last is None else [last])]
    metadata = table.metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": []})
    return Loaded(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)
