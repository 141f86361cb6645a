"""The log of a folder of plain Parquet: a manifest for each commit, under its number.

A manifest appears at once and is on the disk before anything else happens: it is written beside the log, synced, and
linked into it. A link fails if the name is there, so two jobs cannot both have a number.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from barnabas.pipelines.tables.notes import Note, from_json

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit: what it adds, what it removes, and the table as it is afterwards."""

    note: Note
    number: int
    schema: pa.Schema
    partition_by: tuple[str, ...]
    rows: int
    """In the whole table."""
    added: tuple[tuple[str, str], ...]
    """Where each file is staged, and where it belongs."""
    removed: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The manifest as it is stored."""
        value = {
            "note": self.note.to_json(),
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "partition_by": self.partition_by,
            "rows": self.rows,
            "added": self.added,
            "removed": self.removed,
        }
        return json.dumps(value, indent=1)

    @classmethod
    def from_text(cls, text: str, number: int) -> Manifest:
        """The manifest that `to_text` made this of."""
        value: dict[str, Any] = json.loads(text)
        return cls(
            from_json(value["note"]),
            number,
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"]))),
            tuple(value["partition_by"]),
            value["rows"],
            tuple((staged, final) for staged, final in value["added"]),
            tuple(value["removed"]),
        )


class ManifestLog:
    """The manifests of a table, in their folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> Manifest | None:
        """The last manifest; None while there is no table."""
        if not self.folder.is_dir():
            return None
        last = max(self.folder.glob("*.json"), default=None)
        return None if last is None else Manifest.from_text(last.read_text(), int(last.stem))

    def all_but_newest(self) -> list[Path]:
        """The files of all manifests but the last."""
        return sorted(self.folder.glob("*.json"))[:-1]

    def draft(self, manifest: Manifest) -> Path:
        """Write a manifest beside the log, and sync it."""
        draft = self.folder.parent / f"{uuid.uuid4()}.draft"
        with draft.open("x") as stream:
            stream.write(manifest.to_text())
            stream.flush()
            os.fsync(stream.fileno())
        return draft

    def publish(self, draft: Path, number: int) -> None:
        """Give a draft its number in the log. Raises FileExistsError if another manifest has it."""
        try:
            os.link(draft, self.folder / f"{number:020}.json")
        finally:
            draft.unlink()
