"""What a row becomes as a record: the columns `value`, `key`, `headers`, `topic` and `partition`, as in Spark's sink.

Only `value` has to be there, and `topic` if no option names one; other columns are not written. A sum over all records
tells later whether a replayed task has the same ones, in whatever order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import xxhash

from barnabas.pipelines.errors import SinkRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

ACCEPTED: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}
"""The types that a column may have, in Spark's words."""


class SinkRecord(NamedTuple):
    """A record to be written; `partition` is -1 where the key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How many records, and the sum of their hashes: equal for equal records in any order."""

    rows: int
    total: int


class FingerprintSum:
    """Takes the fingerprint of records that pass by."""

    def __init__(self) -> None:
        self._rows = 0
        self._total = 0

    def add(self, record: SinkRecord) -> None:
        """One more."""
        rest = repr((record.topic, record.key, record.value is None, record.headers, record.partition)).encode()
        self._rows += 1
        self._total += xxhash.xxh3_64_intdigest(rest, seed=xxhash.xxh3_64_intdigest(record.value or b""))

    def fingerprint(self) -> Fingerprint:
        """Of all that passed."""
        return Fingerprint(self._rows, self._total & 0xFFFFFFFFFFFFFFFF)


def check_schema(schema: StructType, topic: str | None) -> None:
    """Whether rows of this schema can be written. Raises SinkRefused."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        raise SinkRefused(f"there is no column value to write, only {', '.join(types) or 'none at all'}")
    if topic is None and "topic" not in types:
        raise SinkRefused("nothing says where rows go: set the option topic, or add a column of that name")
    for name, accepted in ACCEPTED.items():
        if name in types and types[name] not in accepted:
            raise SinkRefused(f"column {name} is {types[name]}, and should be {' or '.join(accepted)}: cast it")


def outgoing(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[SinkRecord]:
    """The records of batches; `topic` goes before the column of that name. Raises SinkRefused."""
    for batch in batches:
        columns: dict[str, Any] = {
            name: batch.column(name).to_pylist() for name in ACCEPTED if name in batch.schema.names
        }
        absent = [None] * batch.num_rows
        for row_topic, key, value, headers, partition in zip(
            absent if topic is not None else columns["topic"],
            columns.get("key", absent),
            columns["value"],
            columns.get("headers", absent),
            columns.get("partition", absent),
            strict=True,
        ):
            target = topic or row_topic
            if not target:
                raise SinkRefused("a row has no topic: its column topic is null, and no option names one")
            yield SinkRecord(target, _bytes(key), _bytes(value), _pairs(headers), _number(partition))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _pairs(headers: list[dict[str, Any] | None] | None) -> list[tuple[str, bytes | None]] | None:
    if not headers:
        return None
    found = [(header["key"], header["value"]) for header in headers if header is not None]
    if len(found) < len(headers) or any(name is None for name, _ in found):
        raise SinkRefused("a row has a header that is null, or whose key is null: a header needs a key")
    return found


def _number(partition: int | None) -> int:
    if partition is None:
        return -1
    if partition < 0:
        raise SinkRefused(f"a row has the partition {partition}: it should be 0 or more, or null")
    return partition
