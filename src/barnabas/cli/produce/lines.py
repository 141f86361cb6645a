"""Records from lines: as kafka-console-producer reads them, or one JSON object per line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.failures import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.common.records.formats import Format

SWITCHES = ("parse.key", "parse.headers", "ignore.error")
PROPERTIES = (
    *SWITCHES,
    "key.separator",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
)
JSON_FIELDS = frozenset({"key", "value", "headers", "partition", "timestamp", "topic", "offset", "time", "leaderEpoch"})


@dataclass(frozen=True, kw_only=True)
class OutgoingRecord:
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None


class LineReader:
    r"""Lines of the form `headers \t key \t value`, of which key and headers are read on request."""

    def __init__(self, properties: Mapping[str, str], key: Format, value: Format) -> None:
        """The properties are those of Kafka's LineMessageReader; raises UsageError if two of them clash."""
        self._key = key
        self._value = value
        self._parse_key = _is_true(properties, "parse.key")
        self._parse_headers = _is_true(properties, "parse.headers")
        self._ignore_error = _is_true(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t")
        self._delimiter = properties.get("headers.delimiter", "\t")
        self._separator = properties.get("headers.separator", ",")
        self._header_key_separator = properties.get("headers.key.separator", ":")
        self._null = properties.get("null.marker")
        self._check()
        self._split = re.compile(self._separator)

    def read(self, line: str, number: int) -> OutgoingRecord:
        """The record that a line says; raises Failed."""
        headers, rest = self._cut(self._parse_headers, line, self._delimiter, "headers delimiter", line, number)
        key, value = self._cut(self._parse_key, rest, self._key_separator, "key separator", line, number)
        try:
            return OutgoingRecord(
                key=None if key is None or key == self._null else self._key.from_line(key),
                value=None if value == self._null else self._value.from_line(value),
                headers=[] if headers is None or headers == self._null else self._headers(headers, number),
            )
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise Failed(f"Line {number} is not of the format that was asked for: {error}.") from error

    def _cut(self, wanted: bool, text: str, mark: str, name: str, line: str, number: int) -> tuple[str | None, str]:
        if not wanted:
            return None, text
        before, found, after = text.partition(mark)
        if found:
            return before, after
        if self._ignore_error:
            return None, text
        raise Failed(f"No {name} found on line number {number}: '{line}'")

    def _headers(self, text: str, number: int) -> list[tuple[str, bytes | None]]:
        pairs = self._split.split(text)
        while pairs and not pairs[-1]:
            pairs.pop()
        return [self._header(pair, number) for pair in pairs]

    def _header(self, pair: str, number: int) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self._header_key_separator)
        if not found:
            if self._ignore_error:
                return pair, None
            raise Failed(f"No header key separator found in pair '{pair}' on line number {number}")
        if name == self._null:
            raise Failed(f"Header keys should not be equal to the null marker '{self._null}' as they can't be null")
        return name, None if value == self._null else value.encode("utf-8", "surrogateescape")

    def _check(self) -> None:
        marks = {
            "headers.delimiter": self._delimiter,
            "headers.separator": self._separator,
            "headers.key.separator": self._header_key_separator,
        }
        names = list(marks)
        clashes = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if marks[a] == marks[b]]
        clashes += [("null.marker", name) for name in marks if marks[name] == self._null]
        if self._key_separator == self._null:
            clashes.append(("null.marker", "key.separator"))
        for first, second in clashes:
            raise click.UsageError(f"{first} and {second} may not be equal.")


class JsonReader:
    """One JSON object per line: `value`, and if wanted `key`, `headers`, `partition` and `timestamp`.

    It reads what `barnabas consume --json` prints; where a record came from is not looked at, but for its partition if
    `keep_partition`.
    """

    def __init__(self, key: Format, value: Format, *, keep_partition: bool) -> None:
        self._key = key
        self._value = value
        self._keep_partition = keep_partition

    def read(self, line: str, number: int) -> OutgoingRecord:
        """The record that a line says; raises Failed."""
        try:
            found = json.loads(line)
            if not isinstance(found, dict):
                raise ValueError("it is no JSON object")
            unknown = sorted(set(found) - JSON_FIELDS)
            if unknown:
                raise ValueError(f"there is no field {unknown[0]!r}; a value of its own goes into 'value'")
            key, value = found.get("key"), found.get("value")
            return OutgoingRecord(
                key=None if key is None else self._key.encode(key),
                value=None if value is None else self._value.encode(value),
                headers=_json_headers(found.get("headers") or []),
                partition=found.get("partition") if self._keep_partition else None,
                timestamp=_json_time(found.get("timestamp")),
            )
        except (ValueError, KeyError, TypeError, ArithmeticError, AttributeError) as error:
            raise Failed(f"Line {number} is no record: {error}.") from error


def _json_headers(given: Any) -> list[tuple[str, bytes | None]]:
    pairs = given.items() if isinstance(given, dict) else given
    return [(name, None if value is None else str(value).encode("utf-8", "surrogateescape")) for name, value in pairs]


def _json_time(given: Any) -> int | None:
    if given is None or given == -1:
        return None
    if isinstance(given, str):
        return round(datetime.fromisoformat(given).timestamp() * 1000)
    return int(given)


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"
