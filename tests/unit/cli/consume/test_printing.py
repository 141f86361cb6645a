from __future__ import annotations

import json

import pytest

from barnabas.cli.common.records.formats import PLAIN, STRING
from barnabas.cli.consume.printing import JsonPrinter, LinePrinter, NoPrinter
from barnabas.cli.produce.lines import JsonReader
from barnabas.clients.records import ConsumerRecord

RECORD = ConsumerRecord("t", 1, 5, 1000, 1, b"k", b"v", (("a", b"1"), ("b", None)), 3)
BARE = ConsumerRecord[bytes, bytes]("t", 0, 0, -1, 0, None, None)
EVERYTHING = {
    f"print.{column}": "true" for column in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
}


@pytest.mark.parametrize(
    ("record", "properties", "expected"),
    [
        (RECORD, {}, b"v\n"),
        (RECORD, {"print.key": "true"}, b"k\tv\n"),
        (RECORD, {"print.key": "true", "print.value": "false"}, b"k\n"),
        (RECORD, {"print.value": "false"}, b""),
        (
            RECORD,
            EVERYTHING,
            b"CreateTime:1000\tPartition:1\tOffset:5\tDelivery:NOT_PRESENT\tEpoch:3\ta:1,b:null\tk\tv\n",
        ),
        (
            BARE,
            EVERYTHING,
            b"NO_TIMESTAMP\tPartition:0\tOffset:0\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n",
        ),
        (BARE, {"null.literal": "-", "print.key": "TRUE ", "key.separator": "|", "line.separator": ";"}, b"-|-;"),
        (RECORD, {"print.headers": "true", "headers.separator": ";", "print.value": "no"}, b"a:1;b:null\n"),
    ],
)
def test_lines_are_those_of_kafka(
    record: ConsumerRecord[bytes, bytes], properties: dict[str, str], expected: bytes
) -> None:
    assert LinePrinter(properties, STRING, STRING).line(record) == expected


def test_formats_are_for_keys_and_values() -> None:
    record = ConsumerRecord("t", 0, 0, 0, 1, b"\x00\x00\x00\x01", b"\xff")
    assert LinePrinter({"print.key": "true"}, PLAIN["int"], PLAIN["hex"]).line(record) == b"1\tff\n"


def test_json_has_everything_and_can_be_sent_again() -> None:
    line = JsonPrinter(STRING, STRING).line(RECORD)
    assert json.loads(line) == {
        "topic": "t", "partition": 1, "offset": 5, "timestamp": 1000, "key": "k", "value": "v",
        "headers": {"a": "1", "b": None},
    }  # fmt: skip
    sent = JsonReader(STRING, STRING, keep_partition=True).read(line.decode(), 1)
    assert (sent.key, sent.value, sent.headers, sent.partition, sent.timestamp) == (
        RECORD.key, RECORD.value, list(RECORD.headers), 1, 1000,
    )  # fmt: skip


def test_headers_of_one_name_are_pairs() -> None:
    record = ConsumerRecord("t", 0, 0, 0, 1, None, b"v", (("a", b"1"), ("a", b"2")))
    assert json.loads(JsonPrinter(STRING, STRING).line(record))["headers"] == [["a", "1"], ["a", "2"]]


def test_nothing_can_be_printed_too() -> None:
    assert NoPrinter().line(RECORD) == b""
