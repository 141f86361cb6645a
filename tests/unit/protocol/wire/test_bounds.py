"""Messages that would exhaust memory are refused before they are parsed."""

from __future__ import annotations

import struct
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kio.schema.create_topics.v2.request import CreateTopicsRequest as OldCreateTopics
from kio.schema.metadata.v13.request import MetadataRequest

import barnabas
from barnabas.broker.serving.registry import APIS
from barnabas.model.errors import InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import end_txn, fetch_request, produce, replica_fetch
from barnabas.protocol.messages.groups import offset_commit
from barnabas.protocol.wire import bounds, codec
from barnabas.protocol.wire.framing import MAX_PARTITIONS, skip_tags
from barnabas.protocol.wire.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

FOUR_BILLION = b"\xff\xff\xff\xff\x0f"
OVERLONG_ONE = b"\x81\x80\x80\x80\x20"
"""One, and a bit past the 32nd: a reader of 64 bits takes it for eight billion."""
OVERLONG_ZERO = b"\x80\x80\x80\x80\x10"


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


@pytest.mark.parametrize("milliseconds", [2**63 - 1, -(2**63), 2**53, -(2**53), 1, -1])
@pytest.mark.parametrize(
    ("key", "before"),
    [
        pytest.param(ApiKey.CREATE_DELEGATION_TOKEN, b"\0\0\1", id="lifetime of a token"),
        pytest.param(ApiKey.RENEW_DELEGATION_TOKEN, b"\1", id="renewal of a token"),
        pytest.param(ApiKey.EXPIRE_DELEGATION_TOKEN, b"\1", id="expiry of a token"),
    ],
)
def test_a_duration_that_no_python_has_is_read_as_the_longest(key: ApiKey, before: bytes, milliseconds: int) -> None:
    newest = max(api.newest for api in APIS if api.key is key)
    raw = before + struct.pack(">q", milliseconds) + b"\x01\x63\x02no"  # and a tagged field that nobody knows
    request = codec.decode(key, newest, newest, memoryview(b"head" + raw), 4)
    (read,) = (found for each in fields(request) if isinstance(found := getattr(request, each.name), timedelta))
    assert read // timedelta(milliseconds=1) == max(-bounds.LONGEST_MS, min(milliseconds, bounds.LONGEST_MS))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(OVERLONG_ONE + b"\x01\x01\0", id="array count"),
        pytest.param(OVERLONG_ZERO + b"\x01\x01\0", id="array count that stands for null"),
        pytest.param(b"\x02" + b"\0" * 16 + OVERLONG_ONE + b"\0\x01\x01\0", id="string length"),
        pytest.param(b"\x01\x01\x01" + OVERLONG_ZERO, id="count of tagged fields"),
        pytest.param(b"\x01\x01\x01\x01" + OVERLONG_ONE + b"\0", id="number of a tagged field"),
        pytest.param(b"\x01\x01\x01\x01\x07" + OVERLONG_ZERO, id="length of a tagged field"),
    ],
)
def test_a_number_that_does_not_fit_32_bits_is_refused_and_not_cut_to_size(raw: bytes) -> None:
    with pytest.raises(InvalidFrame, match="32 bits"):
        bounds.check(MetadataRequest, memoryview(raw), 0, 1000)


def test_the_fifth_byte_of_a_number_has_four_bits() -> None:
    assert read_uvarint(b"\xff\xff\xff\xff\x0f", 0) == (0xFFFFFFFF, 5)
    for last in range(0x10, 0x100):
        number = bytes((0x80, 0x80, 0x80, 0x80, last, 0))
        with pytest.raises(InvalidFrame, match="32 bits"):
            pytest.fail(f"{number.hex()} is read as {read_uvarint(number, 0)}")


@pytest.mark.parametrize(
    "unpack",
    [
        pytest.param(lambda: produce.unpack(memoryview(OVERLONG_ZERO + b"\0" * 20), 0, 12), id="produce"),
        pytest.param(
            lambda: fetch_request.unpack(memoryview(b"\0" * 21 + OVERLONG_ONE + b"\0" * 9), 0, 16), id="fetch"
        ),
        pytest.param(lambda: offset_commit.unpack(memoryview(OVERLONG_ONE + b"\0" * 20), 0, 9, 9), id="offset commit"),
        pytest.param(lambda: end_txn.unpack(memoryview(OVERLONG_ONE + b"\0" * 20), 0, 5), id="end txn"),
        pytest.param(lambda: replica_fetch.read_response(memoryview(b"\0" * 11 + OVERLONG_ONE + b"\0")), id="follower"),
        pytest.param(lambda: skip_tags(memoryview(OVERLONG_ZERO), 0), id="tagged fields of a header"),
    ],
)
def test_messages_that_are_unpacked_by_hand_refuse_such_numbers_too(unpack: Callable[[], object]) -> None:
    with pytest.raises(InvalidFrame, match="32 bits"):
        unpack()


def test_nothing_that_came_from_outside_reaches_kio_unwalked() -> None:
    package = Path(barnabas.__file__).parent
    users = {
        source.relative_to(package).as_posix()
        for source in package.rglob("*.py")
        if "entity_reader" in source.read_text("utf-8")
    }
    assert users == {"protocol/wire/bounds.py", "clients/wire/connection.py"}, (
        "read messages with bounds.read"
    )  # wire: fixed headers


@pytest.mark.parametrize("raw", [b"\x7f\xff\xff\xff" + b"\0" * 20, b"\xff\xff\xff\xfe" + b"\0" * 20])
def test_legacy_array_lengths(raw: bytes) -> None:
    with pytest.raises(InvalidFrame):
        bounds.check(OldCreateTopics, memoryview(raw), 0, 1000)


def test_null_stands_only_where_the_schema_allows_it() -> None:
    anything = b"\0\x01\x01\0"  # all topics: null
    assert bounds.check(MetadataRequest, memoryview(anything), 0, 1000) == anything
    with pytest.raises(InvalidFrame, match="null"):
        bounds.check(OldCreateTopics, memoryview(b"\xff\xff\xff\xff" + b"\0" * 5), 0, 1000)


def test_strings_are_no_longer_than_kafkas_even_where_their_length_could_say_more() -> None:
    def frame(length: int) -> memoryview:
        return memoryview(b"\x02" + b"\0" * 16 + uvarint(length + 1) + b"t" * length + b"\0\0\0\0")

    bounds.check(MetadataRequest, frame(32_767), 0, 1000)
    with pytest.raises(InvalidFrame, match="32767"):
        bounds.check(MetadataRequest, frame(32_768), 0, 1000)


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


def produce_v3(*topics: int) -> object:
    """A Produce with so many partitions in each of its topics, as it was before flexible versions."""
    body = b"".join(struct.pack(">h1si", 1, b"t", count) + count * struct.pack(">ii", 0, -1) for count in topics)
    return produce.unpack(memoryview(struct.pack(">hhii", -1, 1, 1000, len(topics)) + body), 0, 3)


def produce_v12(*topics: int) -> object:
    """The same in a flexible version."""
    body = b"".join(b"\x02t" + uvarint(count + 1) + count * b"\0\0\0\0\0\0" + b"\0" for count in topics)
    return produce.unpack(memoryview(b"\0\0\x01\0\0\x03\xe8" + uvarint(len(topics) + 1) + body + b"\0"), 0, 12)


def fetch_v4(*topics: int) -> object:
    """A Fetch with so many partitions in each of its topics, as it was before flexible versions."""
    body = b"".join(struct.pack(">h1si", 1, b"t", count) + count * struct.pack(">iqi", 0, 0, 1000) for count in topics)
    return fetch_request.unpack(memoryview(struct.pack(">iiiibi", -1, 0, 1, 1000, 0, len(topics)) + body), 0, 4)


def fetch_v12(*topics: int) -> object:
    """The same in a flexible version."""
    partition = struct.pack(">iiqiqib", 0, -1, 0, -1, -1, 1000, 0)
    body = b"".join(b"\x02t" + uvarint(count + 1) + count * partition + b"\0" for count in topics)
    head = struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1)
    return fetch_request.unpack(memoryview(head + uvarint(len(topics) + 1) + body + b"\x01\x01\0"), 0, 12)


def forget_v12(*topics: int) -> object:
    """A Fetch that drops so many partitions of each topic from its session."""
    body = b"".join(b"\x02t" + uvarint(count + 1) + count * b"\0\0\0\0" + b"\0" for count in topics)
    head = struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 1, 1) + b"\x01"
    return fetch_request.unpack(memoryview(head + uvarint(len(topics) + 1) + body + b"\x01\0"), 0, 12)


@pytest.mark.parametrize("unpack", [produce_v3, produce_v12, fetch_v4, fetch_v12, forget_v12])
def test_the_number_of_partitions_in_one_request_is_limited(unpack: Callable[..., object]) -> None:
    unpack(1, 2)
    unpack(MAX_PARTITIONS)
    for too_many in ((MAX_PARTITIONS + 1,), (MAX_PARTITIONS // 2 + 1,) * 2):
        with pytest.raises(InvalidFrame, match="more than the"):
            unpack(*too_many)
