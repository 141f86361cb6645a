"""The values that loads and tables exchange: files that were written, how far a pipeline has come, what is promised."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.pipelines.spark.read.offsets import OffsetRange

BATCHES: Final = TopicPartition("~batches", 0)
"""Where a table keeps the number of the next batch, if a query with state fills it; no topic can have this name."""

PartitionValues = tuple[tuple[str, Any], ...]
"""A file's values of the columns that a table is partitioned by, in their order."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a task has written and that no reader sees yet."""

    path: str
    """Below the table's location for Parquet and Delta; whole for Iceberg."""
    rows: int
    size: int
    partition: PartitionValues = ()
    footer: Any = field(default=None, compare=False)
    """Its `pyarrow.parquet.FileMetaData`, where it is at hand; otherwise it is read when needed."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a pipeline has come in a table."""

    pipeline: str
    topic_ids: Mapping[str, str]
    offsets: Mapping[TopicPartition, int]
    """The next offset by partition; the records before it are in the table."""
    version: int
    """The number of the pipeline's last commit, from 1 on."""
    decoder: str | None = None
    """How a load made rows of values (`Decoder.kind`); None if it was no load, or one that did not say so yet."""


@dataclass(frozen=True, slots=True)
class TableOutbox:
    """Files for another table, promised in the same commit as a table's own rows; see `loading.dead_letters`."""

    ranges: Sequence[OffsetRange]
    files: Sequence[DataFile]


class CommitOutcome(Enum):
    """What became of a commit."""

    COMMITTED = "committed"
    ALREADY = "already"
    """These ranges are in the table since before: nothing was added."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What became of small files."""

    merged: int
    into: int


@dataclass(frozen=True, slots=True)
class Size:
    """How much a table holds."""

    rows: int
    files: int
    size: int
    """In bytes."""
