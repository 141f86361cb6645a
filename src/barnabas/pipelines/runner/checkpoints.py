"""What Spark's checkpoint of a query says: who it is, how far it came, which offsets a batch has.

Spark writes a batch's offsets before it runs the batch, one line for each source, and `commits/N` after it. So whoever
runs the batch again reads the same offsets here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from barnabas.pipelines.offsets import from_text
from barnabas.pipelines.tables.destinations import is_remote, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.model.ids import TopicPartition

REMEMBERED: Final = 4
"""A batch asks for its own offsets, those of the one before, and the id; one more, so that none of them has to go."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint at a path, or at an address that Spark can read."""

    spark: SparkSession
    location: str
    _read: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was read last from an address, where each file takes a job of Spark; what Spark wrote there once, stays."""

    @property
    def address(self) -> str:
        """The location as Spark has to be told it: a path without `file://` may be one of HDFS to it.

        Nothing is quoted, since Hadoop takes what follows the scheme as it is.
        """
        return self.location if is_remote(self.location) else f"file://{local_path(self.location).absolute()}"

    def id(self) -> str | None:
        """The id that Spark gave to the query; another checkpoint will have another. None if there is no checkpoint."""
        text = self._text("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def has_batches(self) -> bool:
        """Whether any batch was finished. Spark removes the notes of old ones, so the first may be gone."""
        if is_remote(self.location):
            return self._remote_text(f"{self.location.rstrip('/')}/commits") is not None
        folder = local_path(self.location) / "commits"
        return folder.is_dir() and any(each.name.isdecimal() for each in folder.iterdir())

    def offsets(self, batch: int) -> dict[TopicPartition, int] | None:
        """Where a batch ends, None if it is not noted. Where a topic is read twice, the lower end counts."""
        text = self._text(f"offsets/{batch}")
        if text is None:
            return None
        found: dict[TopicPartition, int] = {}
        for line in text.splitlines()[2:]:
            if line == "-":  # a source that has no offset yet
                continue
            for partition, end in from_text(line).items():
                found[partition] = min(end, found.get(partition, end))
        return found

    def _text(self, name: str) -> str | None:
        if not is_remote(self.location):
            path = local_path(self.location) / name
            return path.read_text(encoding="utf-8") if path.is_file() else None
        text = self._read.pop(name, None) or self._remote_text(f"{self.location.rstrip('/')}/{name}")
        if text is not None:
            self._read[name] = text
            if len(self._read) > REMEMBERED:
                del self._read[next(iter(self._read))]
        return text

    def _remote_text(self, address: str) -> str | None:
        try:
            texts = self.spark.read.text(address, wholetext=True).head(1)
            return str(texts[0][0]) if texts else None
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return None
