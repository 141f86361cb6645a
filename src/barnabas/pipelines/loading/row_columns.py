"""The columns of a load's rows and those of its table: they differ by `record_date`, which the writer adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.decode.contract import METADATA
from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.loading.same_decoder import check_decoder
from barnabas.pipelines.loading.tasks.task import table_columns
from barnabas.pipelines.tables.errors import SchemaConflict
from barnabas.pipelines.tables.files.schemas import without
from barnabas.pipelines.tables.files.writing import DATE

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.tables.contract import Position
    from barnabas.pipelines.tables.table import Table


class RowColumns:
    """Translates between the schema of decoded rows and the columns of a table."""

    def __init__(self, decoder: Decoder, table: Table) -> None:
        """Raises InvalidOption if the decoder has no name."""
        if not isinstance(getattr(decoder, "kind", None), str):
            raise InvalidOption(
                f"{type(decoder).__name__} has no `kind`, the name by which a table keeps to its decoder: add it."
            )
        self.decoder = decoder
        self._table = table

    def of_decoder(self) -> pa.Schema:
        """The table's columns for rows of the decoder as it is."""
        return self.of_table(self.decoder.schema)

    def of_table(self, rows: pa.Schema) -> pa.Schema:
        """The table's columns for rows of this schema."""
        return table_columns(rows, self._table.partition_by)

    def of_rows(self, table: pa.Schema | None) -> pa.Schema:
        """The columns that come from records, of a table with these columns."""
        if table is None:
            return METADATA
        return without(table, (DATE,)) if DATE in self._table.partition_by else table

    def decoder_for(self, table: pa.Schema | None) -> Decoder:
        """The decoder, bound to a table with these columns."""
        return self.decoder.bound(self.of_rows(table), (DATE,) if DATE in self._table.partition_by else ())

    def check_decoder(self, position: Position) -> None:
        """Raise SchemaConflict unless the table was loaded with this decoder."""
        check_decoder(position.decoder, self.of_rows(self._table.schema()), self.decoder, self._table.location)

    def check_partition_columns(self, rows: pa.Schema) -> None:
        """Raise SchemaConflict unless rows of this schema have the columns that the table is partitioned by."""
        self._table.destination().check_partition_columns(self.of_table(rows))

    def check_records_have_partition_columns(self, rows: pa.Schema) -> None:
        """The same for a schema that was inferred: the error says that a schema would help."""
        try:
            self.check_partition_columns(rows)
        except SchemaConflict as error:
            raise SchemaConflict(f"the records that were read do not make a table: {error}. Give a schema.") from error
