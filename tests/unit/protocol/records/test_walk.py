"""Records are gone over without being read; what is found is what a reader finds."""

from __future__ import annotations

import pytest

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.records.records import Header, Record, encode_record, encode_records, read_records, varint
from barnabas.protocol.records.walk import Course, walk

NO_RECORD = bytes.fromhex("0c 00 00 00 01 01 00")
"""A record without anything: length 6, attributes, timestamp, offset, null key, null value, no headers."""
VALUES = {
    "empty": b"",
    "short": b"v",
    "text": b'{"user": "ada", "amount": 12, "note": "@ABC~"}' * 3,
    "zeros": bytes(300),
    "high bytes": b"\xff" * 200,
    "two-byte lengths": b"x" * 70,
    "larger than a two-byte length": b"z" * 9000,
    "larger than a three-byte length": b"w" * 1_100_000,
}
COUNTS = (1, 2, 3, 4, 9, 33, 64, 65, 66, 100, 200)


def outcome(payload: bytes, count: int) -> tuple[bool, int] | None:
    """What a reader finds: whether records are numbered, and their largest timestamp delta; None if they are none."""
    try:
        records = list(read_records(payload, count))
    except InvalidRecord:
        return None
    numbered = all(record.offset_delta == index for index, record in enumerate(records))
    return numbered, max(record.timestamp_delta for record in records)


def walked(payload: bytes, count: int) -> tuple[bool, int] | None:
    """The same, as the walk finds it: at once, from the middle of a view, and in parts."""
    found: list[tuple[bool, int] | None] = []
    for data, start in ((payload, 0), (memoryview(b"h" * 61 + payload), 61)):
        try:
            found.append(walk(data, start, count))
        except InvalidRecord:
            found.append(None)
    try:
        course = Course(payload, 0, count)
        while course.go_on(7):
            pass
        found.append(course.finish())
    except InvalidRecord:
        found.append(None)
    assert found[0] == found[1] == found[2]
    return found[0]


@pytest.mark.parametrize("name", VALUES)
def test_records_are_gone_over_however_long_they_are(name: str) -> None:
    value = VALUES[name]
    for count in COUNTS:
        if count > 2 and len(value) * count > 2_000_000:
            break
        records = [Record(i, i * 1000, b"k" if i % 2 else None, value) for i in range(count)]
        payload = encode_records(records)
        assert walked(payload, count) == (True, (count - 1) * 1000), f"{count} records"
        assert walked(payload, count + 1) is None, f"{count} records"
        assert walked(payload, count - 1) is None, f"{count} records"
        assert walked(payload[:-1], count) is None, f"{count} records"
        assert walked(payload + b"\0", count) is None, f"{count} records"
        assert walked(payload, 2**31 - 1) is None, f"{count} records"


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([Record(i, i // 3, None, b"x" * 20) for i in range(300)], id="equally long, later and later"),
        pytest.param([Record(i, -i, b"key", b"x" * 20) for i in range(300)], id="earlier and earlier"),
        pytest.param([Record(i, i % 7 - 3, b"k%03d" % i, b"x" * 20) for i in range(300)], id="around the first"),
        pytest.param([Record(i, 500 - i, b"k%03d" % i, b"x" * 100) for i in range(300)], id="times of two bytes"),
        pytest.param([Record(i, i * i, None, b"x" * (i % 50)) for i in range(300)], id="of many lengths"),
        pytest.param([Record(i, 0, b"%d" % i, None if i % 5 else b"v" * i) for i in range(300)], id="tombstones"),
        pytest.param(
            [Record(i, 0, b"k", b"v", (Header("h", b"x"), Header("", None))) for i in range(90)], id="headers"
        ),
        pytest.param([Record(i, 0, b"k" * 80, b"v") for i in range(90)], id="long keys"),
        pytest.param([Record(i, 0, None, b"v", (Header("h" * 90, b"x" * 99),)) for i in range(90)], id="long headers"),
        pytest.param([Record(i, 0, None, b"v" * 4) for i in range(9_000)], id="deltas of three bytes"),
        pytest.param([Record(7, 0, None, b"v")] * 100, id="all with one number"),
        pytest.param([Record(i if i != 50 else 0, 0, None, b"v") for i in range(100)], id="one number is wrong"),
        pytest.param([Record(i if i != 99 else 98, 0, None, b"v") for i in range(100)], id="the last number is wrong"),
        pytest.param([Record(i, 2**62 if i == 70 else 0, None, b"v") for i in range(100)], id="one is far away"),
    ],
)
def test_what_is_found_is_what_a_reader_finds(records: list[Record]) -> None:
    payload = encode_records(records)
    assert walked(payload, len(records)) == outcome(payload, len(records)) is not None


def assert_wrong_bytes_are_found(count: int, step: int) -> None:
    """Change one byte of so many records at a time, each that is a step behind the last, as a reader would find it."""
    payload = encode_records([Record(i, i // 9, b"key", b"some value") for i in range(count)])
    for at in range(0, len(payload), step):
        for wrong in (payload[at] ^ 1, payload[at] ^ 0x80, 0, 0xFF):
            damaged = payload[:at] + bytes((wrong,)) + payload[at + 1 :]
            assert walked(damaged, count) == outcome(damaged, count), f"byte {at} is {wrong}"


@pytest.mark.parametrize(("count", "step"), [(1, 1), (3, 1), (16, 1), (70, 29)])
def test_one_byte_that_is_wrong_is_found(count: int, step: int) -> None:
    """Wherever it is in a record; tests/properties go through many records byte by byte."""
    assert_wrong_bytes_are_found(count, step)


@pytest.mark.parametrize(
    ("payload", "count", "reason"),
    [
        (NO_RECORD, 0, "7 bytes are left after the 0 records"),
        (NO_RECORD, 2, "record 1 goes past the end"),
        (NO_RECORD, 4, "the 7 bytes of the batch's records do not hold the 4"),
        (NO_RECORD * 2, 1, "7 bytes are left after the 1 records"),
        (NO_RECORD[:-1], 1, "it claims 6 bytes where 5 are left"),
        (b"\x0b" + NO_RECORD[1:], 1, "it claims -6 bytes"),
        (b"\x02" + NO_RECORD[1:], 1, "it claims 1 bytes"),
        (b"\x0e" + NO_RECORD[1:] + b"\x00", 1, "ends? 1 bytes before"),
        (bytes.fromhex("0c 00 00 00 7e 01 00"), 1, "a field claims 63 bytes where 2 are left"),
        (bytes.fromhex("0c 00 00 00 01 01 7e"), 1, "claims 63 headers"),
        (bytes.fromhex("0c 00 00 00 01 01 01"), 1, "claims -1 headers"),
        (bytes.fromhex("10 00 00 00 01 01 02 01 01"), 1, "a header has no key"),
        (b"\xff" * 20, 1, "does not fit 32 bits"),
        (b"\x28" + b"\xff" * 20, 1, "does not fit 64 bits"),
        (b"", 1, "goes past the end"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(payload: bytes, count: int, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        walk(payload, 0, count)


def test_batches_that_are_equally_large_are_told_apart() -> None:
    alike = (
        [Record(i, 2, b"key", b"x" * 20) for i in range(16)],
        [Record(i, i, None, b"x" * 23) for i in range(16)],
        [Record(i, 63 - i, b"longer", b"x" * 17) for i in range(16)],
        [Record(i, 5, None, b"x" * (22 + i % 2 * 2)) for i in range(16)],
        [Record(i, 5, None, b"x" * 21, (Header("", b""),)) for i in range(16)],
        [Record(i, 5, b"key", b"x" * 20)._replace(offset_delta=max(i, 1)) for i in range(16)],
    )
    assert len({len(encode_records(records)) for records in alike}) == 1
    for records in (*alike, *reversed(alike)):
        payload = encode_records(records)
        assert walked(payload, 16) == outcome(payload, 16) is not None


def test_a_record_that_borrows_bytes_of_the_next_one_is_refused() -> None:
    greedy = bytes.fromhex("0c 00 00 00 01 04 00")
    assert walked(greedy + NO_RECORD, 2) is None


def test_numbers_inside_a_value_are_not_taken_for_records() -> None:
    decoy = encode_record(Record(99, 0, None, b"inner"))
    payload = encode_records([Record(i, 0, None, decoy * 3 + b"tail") for i in range(90)])
    assert walked(payload, 90) == (True, 0)
    assert walked(payload, 100) is None


def spaced(delta: bytes, rest: bytes) -> bytes:
    """A record whose offset delta is stored as it is given, followed by the rest of the record."""
    body = bytes(2) + delta + rest
    return varint(len(body)) + body


@pytest.mark.parametrize("count", [4, 20, 64])
@pytest.mark.parametrize("width", [2, 3])
def test_a_number_of_more_bytes_than_it_needs_moves_no_other_field(count: int, width: int) -> None:
    wide = bytes((0x80,)) * (width - 1) + b"\0"
    first = spaced(wide, b"\x01" + varint(80) + b"v" * 80 + b"\0")
    good = b"".join(spaced(varint(i), b"\x01\x28" + b"x" * 20 + b"\0") for i in range(1, count))
    assert walked(first + good, count) == (True, 0)
    # what follows is a key of 64 bytes to whom takes the second byte of the number before for the length of a key
    no_key = b"".join(spaced(varint(i), b"\x80" + b"\xff" * 64 + b"\x28" + b"x" * 20 + b"\0") for i in range(1, count))
    assert walked(first + no_key, count) is None


@pytest.mark.parametrize("number", [0, 5, 63, 64, 80])
@pytest.mark.parametrize("width", [2, 3, 5])
def test_a_number_may_take_more_bytes_than_it_needs(number: int, width: int) -> None:
    records = [spaced(varint(i), b"\x01\x01\0") for i in range(120)]
    wide = bytes((number << 1 & 0x7F | 0x80, number >> 6 | 0x80 if width > 2 else number >> 6))
    wide += bytes((0x80,)) * (width - 3) + b"\0" * (width > 2)
    records[number] = spaced(wide, b"\x01\x01\0")
    for count in range(number + 1, len(records)):
        assert walked(b"".join(records[:count]), count) == (True, 0)
