"""Messages that would exhaust memory are refused before they are parsed."""

from __future__ import annotations

import pytest
from kio.schema.create_topics.v2.request import CreateTopicsRequest as OldCreateTopics
from kio.schema.metadata.v13.request import MetadataRequest

from barnabas.model.errors import InvalidFrame
from barnabas.protocol import bounds, codec
from barnabas.protocol.apis import ApiKey

FOUR_BILLION = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(FOUR_BILLION, id="array of four billion topics"),
        pytest.param(FOUR_BILLION + b"\0" * 500, id="the same with some bytes behind it"),
        pytest.param(b"\x01\x01\x01" + FOUR_BILLION, id="four billion tagged fields"),
        pytest.param(b"\x01\x01\x01\x01\x07" + FOUR_BILLION, id="tagged field of four gigabytes"),
        pytest.param(b"\x02" + b"\0" * 16 + FOUR_BILLION, id="topic name of four gigabytes"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff", id="number that does not end"),
        pytest.param(b"", id="nothing at all"),
    ],
)
def test_metadata_bombs(raw: bytes) -> None:
    with pytest.raises(InvalidFrame):
        bounds.check(MetadataRequest, memoryview(raw), 0, 1000)
    with pytest.raises(InvalidFrame):
        codec.decode(ApiKey.METADATA, 13, 13, memoryview(raw), 0)


@pytest.mark.parametrize("raw", [b"\x7f\xff\xff\xff" + b"\0" * 20, b"\xff\xff\xff\xfe" + b"\0" * 20])
def test_legacy_array_lengths(raw: bytes) -> None:
    with pytest.raises(InvalidFrame):
        bounds.check(OldCreateTopics, memoryview(raw), 0, 1000)


def test_null_stands_only_where_the_schema_allows_it() -> None:
    anything = b"\0\x01\x01\0"  # all topics: null
    assert bounds.check(MetadataRequest, memoryview(anything), 0, 1000) == anything
    with pytest.raises(InvalidFrame, match="null"):
        bounds.check(OldCreateTopics, memoryview(b"\xff\xff\xff\xff" + b"\0" * 5), 0, 1000)


def test_the_number_of_elements_is_limited() -> None:
    topics = 500
    raw = bytes((0xF5, 0x03)) + (b"\0" * 16 + b"\x02a\0") * topics + b"\0\0\0"
    assert bounds.check(MetadataRequest, memoryview(raw), 0, topics) == raw
    with pytest.raises(InvalidFrame, match="more array elements"):
        bounds.check(MetadataRequest, memoryview(raw), 0, topics - 1)


def test_tagged_fields_that_nobody_knows_are_passed_over() -> None:
    topic = b"\0" * 16 + b"\x02a" + b"\x01\x05\x03xyz"
    raw = b"\x02" + topic + b"\x01\0" + b"\x02\x07\x01?\x09\x00"
    request = codec.decode(ApiKey.METADATA, 13, 13, memoryview(b"before" + raw), 6)
    assert [found.name for found in request.topics] == ["a"]
    assert request.allow_auto_topic_creation
