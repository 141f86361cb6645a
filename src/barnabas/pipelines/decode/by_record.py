"""Formats that a library reads one record at a time: the rows are collected, and become Arrow at once.

The schema is given, so every record fits it or is a dead letter; the framing of a schema registry is taken off first
where there is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from barnabas.pipelines.decode.contract import Decoded, row_schema, to_dead, to_rows, without
from barnabas.pipelines.decode.framing import PREFIX, Framing, is_framed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from barnabas.pipelines.decode.contract import Decoder


class ByRecord(ABC):
    """Decodes values one by one, to the columns of `value`."""

    kind: ClassVar[str]
    evolves = False

    def __init__(self, value: pa.Schema, framing: Framing) -> None:
        self._value = value
        self._framing = framing
        self.schema: pa.Schema = row_schema(value)

    def bound(self, table: pa.Schema, made: Collection[str] = ()) -> Decoder:
        """This decoder: its columns come from a file."""
        return self

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """One row for each value that can be read, dead letters for all else."""
        rows: list[Sequence[Any]] = []
        reasons: dict[int, str] = {}
        nothing = (None,) * len(self._value)
        for index, value in enumerate(batch.column("value").to_pylist()):
            try:
                rows.append(nothing if value is None else self._row(value))
            except Exception as error:  # whatever a library says of broken bytes
                reasons[index] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        columns = self._columns(rows)
        if columns is None:
            rows, reasons = self._sifted(batch, reasons)
            columns = self._columns(rows)
            assert columns is not None
        return Decoded(to_rows(without(batch, reasons), columns, self.schema), to_dead(batch, reasons))

    @abstractmethod
    def _read(self, data: bytes) -> Sequence[Any]:
        """The columns of a value without framing; raises an exception if the bytes are none of this format."""

    def _unframed(self, value: bytes) -> bytes:
        """What follows the framing; raises ValueError if it is broken."""
        return value[PREFIX:]

    def _row(self, value: bytes) -> Sequence[Any]:
        if self._framing is Framing.NONE:
            return self._read(value)
        if self._framing is Framing.CONFLUENT:
            if not is_framed(value):
                raise ValueError("it does not begin with a schema's id (a zero byte and four more)")
            return self._read(self._unframed(value))
        if not is_framed(value):
            return self._read(value)
        try:
            row = self._read(self._unframed(value))
        except Exception:  # then those bytes are part of the value
            return self._read(value)
        if self._can_read(value):
            raise ValueError("it can be read with and without a schema's id before it; the framing has to be given")
        return row

    def _can_read(self, data: bytes) -> bool:
        try:
            self._read(data)
        except Exception:  # whatever a library says of broken bytes
            return False
        return True

    def _columns(self, rows: Sequence[Sequence[Any]]) -> list[pa.Array] | None:
        """The rows as columns; None if one of them holds what its type cannot."""
        try:
            return [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self._value)]
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return None

    def _sifted(self, batch: pa.RecordBatch, reasons: dict[int, str]) -> tuple[list[Sequence[Any]], dict[int, str]]:
        """The rows again, each tried alone."""
        rows: list[Sequence[Any]] = []
        found = dict(reasons)
        for index, value in enumerate(batch.column("value").to_pylist()):
            if index in found:
                continue
            row = (None,) * len(self._value) if value is None else self._row(value)
            if self._columns([row]) is None:
                found[index] = "a value of it is beyond what its column can hold"
            else:
                rows.append(row)
        return rows, found
