"""Batches as a whole: the header, the builder, control batches."""

from __future__ import annotations

import subprocess
import sys

import crc32c as reference
import pytest

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch, checksum, seal
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker, control_type, read_marker
from barnabas.protocol.records.pairs import build_batch_of_pairs
from barnabas.protocol.records.records import Record, read_records

NOW = 1_700_000_000_000


def test_the_header_says_what_was_asked_for() -> None:
    records = [Record(i, i * 10, b"k", b"v") for i in range(3)]
    batch = build_batch(
        records, base_offset=40, base_timestamp=NOW, leader_epoch=7, producer_id=9, producer_epoch=2, base_sequence=5
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 42, 3)
    assert (header.leader_epoch, header.magic, header.attributes) == (7, 2, 0)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 20)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 5, 7)
    assert header.size == len(batch)
    assert header.crc == reference.crc32c(batch[21:]) == checksum(header, batch[HEADER_SIZE:])
    assert seal(header, batch[HEADER_SIZE:]) == batch


def test_append_time_is_the_time_of_all_records() -> None:
    header = read_header(build_batch([Record(0, 0, None, b"v")], base_timestamp=NOW, append_time=NOW + 5))
    assert header.attributes == 0x08
    assert header.max_timestamp == NOW + 5


def test_sequences_wrap_to_zero() -> None:
    records = [Record(i, 0, None, None) for i in range(3)]
    header = read_header(build_batch(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_comes_back_as_it_went_in(kind: ControlType) -> None:
    marker = EndOfTransaction(kind, coordinator_epoch=12)
    batch = build_marker(marker, timestamp=NOW, producer_id=4, producer_epoch=1)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    (record,) = read_records(batch[HEADER_SIZE:], 1)
    assert read_marker(record) == marker
    assert batch == build_batch(
        [record], base_timestamp=NOW, producer_id=4, producer_epoch=1, transactional=True, control=True
    )


def test_control_records_of_other_kinds_are_named() -> None:
    assert control_type(bytes.fromhex("00000002")) is ControlType.LEADER_CHANGE
    assert control_type(bytes.fromhex("00000063")) is ControlType.UNKNOWN
    with pytest.raises(InvalidRecord, match="does not end a transaction"):
        read_marker(Record(0, 0, bytes.fromhex("00000002"), b""))


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", bytes.fromhex("ffff0001")])
def test_damaged_control_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        control_type(key)


@pytest.mark.parametrize("value", [None, b"\x00", bytes.fromhex("ffff00000001")])
def test_damaged_markers_are_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_marker(Record(0, 0, bytes.fromhex("00000001"), value))


def test_the_checksum_goes_on_from_what_came_before() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


def test_the_checksum_is_loaded_without_its_slow_package() -> None:
    program = (
        "import sys, barnabas.protocol.records.checksum as c; print('crc32c' in sys.modules, c.crc32c(b'123456789'));"
        "import crc32c; print(crc32c.crc32c(b'123456789'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", str(0xE3069283), str(0xE3069283)]


def test_pairs_of_a_transaction_begin_at_sequence_0() -> None:
    """As with Kafka's coordinator, in each batch: -1 would be a batch without a producer's order."""
    header = read_header(build_batch_of_pairs([(b"k", b"v"), (b"l", None)], NOW, producer=(7, 3)))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
    header = read_header(build_batch_of_pairs([(b"k", b"v")], NOW))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
