"""What Spark's checkpoint of a query says: who it is, how far it came, which offsets a batch has.

Spark writes a batch's offsets before it runs the batch, one line for each source, and `commits/N` after it. So whoever
runs the batch again reads the same offsets here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.pipelines.runner.queries.hadoop_files import HadoopFolder
from barnabas.pipelines.spark.read.offsets import from_text
from barnabas.pipelines.tables.files.destinations import for_spark, is_remote, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint at a path, or at an address that Spark can read."""

    spark: SparkSession
    location: str

    @property
    def address(self) -> str:
        """The location as Spark has to be told it."""
        return for_spark(self.location)

    def id(self) -> str | None:
        """The id that Spark gave to the query; another checkpoint will have another. None if there is no checkpoint."""
        text = self._text("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def has_batches(self) -> bool:
        """Whether any batch was finished. Spark removes the notes of old ones, so the first may be gone."""
        return any(name.isdecimal() for name in self._names("commits"))

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
        if is_remote(self.location):
            return HadoopFolder(self.spark, self.location).text(name)
        path = local_path(self.location) / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def _names(self, folder: str) -> list[str]:
        if is_remote(self.location):
            return HadoopFolder(self.spark, self.location).names(folder)
        path = local_path(self.location) / folder
        return [each.name for each in path.iterdir()] if path.is_dir() else []
