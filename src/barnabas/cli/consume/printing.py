"""Records as lines: as kafka-console-consumer prints them, or one JSON object per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.common.records.formats import STRING, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.common.records.formats import Format
    from barnabas.clients.records import ConsumerRecord

TIMESTAMP_NAMES: Final = {1: "CreateTime", 2: "LogAppendTime"}
COLUMNS: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
"""What a line can have, in the order of kafka-console-consumer."""
SWITCHES: Final = tuple(f"print.{column}" for column in COLUMNS)
PROPERTIES: Final = (
    *SWITCHES,
    "key.separator",
    "line.separator",
    "headers.separator",
    "null.literal",
    "key.deserializer",
    "value.deserializer",
)


class LinePrinter:
    """The lines of Kafka's DefaultMessageFormatter, with its properties."""

    def __init__(self, properties: Mapping[str, str], key: Format, value: Format) -> None:
        self._key = key
        self._value = value
        shown = {"value": "true"} | {
            column: properties[f"print.{column}"] for column in COLUMNS if f"print.{column}" in properties
        }
        wanted = {column for column, choice in shown.items() if choice.strip().lower() == "true"}
        self._columns = [getattr(self, f"_{column}_column") for column in COLUMNS if column in wanted]
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._line_separator = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()

    def line(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        """The record with its line's end; nothing if no column is wanted."""
        if not self._columns:
            return b""
        return self._key_separator.join([column(record) for column in self._columns]) + self._line_separator

    def _timestamp_column(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        name = TIMESTAMP_NAMES.get(record.timestamp_type)
        return b"NO_TIMESTAMP" if name is None else f"{name}:{record.timestamp}".encode()

    def _partition_column(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        return f"Partition:{record.partition}".encode()

    def _offset_column(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        return f"Offset:{record.offset}".encode()

    def _delivery_column(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        count = record.delivery_count
        return f"Delivery:{'NOT_PRESENT' if count is None else count}".encode()

    def _epoch_column(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        return f"Epoch:{'NOT_PRESENT' if record.leader_epoch is None else record.leader_epoch}".encode()

    def _headers_column(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.join(
            [name.encode() + b":" + (self._null if value is None else value) for name, value in record.headers]
        )

    def _key_column(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        return self._null if record.key is None else self._key.to_line(record.key)

    def _value_column(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        return self._null if record.value is None else self._value.to_line(record.value)


class JsonPrinter:
    """One JSON object per record, with everything that is known of it; `barnabas produce --json` reads it."""

    def __init__(self, key: Format, value: Format) -> None:
        self._key = key
        self._value = value

    def line(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        """The record as one line."""
        return to_json(as_json(record, self._key, self._value)) + b"\n"


class NoPrinter:
    """Prints nothing: for counting, and for measuring."""

    def line(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        """Nothing."""
        return b""


def as_json(record: ConsumerRecord[bytes, bytes], key: Format, value: Format) -> dict[str, Any]:
    """A record as plain values. Headers are an object, or a list of pairs where a name comes twice."""
    headers: Any = [(name, None if text is None else STRING.decode(text)) for name, text in record.headers]
    if len({name for name, _ in headers}) == len(headers):
        headers = dict(headers)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else key.decode(record.key),
        "value": None if record.value is None else value.decode(record.value),
        "headers": headers,
    }
