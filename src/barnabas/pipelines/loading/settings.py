"""What a load is asked to do: the options of `load()` as one value, and what a job needs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.decode.tombstones import MarkedTombstones
from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark.read.offsets import from_text
from barnabas.pipelines.spark.read.positions import AtOffsets, Edge, Position
from barnabas.pipelines.spark.read.reading import reader_properties
from barnabas.pipelines.spark.read.selection import can_name_a_topic
from barnabas.pipelines.tables.opening import dead_letters_location, open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.loading.progress import LoadProgress
    from barnabas.pipelines.tables.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What a job loads, and how; see `load`."""

    topic: str
    pipeline: str
    group: str
    client: Mapping[str, object]
    decoder: Decoder
    starting: Position
    max_offsets_per_commit: int
    fail_on_data_loss: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options of `load`, which describes them."""

    topic: str
    to: str
    format: str | None
    bootstrap_servers: str
    name: str | None
    decode: str | Decoder
    schema: str | None
    framing: str
    mark_tombstones: bool
    partition_by: Sequence[str]
    starting_offsets: str
    every: float | None
    group: str | None
    max_offsets_per_commit: int
    fail_on_data_loss: bool
    spark: SparkSession | None
    master: str | None
    spark_config: Mapping[str, object] | None
    client: Mapping[str, object] | None
    catalog: str
    options: Mapping[str, str] | None
    keep_snapshots: int | None
    metrics: str | None
    on_progress: Callable[[LoadProgress], None] | None
    on_step: Callable[[str], None] | None
    verbose: bool

    def check(self) -> None:
        """Raise InvalidOption if the topic or the interval means nothing."""
        if self.every is not None and self.every <= 0:
            raise InvalidOption(f"a load cannot look for new records every {self.every:g} s: give a positive interval")
        if not can_name_a_topic(self.topic):
            raise InvalidOption(f"{self.topic!r} cannot be the name of a topic").with_remedy(
                Remedy(RemedyKind.LIST_TOPICS)
            )

    def settings(self) -> LoadSettings:
        """What a job needs. Raises InvalidOption, SchemaRefused."""
        pipeline = self.name or f"load-{self.topic}"
        return LoadSettings(
            topic=self.topic,
            pipeline=pipeline,
            group=self.group or pipeline,
            client={**reader_properties(self.client or {}), "bootstrap.servers": self.bootstrap_servers},
            decoder=self._decoder(),
            starting=_starting_position(self.starting_offsets),
            max_offsets_per_commit=self.max_offsets_per_commit,
            fail_on_data_loss=self.fail_on_data_loss,
        )

    def open_table(self) -> Table:
        """The table to load into. Raises TableError."""
        return self._open(self.to, self.format, self.partition_by)

    def open_dead_letters(self, format: str) -> Table:
        """The table of dead letters beside it. Raises TableError."""
        return self._open(dead_letters_location(self.to), format, ())

    def _open(self, location: str, format: str | None, partition_by: Sequence[str]) -> Table:
        return open_table(
            location,
            format,
            partition_by=partition_by,
            catalog=self.catalog,
            options=self.options,
            keep_snapshots=self.keep_snapshots,
        )

    def _decoder(self) -> Decoder:
        decode = self.decode
        decoder = choose_decoder(decode, self.schema, self.framing) if isinstance(decode, str) else decode
        return MarkedTombstones(decoder) if self.mark_tombstones else decoder


def _starting_position(text: str) -> Position:
    if text in ("earliest", "latest"):
        return Edge(text)
    try:
        return AtOffsets(from_text(text))
    except ValueError as error:
        raise InvalidOption(
            f'starting offsets are earliest, latest, or JSON such as {{"orders":{{"0":5}}}}: {error}'
        ) from error
