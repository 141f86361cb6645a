"""What a record looks like as a row of Arrow: the columns of Spark's own Kafka source; `columns` has them for Spark.

Spark takes Arrow batches only if their schema is exactly the one that it makes of its own types. Importing this loads
pyarrow.
"""

from __future__ import annotations

from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from barnabas.pipelines.decode.contract import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

FARTHEST: Final = (2**63 - 1) // 1000
"""The milliseconds, before or after 1970, that microseconds can hold."""
HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
)
HEADERS_FIELD: Final = pa.field("headers", HEADERS)


def record_schema(*, include_headers: bool = False, columns: Collection[str] | None = None) -> pa.Schema:
    """The schema of rows, or of those of its columns that are named, in the schema's order."""
    whole = RECORD_SCHEMA.append(HEADERS_FIELD) if include_headers else RECORD_SCHEMA
    return whole if columns is None else pa.schema([field for field in whole if field.name in columns])


def to_batch(messages: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Messages of confluent-kafka, all of one partition, as a batch with these columns.

    Whatever is done to each message is done by `map` with a method of its class: no line of Python runs per record.
    Buffers are made here and not by `pa.array`, which loads pandas wherever that is installed: some 35 MB in each of
    Spark's workers. Nothing is cast either: that loads pyarrow.compute, 7 MB.
    """
    records = _Records(messages)
    return pa.record_batch([_COLUMNS[field.name](records) for field in schema], schema=schema)


class _Records:
    """Messages, and what more than one column is made of."""

    def __init__(self, messages: Sequence[Any]) -> None:
        self.messages = messages
        self.kind = type(messages[0])

    @cached_property
    def times(self) -> list[tuple[int, int]]:
        """The kind of each timestamp, in librdkafka's numbers, and its milliseconds."""
        return list(map(self.kind.timestamp, self.messages))

    @cached_property
    def time_kinds(self) -> set[int]:
        """The kinds that there are."""
        return set(map(itemgetter(0), self.times))


def _keys(records: _Records) -> pa.Array:
    return _binary(list(map(records.kind.key, records.messages)))


def _values(records: _Records) -> pa.Array:
    return _binary(list(map(records.kind.value, records.messages)))


def _binary(values: list[bytes | None]) -> pa.Array:
    if None not in values:
        present = cast("list[bytes]", values)
        return _joined(present, pa.binary())
    if all(value is None for value in values):
        return pa.nulls(len(values), pa.binary())
    return pa.array(values, pa.binary())


def _joined(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=ends[1:])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def _topics(records: _Records) -> pa.Array:
    return pa.repeat(_joined([records.messages[0].topic().encode()], pa.string())[0], len(records.messages))


def _partitions(records: _Records) -> pa.Array:
    return _constant(records.messages[0].partition(), len(records.messages))


def _offsets(records: _Records) -> pa.Array:
    found = np.fromiter(map(records.kind.offset, records.messages), np.int64, len(records.messages))
    return _numbers(found, pa.int64())


def _numbers(found: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(found)])


def _constant(number: int, count: int) -> pa.Array:
    return _numbers(np.full(count, number, np.int32), pa.int32())


def _timestamps(records: _Records) -> pa.Array:
    """Times that microseconds cannot hold, a producer's mistake, become null: the record is read all the same."""
    if 0 not in records.time_kinds:
        found = np.fromiter(map(itemgetter(1), records.times), np.int64, len(records.times))
        if found.min() >= -FARTHEST and found.max() <= FARTHEST:
            return _numbers(found * 1000, TIMESTAMP)
    times = [time * 1000 if kind and abs(time) <= FARTHEST else None for kind, time in records.times]
    return pa.array(times, TIMESTAMP)


def _timestamp_types(records: _Records) -> pa.Array:
    """Kafka's numbers: -1 for none, 0 for the producer's time, 1 for the broker's. librdkafka's are one more."""
    if len(records.time_kinds) == 1:
        return _constant(records.times[0][0] - 1, len(records.messages))
    return pa.array([kind - 1 for kind, _ in records.times], pa.int32())


def _headers(records: _Records) -> pa.Array:
    return pa.array([_pairs(headers) for headers in map(records.kind.headers, records.messages)], HEADERS)


def _pairs(headers: Any) -> list[dict[str, Any]] | None:
    return [{"key": name, "value": value} for name, value in headers] if headers else None


_COLUMNS: Final = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
