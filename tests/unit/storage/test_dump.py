"""`barnabas log dump`: the lines are those that Apache Kafka 3.9's DumpLogSegments prints for the same bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch, seal
from barnabas.protocol.records.compression import Codec
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Header, Record
from barnabas.storage.dump import DumpOptions, dump

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000_000
LOG = "00000000000000000000.log"
DEEP = DumpOptions(deep_iteration=True)
DATA = DumpOptions(print_data_log=True)


def placed(batch: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]


def lines(path: Path, options: DumpOptions | None = None) -> list[str]:
    """The lines after the first, which names the file."""
    first, *rest = dump(path, options or DumpOptions())
    assert first == f"Dumping {path}"
    return rest


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A segment with one batch of each kind."""
    path = tmp_path / LOG
    records = [Record(i, i, b"key%d" % i, b"value %d" % i, (Header("h1", b"x"), Header("h2", None))) for i in range(2)]
    marker = EndOfTransaction(ControlType.COMMIT, coordinator_epoch=4)
    path.write_bytes(
        build_batch(
            records, base_timestamp=NOW, leader_epoch=2, producer_id=5, producer_epoch=1, base_sequence=2**31 - 1
        )
        + build_batch([Record(0, 0, None, None)], base_offset=2, base_timestamp=NOW, append_time=NOW + 9)
        + placed(build_marker(marker, timestamp=NOW, producer_id=5, producer_epoch=1), 3)
        + build_batch([Record(0, 0, b"\xff", "ü".encode())], base_offset=4, codec=Codec.ZSTD)
    )
    return path


BATCHES = [
    "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 2147483647 lastSequence: 0 producerId: 5 producerEpoch: 1 "
    "partitionLeaderEpoch: 2 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    "CreateTime: 1700000000001 size: 115 magic: 2 compresscodec: none crc: 2440485849 isvalid: true",
    "baseOffset: 2 lastOffset: 2 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
    "partitionLeaderEpoch: -1 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
    "position: 115 LogAppendTime: 1700000000009 size: 68 magic: 2 compresscodec: none crc: 2319824235 isvalid: true",
    "baseOffset: 3 lastOffset: 3 count: 1 baseSequence: -1 lastSequence: -1 producerId: 5 producerEpoch: 1 "
    "partitionLeaderEpoch: -1 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty "
    "position: 183 CreateTime: 1700000000000 size: 78 magic: 2 compresscodec: none crc: 3476358893 isvalid: true",
]
RECORDS = [
    "| offset: 0 CreateTime: 1700000000000 keySize: 4 valueSize: 7 sequence: 2147483647 headerKeys: [h1,h2]",
    "| offset: 1 CreateTime: 1700000000001 keySize: 4 valueSize: 7 sequence: 0 headerKeys: [h1,h2]",
    "| offset: 2 LogAppendTime: 1700000000009 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []",
    "| offset: 3 CreateTime: 1700000000000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
    "endTxnMarker: COMMIT coordinatorEpoch: 4",
]


def test_batches_are_one_line_each(log: Path) -> None:
    start, *batches = lines(log)
    assert start == "Log starting offset: 0"
    assert batches[:3] == BATCHES
    assert batches[3].startswith("baseOffset: 4 lastOffset: 4 count: 1 ")
    assert " position: 261 CreateTime: -1 size: " in batches[3]
    assert " compresscodec: zstd " in batches[3]
    assert len(batches) == 4


def test_records_follow_their_batch(log: Path) -> None:
    deep = lines(log, DEEP)[1:]
    assert deep[:7] == [BATCHES[0], RECORDS[0], RECORDS[1], BATCHES[1], RECORDS[2], BATCHES[2], RECORDS[3]]
    assert deep[8] == "| offset: 4 CreateTime: -1 keySize: 1 valueSize: 2 sequence: -1 headerKeys: []"


def test_data_is_printed_as_text(log: Path) -> None:
    data = lines(log, DATA)[1:]
    assert data[1] == RECORDS[0] + " key: key0 payload: value 0"
    assert data[4] == RECORDS[2]
    assert data[6] == RECORDS[3]
    assert data[8].endswith(" headerKeys: [] key: � payload: ü")
    bare = lines(log, DumpOptions(print_data_log=True, skip_record_metadata=True))
    assert bare[2] == "| key: key0 payload: value 0"


def test_other_control_records_are_named(tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.write_bytes(build_batch([Record(0, 0, b"\x00\x00\x00\x02", b"")], control=True))
    assert lines(path, DEEP)[2].endswith(" controlType: LEADER_CHANGE(2)")


def test_damage_is_shown_where_it_is(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data[:-3])
    shown = lines(log)
    assert shown[1].endswith("isvalid: false")
    assert shown[2:4] == BATCHES[1:]
    assert shown[4] == f"Found {len(data) - 3 - 261} invalid bytes at the end of {LOG}"


@pytest.mark.parametrize("count", [-1, 1, 3, 2**31 - 1])
def test_records_that_cannot_be_read_do_not_stop_the_dump(log: Path, count: int) -> None:
    good = build_batch([Record(0, 0, None, b"v"), Record(1, 0, None, b"v")])
    lie = seal(read_header(good)._replace(record_count=count), good[HEADER_SIZE:])
    bad_codec = seal(read_header(good)._replace(base_offset=2, attributes=6), good[HEADER_SIZE:])
    log.write_bytes(lie + bad_codec + build_batch([Record(0, 0, None, None)], base_offset=4))
    shown = lines(log, DEEP)
    assert sum(line.startswith("| the records cannot be read: ") for line in shown) == 2
    assert any(" compresscodec: 6 " in line for line in shown)
    assert any(line.startswith("| offset: 4 ") for line in shown)


def test_gaps_are_listed_after_the_records(tmp_path: Path) -> None:
    path = tmp_path / LOG
    path.write_bytes(b"".join(build_batch([Record(0, 0, None, None)], base_offset=offset) for offset in (0, 1, 5)))
    assert lines(path, DEEP)[-2:] == [f"Non-consecutive offsets in {path}", "  1 is followed by 5"]
    assert "Non-consecutive" not in " ".join(lines(path))


def test_max_bytes_stops_at_a_batch(log: Path) -> None:
    assert lines(log, DumpOptions(max_bytes=200)) == ["Log starting offset: 0", *BATCHES[:2]]


@pytest.mark.parametrize("ending", [".deleted", ".17.deleted", ".cleaned", ".swap"])
def test_files_that_go_are_dumped_too(log: Path, ending: str) -> None:
    gone = log.rename(log.with_name(LOG + ending))
    assert lines(gone)[1:4] == BATCHES


def test_the_offset_index_is_compared_with_its_log(log: Path) -> None:
    path = log.with_suffix(".index")
    path.write_bytes(struct.pack(">iiii", 2, 115, 9, 183) + struct.pack(">ii", 12, 9000))
    mismatches = [f"Mismatches in :{path}", "  Index offset: 9, log offset: 3", "  Index offset: 12, log offset: -1"]
    shown = ["offset: 2 position: 115", "offset: 9 position: 183", "offset: 12 position: 9000"]
    assert lines(path) == shown + mismatches
    assert lines(path, DumpOptions(verify_index_only=True)) == mismatches
    path.write_bytes(struct.pack(">ii", 2, 115) + bytes(800))
    assert lines(path) == ["offset: 2 position: 115"]
    path.write_bytes(b"")
    assert lines(path) == [f"{path} is empty."]


def test_the_time_index_is_compared_with_its_log(log: Path) -> None:
    path = log.with_suffix(".timeindex")
    path.write_bytes(struct.pack(">qi", NOW + 1, 1) + struct.pack(">qi", NOW + 9, 2))
    good = ["timestamp: 1700000000001 offset: 1", "timestamp: 1700000000009 offset: 2"]
    assert lines(path) == good
    assert lines(path, DumpOptions(verify_index_only=True)) == []
    path.write_bytes(b"".join(struct.pack(">qi", NOW + t, o) for t, o in [(2, 1), (1, 2), (3, 77)]))
    assert lines(path, DumpOptions(verify_index_only=True)) == [
        f"Found timestamp mismatch in :{path}",
        "  Index timestamp: 1700000000002, log timestamp: 1700000000001",
        "  Index timestamp: 1700000000001, log timestamp: 1700000000009",
        f"Found out of order timestamp in :{path}",
        "  Index timestamp: 1700000000001, Previously indexed timestamp: 1700000000002",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 77, found log offset: -1",
    ]


def test_sanity_is_what_a_start_looks_at(log: Path) -> None:
    sanity = DumpOptions(index_sanity_check=True)
    times = log.with_suffix(".timeindex")
    offsets = log.with_suffix(".index")
    for path, entry in ((offsets, struct.pack(">ii", 2, 115)), (times, struct.pack(">qi", NOW, 1))):
        for content in (b"", entry, entry * 3):
            path.write_bytes(content)
            assert lines(path, sanity) == [f"{path} passed sanity check."]
        path.write_bytes(entry + b"\x00")
        assert "are not whole entries" in lines(path, sanity)[0]
    times.write_bytes(struct.pack(">qi", NOW, 1) + bytes(12))
    assert lines(times, sanity) == [f"{times} failed sanity check: its last entry goes back."]
    offsets.write_bytes(struct.pack(">ii", -2, 115))
    assert lines(offsets, sanity) == [f"{offsets} failed sanity check: its last entry goes back."]


def test_aborted_transactions(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 5, 1, 2, 3) + b"xx")
    assert lines(path) == [
        "version: 0 producerId: 5 firstOffset: 1 lastOffset: 2 lastStableOffset: 3",
        "Found 2 invalid bytes at the end of 00000000000000000000.txnindex",
    ]


def test_producer_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000012.snapshot"
    rest = struct.pack(">i", 2)
    rest += struct.pack(">qhiqiqiq", 1, 0, 11, 11, 2, NOW, -1, -1)
    rest += struct.pack(">qhiqiqiq", 2, 3, -1, -1, 0, NOW, 4, 8)
    path.write_bytes(struct.pack(">hI", 1, crc32c(rest)) + rest)
    assert lines(path) == [
        "producerId: 1 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1700000000000 firstSequence: 9 lastSequence: 11 lastOffset: 11 offsetDelta: 2 "
        "timestamp: 1700000000000",
        "producerId: 2 producerEpoch: 3 coordinatorEpoch: 4 currentTxnFirstOffset: OptionalLong[8] "
        "lastTimestamp: 1700000000000 ",
    ]
    path.write_bytes(struct.pack(">hI", 1, 5) + rest)
    assert lines(path) == [f"Snapshot is corrupt (CRC is no longer valid). Stored crc: 5. Computed crc: {crc32c(rest)}"]
    path.write_bytes(b"\x00\x09" + bytes(8))
    assert lines(path) == ["Snapshot contained an unknown file version 9"]
    path.write_bytes(b"\x00")
    assert lines(path) == ["Snapshot is corrupt (1 bytes are too few)"]
    path.write_bytes(struct.pack(">hI", 1, crc32c(rest[:4])) + rest[:4])
    assert lines(path) == ["Snapshot is corrupt (2 producers do not take 10 bytes)"]


def test_checkpoints_and_metadata(tmp_path: Path) -> None:
    epochs = tmp_path / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n3 17\n")
    assert lines(epochs) == ["version: 0 entries: 2", "epoch: 0 startOffset: 0", "epoch: 3 startOffset: 17"]
    offsets = tmp_path / "recovery-point-offset-checkpoint"
    offsets.write_text("0\n2\norders 0 17\nwhat\n")
    assert lines(offsets) == ["version: 0 entries: 2", "topic: orders partition: 0 offset: 17", "Malformed line: what"]
    offsets.write_text("")
    assert lines(offsets) == [f"{offsets} is empty."]
    metadata = tmp_path / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: om2_OlAOSjy1zpOO6eubKA")
    assert lines(metadata) == ["version: 0", "topic_id: om2_OlAOSjy1zpOO6eubKA"]


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    assert lines(tmp_path / "notes.txt") == [f"Ignoring unknown file {tmp_path / 'notes.txt'}"]
