"""What a record looks like as a row: the columns of Spark's own Kafka source, in Arrow and in Spark's words.

Spark takes Arrow batches only if their schema is exactly the one that it makes of its own types, so both are written
down side by side. Importing this loads pyarrow.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
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
RECORD_DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS_FIELD: Final = pa.field("headers", HEADERS)
HEADERS_DDL: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def record_schema(*, include_headers: bool = False, columns: Collection[str] | None = None) -> pa.Schema:
    """The schema of rows, or of those of its columns that are named, in the schema's order."""
    whole = RECORD_SCHEMA.append(HEADERS_FIELD) if include_headers else RECORD_SCHEMA
    return whole if columns is None else pa.schema([field for field in whole if field.name in columns])


def record_ddl(*, include_headers: bool = False) -> str:
    """The same for Spark."""
    return f"{RECORD_DDL}, {HEADERS_DDL}" if include_headers else RECORD_DDL


def to_batch(messages: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Messages of confluent-kafka, all of one partition, as a batch with these columns.

    Whatever is done to each message is done by `map` with a method of its class: no line of Python runs per record.
    """
    return pa.record_batch([_COLUMNS[field.name](messages) for field in schema], schema=schema)


def _keys(messages: Sequence[Any]) -> pa.Array:
    return pa.array(list(map(type(messages[0]).key, messages)), pa.binary())


def _values(messages: Sequence[Any]) -> pa.Array:
    return pa.array(list(map(type(messages[0]).value, messages)), pa.binary())


def _topics(messages: Sequence[Any]) -> pa.Array:
    return pa.repeat(pa.scalar(messages[0].topic(), pa.string()), len(messages))


def _partitions(messages: Sequence[Any]) -> pa.Array:
    return pa.repeat(pa.scalar(messages[0].partition(), pa.int32()), len(messages))


def _offsets(messages: Sequence[Any]) -> pa.Array:
    return pa.array(list(map(type(messages[0]).offset, messages)), pa.int64())


def _timestamps(messages: Sequence[Any]) -> pa.Array:
    pairs = list(map(type(messages[0]).timestamp, messages))
    if 0 in map(itemgetter(0), pairs):
        given = [time if kind else None for kind, time in pairs]
    else:
        given = list(map(itemgetter(1), pairs))
    times = pa.array(given, pa.timestamp("ms", tz="UTC"))
    try:
        return times.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        return _representable(times)


def _representable(times: pa.Array) -> pa.Array:
    """Times that microseconds cannot hold, a producer's mistake, become null: the record is read all the same."""
    limit = (2**63 - 1) // 1000
    return pa.array(
        [time if time is not None and abs(time) <= limit else None for time in times.cast(pa.int64()).to_pylist()],
        pa.timestamp("ms", tz="UTC"),
    ).cast(TIMESTAMP)


def _timestamp_types(messages: Sequence[Any]) -> pa.Array:
    """Kafka's numbers: -1 for none, 0 for the producer's time, 1 for the broker's. librdkafka's are one more."""
    return pa.array([message.timestamp()[0] - 1 for message in messages], pa.int32())


def _headers(messages: Sequence[Any]) -> pa.Array:
    return pa.array([_pairs(message.headers()) for message in messages], HEADERS)


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
