"""Varints and records."""

from __future__ import annotations

import pytest

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.records.records import (
    INT_BITS,
    LONG_BITS,
    Header,
    Record,
    encode_record,
    encode_records,
    read_length,
    read_records,
    read_records_from,
    read_varint,
    varint,
)

NO_RECORD = bytes.fromhex("0c 00 00 00 01 01 00")
"""A record without anything: length 6, attributes, timestamp, offset, null key, null value, no headers."""


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-64, "7f"),
        (-65, "8101"),
        (8191, "fe7f"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varints_are_zigzag_seven_bits_a_byte(number: int, encoded: str) -> None:
    assert varint(number).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (number, len(encoded) // 2)


def test_a_varlong_takes_up_to_ten_bytes() -> None:
    for number in (2**63 - 1, -(2**63)):
        encoded = varint(number)
        assert len(encoded) == 10
        assert read_varint(encoded, 0, LONG_BITS) == (number, 10)


def test_a_varint_that_does_not_end_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="does not fit 32 bits"):
        read_varint(b"\xff" * 12, 0)


@pytest.mark.parametrize(
    ("encoded", "bits"),
    [("8080808010", INT_BITS), ("ffffffff7f", INT_BITS), ("80808080808080808002", LONG_BITS)],
)
def test_a_varint_that_does_not_fit_its_bits_is_refused_and_not_cut_to_size(encoded: str, bits: int) -> None:
    with pytest.raises(InvalidRecord, match=f"{bits} bits"):
        read_varint(bytes.fromhex(encoded), 0, bits)


def test_a_record_does_not_begin_before_the_last_one() -> None:
    with pytest.raises(InvalidRecord, match="length of -70000 bytes"):
        read_length(varint(-70_000), 0)


def test_the_smallest_record_has_seven_bytes() -> None:
    assert encode_record(Record(0, 0, None, None)) == NO_RECORD


def test_records_come_back_as_they_went_in() -> None:
    records = [
        Record(0, 0, b"key", b"value", (Header("trace", b"1"), Header("none", None))),
        Record(1, -5, None, b""),
        Record(2, 10**12, b"", None, (Header("", b""),)),
    ]
    assert list(read_records(encode_records(records), 3)) == records


def test_a_header_key_that_is_not_utf8_survives() -> None:
    raw = encode_record(Record(0, 0, None, None, (Header("kk", None),))).replace(b"kk", b"\xff\xfe")
    (record,) = read_records(raw, 1)
    assert encode_record(record) == raw


@pytest.mark.parametrize(
    ("payload", "count", "reason"),
    [
        (NO_RECORD, 2, "record 1 of 2 goes past the end"),
        (NO_RECORD * 2, 1, "7 bytes are left after the 1 records"),
        (NO_RECORD[:-1], 1, "claims 6 bytes where 5 are left"),
        (b"\x0b" + NO_RECORD[1:], 1, "claims -6 bytes"),
        (b"\x02" + NO_RECORD[1:], 1, "claims 1 bytes"),
        (b"\x0e" + NO_RECORD[1:] + b"\x00", 1, "ends 1 bytes off"),
        (bytes.fromhex("0c 00 00 00 7e 01 00"), 1, "claims 63 bytes where 2 are left"),
        (bytes.fromhex("0c 00 00 00 01 01 7e"), 1, "claims 63 headers"),
        (bytes.fromhex("0c 00 00 00 01 01 01"), 1, "claims -1 headers"),
        (bytes.fromhex("10 00 00 00 01 01 02 01 01"), 1, "no key"),
        (b"\xff" * 20, 1, "does not fit 32 bits"),
        (b"", 1, "goes past the end"),
    ],
)
def test_records_that_do_not_fit_are_refused(payload: bytes, count: int, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        list(read_records(payload, count))


@pytest.mark.parametrize("least", [-5, 0, 1, 3, 4, 9, 10])
def test_records_are_read_from_an_offset_on(least: int) -> None:
    records = [Record(delta, 10**12, b"k" * delta, None) for delta in (0, 1, 4, 9)]
    found = list(read_records_from(encode_records(records), 4, least))
    assert found == [record for record in records if record.offset_delta >= least]


@pytest.mark.parametrize("payload", [b"", NO_RECORD, NO_RECORD[:-1], NO_RECORD * 2 + b"x", b"\xff" * 20])
@pytest.mark.parametrize("least", [0, 5])
def test_what_does_not_fit_is_refused_behind_what_is_passed_over(payload: bytes, least: int) -> None:
    with pytest.raises(InvalidRecord):
        list(read_records_from(payload, 2, least))


def test_a_record_that_borrows_bytes_of_the_next_one_is_refused() -> None:
    greedy = bytes.fromhex("0c 00 00 00 01 04 00")
    with pytest.raises(InvalidRecord, match="claims 2 bytes where 1 are left"):
        list(read_records(greedy + NO_RECORD, 2))
