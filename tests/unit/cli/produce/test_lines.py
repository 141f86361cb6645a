from __future__ import annotations

from typing import Any

import click
import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.records.formats import PLAIN, STRING
from barnabas.cli.produce.lines import JsonReader, LineReader, OutgoingRecord

ALL = {"parse.key": "true", "parse.headers": "true"}


def read(line: str, properties: dict[str, str], value: str = "string") -> OutgoingRecord:
    return LineReader(properties, STRING, PLAIN[value]).read(line, 3)


@pytest.mark.parametrize(
    ("line", "properties", "expected"),
    [
        ("a\tb", {}, OutgoingRecord(value=b"a\tb")),
        ("", {}, OutgoingRecord(value=b"")),
        ("k\tv\tw", {"parse.key": "true"}, OutgoingRecord(key=b"k", value=b"v\tw")),
        ("k::v", {"parse.key": " TRUE ", "key.separator": "::"}, OutgoingRecord(key=b"k", value=b"v")),
        ("h1:v1,h2:v:2\tk\tv", ALL, OutgoingRecord(headers=[("h1", b"v1"), ("h2", b"v:2")], key=b"k", value=b"v")),
        ("h:v\tv", {"parse.headers": "true"}, OutgoingRecord(headers=[("h", b"v")], value=b"v")),
        ("h:N\tN\tN", {**ALL, "null.marker": "N"}, OutgoingRecord(headers=[("h", None)], key=None, value=None)),
        ("N\tk\tv", {**ALL, "null.marker": "N"}, OutgoingRecord(key=b"k", value=b"v")),
        ("only value", {**ALL, "ignore.error": "true"}, OutgoingRecord(value=b"only value")),
        ("h\tk\tv", {**ALL, "ignore.error": "true"}, OutgoingRecord(headers=[("h", None)], key=b"k", value=b"v")),
        ("h:1,,\tk\tv", {**ALL, "ignore.error": "true"}, OutgoingRecord(headers=[("h", b"1")], key=b"k", value=b"v")),
        ("h=1;i=2|k|v", {**ALL, "headers.delimiter": "|", "headers.separator": ";", "headers.key.separator": "=",
                         "key.separator": "|"},
         OutgoingRecord(headers=[("h", b"1"), ("i", b"2")], key=b"k", value=b"v")),
    ],
)  # fmt: skip
def test_lines_are_read_as_kafka_reads_them(line: str, properties: dict[str, str], expected: OutgoingRecord) -> None:
    assert read(line, properties) == expected


@pytest.mark.parametrize(
    ("line", "properties", "text"),
    [
        ("x", {"parse.key": "true"}, "No key separator found on line number 3: 'x'"),
        ("x", {"parse.headers": "true"}, "No headers delimiter found on line number 3: 'x'"),
        ("x\ty", {"parse.headers": "true"}, "No header key separator found in pair 'x' on line number 3"),
        ("N:1\ty", {"parse.headers": "true", "null.marker": "N"}, "Header keys should not be equal to the null marker"),
    ],
)
def test_lines_that_are_no_records_are_told(line: str, properties: dict[str, str], text: str) -> None:
    with pytest.raises(Failed, match=text):
        read(line, properties)


def test_values_of_another_format_are_told_with_their_line() -> None:
    with pytest.raises(Failed, match="Line 3 is not of the format that was asked for"):
        read("xyz", {}, "hex")


@pytest.mark.parametrize(
    "properties",
    [
        {"headers.delimiter": ","},
        {"headers.key.separator": ","},
        {"null.marker": "\t"},
        {"null.marker": "#", "key.separator": "#"},
    ],
)
def test_marks_that_clash_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(click.UsageError, match="may not be equal"):
        LineReader(properties, STRING, STRING)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"value": "v"}', OutgoingRecord(value=b"v")),
        ('{"value": {"a": 1}, "key": "k"}', OutgoingRecord(value=b'{"a":1}', key=b"k")),
        ('{"key": "k", "value": null}', OutgoingRecord(value=None, key=b"k")),
        (
            '{"value": "v", "headers": {"a": "1", "b": null}}',
            OutgoingRecord(value=b"v", headers=[("a", b"1"), ("b", None)]),
        ),
        (
            '{"value": "v", "headers": [["a", "1"], ["a", "2"]]}',
            OutgoingRecord(value=b"v", headers=[("a", b"1"), ("a", b"2")]),
        ),
        ('{"value": "v", "timestamp": 5, "partition": 2}', OutgoingRecord(value=b"v", timestamp=5, partition=2)),
        ('{"value": "v", "timestamp": "1970-01-01T00:00:01Z"}', OutgoingRecord(value=b"v", timestamp=1000)),
        ('{"value": "v", "topic": "t", "offset": 9, "timestamp": -1}', OutgoingRecord(value=b"v")),
    ],
)
def test_lines_of_json_are_records(line: str, expected: OutgoingRecord) -> None:
    assert JsonReader(STRING, STRING, keep_partition=True).read(line, 1) == expected


@pytest.mark.parametrize("line", ["", "[]", "7", '{"vale": 1}', '{"headers": 5}', '{"timestamp": "soon"}'])
def test_json_that_is_no_record_is_told_with_its_line(line: str) -> None:
    with pytest.raises(Failed, match="Line 4 is no record"):
        JsonReader(STRING, STRING, keep_partition=True).read(line, 4)


def test_partitions_are_kept_on_request() -> None:
    reader: Any = JsonReader(STRING, STRING, keep_partition=False)
    assert reader.read('{"value": "v", "partition": 2}', 1).partition is None
