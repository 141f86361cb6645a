"""The metadata files of an Iceberg table in a folder: which one is the last, and which ones nobody needs any more.

A commit writes a metadata file and then has the catalog name it. A crash between the two leaves a whole table with all
files that it names, only that nobody was told; so the one with the highest number is always right to go on with, if it
is alone with that number and all are of one table.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.files.destinations import local_path
from barnabas.pipelines.tables.notes import Note, from_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyiceberg.table import Table as Loaded


NOTE: Final = "barnabas.note"
"""The table property that has the note of the last commit."""
NOTE_SNAPSHOT: Final = "barnabas.snapshot"
"""The table property that names the snapshot for which that note is true: the one that came with it."""
METADATA_LIMITS: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""What bounds the number of metadata files, each of which tells of all snapshots."""
_NAME: Final = re.compile(r"(\d+)-[0-9a-f-]{36}\.metadata\.json")


@dataclass(frozen=True, slots=True)
class Metadata:
    """One metadata file."""

    path: Path
    number: int
    table: str
    """The id of the table, which is another one for each that was ever made here."""
    location: str
    note: Note | None
    """None in a table of somebody else."""


def metadata_in(folder: Path) -> list[Metadata]:
    """All metadata files of a table's folder; one that a crash left half written was never any table's."""
    found = []
    for path in (folder / "metadata").glob("*.metadata.json"):
        try:
            value = json.loads(path.read_text())
        except (ValueError, FileNotFoundError):
            continue
        name = _NAME.fullmatch(path.name)
        note = value.get("properties", {}).get(NOTE) if name else None
        found.append(
            Metadata(
                path,
                int(name[1]) if name else 0,
                value.get("table-uuid", ""),
                value.get("location", ""),
                None if note is None else from_text(note),
            )
        )
    return found


def last_metadata(found: Sequence[Metadata], folder: Path) -> Metadata:
    """The one that a table is to go on with. Raises UnusableTarget if that is not certain."""
    highest = {each.table: each.number for each in sorted(found, key=lambda each: each.number)}
    last = [each for each in found if each.number == highest[each.table]]
    if len(last) > 1:
        raise UnusableTarget(
            f"{folder} has a table that its catalog does not know, and {_names(last)} could be its last metadata: name "
            "the right one with pyiceberg's Catalog.register_table, or empty the folder to load everything again"
        )
    if local_path(last[0].location).resolve() != folder.resolve():
        raise UnusableTarget(
            f"{folder} has a table that was at {last[0].location}, and its metadata names files there: put it back, or "
            "load into another table"
        )
    return last[0]


def unneeded_metadata(table: Loaded) -> list[Path]:
    """Manifests, lists of them and metadata files of a table in a folder that neither it nor a snapshot names."""
    named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        named |= {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))}
    kept = {local_path(name).resolve() for name in named}
    folder = local_path(table.location()) / "metadata"
    there = (path for pattern in ("*.avro", "*.metadata.json") for path in folder.glob(pattern))
    return [path for path in there if path.resolve() not in kept]


def _names(found: Iterable[Metadata]) -> str:
    return ", ".join(sorted(each.path.name for each in found))
