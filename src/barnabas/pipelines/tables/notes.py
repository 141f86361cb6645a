"""The note that goes with every commit: who, which ranges, how far, and what is promised to another table. JSON.

A Parquet table's log is made of these. Iceberg keeps the last one as a table property and each one with its snapshot,
Delta each one with its commit.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.pipelines.spark.read.offsets import OffsetRange, from_nested, to_nested
from barnabas.pipelines.tables.contract import DataFile, Position, TableOutbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Note:
    """What one commit says about itself."""

    pipeline: str
    version: int
    topic_ids: Mapping[str, str]
    offsets: Mapping[TopicPartition, int]
    """After the commit, for every partition that the pipeline ever loaded."""
    ranges: Sequence[OffsetRange]
    rows: int
    outbox: TableOutbox | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells our own commit from another's when its outcome was not seen."""
    decoder: str | None = None
    """See `Position`."""

    @property
    def position(self) -> Position:
        """The position after this commit."""
        return Position(self.pipeline, self.topic_ids, self.offsets, self.version, self.decoder)

    def to_json(self) -> dict[str, Any]:
        """The note as JSON has it."""
        value: dict[str, Any] = {
            "pipeline": self.pipeline,
            "version": self.version,
            "id": self.id,
            "topics": dict(sorted(self.topic_ids.items())),
            "offsets": to_nested(self.offsets),
            "ranges": ranges_to_json(self.ranges),
            "rows": self.rows,
        }
        if self.decoder is not None:
            value["decoder"] = self.decoder
        if self.outbox is not None:
            value["outbox"] = {
                "ranges": ranges_to_json(self.outbox.ranges),
                "files": [file_to_json(file) for file in self.outbox.files],
            }
        return value

    def to_text(self) -> str:
        """The note as text."""
        return json.dumps(self.to_json(), separators=(",", ":"))


def from_json(value: Mapping[str, Any]) -> Note:
    """The note that `to_json` made this of."""
    outbox = value.get("outbox")
    return Note(
        value["pipeline"],
        value["version"],
        dict(value["topics"]),
        from_nested(value["offsets"]),
        ranges_from_json(value["ranges"]),
        value["rows"],
        None
        if outbox is None
        else TableOutbox(ranges_from_json(outbox["ranges"]), [file_from_json(each) for each in outbox["files"]]),
        value["id"],
        value.get("decoder"),
    )


def from_text(text: str) -> Note:
    """The note that `to_text` made this of."""
    return from_json(json.loads(text))


def next_note(
    position: Position | None,
    pipeline: str,
    offsets: Mapping[TopicPartition, int],
    ranges: Sequence[OffsetRange],
    topic_ids: Mapping[str, str],
    files: Sequence[DataFile],
    outbox: TableOutbox | None,
    decoder: str | None,
) -> Note:
    """The note of the commit that follows a position."""
    before = {} if position is None else position.topic_ids
    return Note(
        pipeline,
        1 if position is None else position.version + 1,
        {**before, **topic_ids},
        offsets,
        ranges,
        sum(file.rows for file in files),
        outbox,
        decoder=decoder,
    )


def upkeep_note(last: Note) -> Note:
    """The note of a commit that changes files and no rows: position and promises stay as they are."""
    return Note(last.pipeline, last.version, last.topic_ids, last.offsets, (), 0, last.outbox, decoder=last.decoder)


def ranges_to_json(ranges: Sequence[OffsetRange]) -> list[list[Any]]:
    """Ranges as lists of topic, partition, start and end."""
    return [[each.topic, each.partition, each.start, each.end] for each in ranges]


def ranges_from_json(value: Sequence[Sequence[Any]]) -> list[OffsetRange]:
    """The ranges that `ranges_to_json` made this of."""
    return [OffsetRange(*each) for each in value]


def file_to_json(file: DataFile) -> dict[str, Any]:
    """A file as JSON has it; only files of tables without partitions are ever promised, so it has no values."""
    return {"path": file.path, "rows": file.rows, "size": file.size}


def file_from_json(value: Mapping[str, Any]) -> DataFile:
    """The file that `file_to_json` made this of."""
    return DataFile(value["path"], value["rows"], value["size"])
