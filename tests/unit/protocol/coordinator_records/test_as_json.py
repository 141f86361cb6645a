"""Records as text: what older Kafkas wrote, and what nobody can read. What Kafka 4.3.0 prints is compared in compat."""

from __future__ import annotations

import json
import struct

import pytest

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.coordinator_records.as_json import DELETED, offsets_record, transaction_record


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


OFFSET_KEY = struct.pack(">h", 1) + text("g") + text("t") + struct.pack(">i", 7)
GROUP_KEY = struct.pack(">h", 2) + text("g")


def shown(key: bytes, value: bytes) -> object:
    found = offsets_record(key, value)
    assert found is not None
    return json.loads(found[1])


def test_a_key_says_its_type() -> None:
    assert offsets_record(OFFSET_KEY, None) == ('{"type":"1","data":{"group":"g","topic":"t","partition":7}}', DELETED)


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (
            struct.pack(">hq", 1, 5) + text("m") + struct.pack(">qq", 10, 20),
            {"offset": 5, "metadata": "m", "commitTimestamp": 10, "expireTimestamp": 20},
        ),
        (
            struct.pack(">hq", 2, 5) + text("m") + struct.pack(">q", 10),
            {"offset": 5, "metadata": "m", "commitTimestamp": 10},
        ),
        (
            struct.pack(">hqi", 3, 5, 2) + text("") + struct.pack(">q", 10),
            {"offset": 5, "leaderEpoch": 2, "metadata": "", "commitTimestamp": 10},
        ),
    ],
)
def test_a_version_shows_the_fields_that_it_has(value: bytes, fields: dict[str, object]) -> None:
    version = str(struct.unpack_from(">h", value)[0])
    assert shown(OFFSET_KEY, value) == {"version": version, "data": fields}


def member(subscription: bytes) -> bytes:
    """Of version 0: member, client and host, a session timeout, subscription and no assignment."""
    return text("m") + text("c") + text("/h") + struct.pack(">ii", 6000, len(subscription)) + subscription + bytes(4)


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (struct.pack(">hi", 0, 1) + text("t") + struct.pack(">i", -1), {"topics": ["t"], "userData": None}),
        (b"\x00\x00\xff", "AAD/"),
        (b"\xff\xff\x00\x00", "//8AAA=="),
        (b"", ""),
    ],
)
def test_what_members_sent_is_shown_as_far_as_it_can_be_read(subscription: bytes, expected: object) -> None:
    value = struct.pack(">h", 0) + text("consumer") + struct.pack(">i", 3) + text("range") + text("m")
    found = shown(GROUP_KEY, value + struct.pack(">i", 1) + member(subscription))
    assert found == {
        "version": "0",
        "data": {
            "protocolType": "consumer",
            "generation": 3,
            "protocol": "range",
            "leader": "m",
            "members": [
                {
                    "memberId": "m",
                    "clientId": "c",
                    "clientHost": "/h",
                    "sessionTimeout": 6000,
                    "subscription": expected,
                    "assignment": "",
                }
            ],
        },
    }


def test_types_that_are_not_known_are_left_to_the_caller() -> None:
    assert offsets_record(struct.pack(">h", 99), b"\0\0") is None
    assert transaction_record(struct.pack(">h", 9), b"\0\0") is None


def test_what_is_broken_is_told() -> None:
    with pytest.raises(InvalidRecord):
        offsets_record(OFFSET_KEY, struct.pack(">h", 1))
