"""The checker: quiet on good directories, and every kind of damage found."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest
from crc32c import crc32c

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Record
from barnabas.storage.check import Severity, check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = 1_700_000_000_000
SEGMENT = "00000000000000000000"
SECOND = "00000000000000000030"


class Written(NamedTuple):
    """A batch in a segment that a test wrote."""

    position: int
    last_offset: int
    max_timestamp: int


def batch(
    offset: int, count: int = 3, *, time: int = NOW, epoch: int = 0, producer: int = -1, transactional: bool = False
) -> bytes:
    return build_batch(
        [Record(i, i, b"k%d" % i, b"value") for i in range(count)],
        base_offset=offset,
        base_timestamp=time,
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=offset if producer >= 0 else -1,
        transactional=transactional,
    )


def marker(offset: int, producer: int, epoch: int = 0) -> bytes:
    """The end of a transaction that was aborted, as it stands in a log."""
    end = EndOfTransaction(ControlType.ABORT, coordinator_epoch=0)
    data = bytearray(build_marker(end, timestamp=NOW + offset, producer_id=producer, producer_epoch=0))
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def aborted(first: int, last: int, stable: int, producer: int = 9) -> bytes:
    """An entry of a transaction index."""
    return struct.pack(">hqqqq", 0, producer, first, last, stable)


def write_segment(path: Path, base: int, batches: list[bytes]) -> list[Written]:
    """Write a segment with an index entry for every batch but the first."""
    written: list[Written] = []
    index, times = b"", b""
    position, latest = 0, -1
    for data in batches:
        offset, _, _, _, _, _, delta, _, time = struct.unpack_from(">qiibIhiqq", data)
        written.append(Written(position, offset + delta, time))
        if position:
            index += struct.pack(">ii", offset + delta - base, position)
        if time > latest:
            times += struct.pack(">qi", time, offset + delta - base)
            latest = time
        position += len(data)
    (path / f"{base:020d}.log").write_bytes(b"".join(batches))
    (path / f"{base:020d}.index").write_bytes(index)
    (path / f"{base:020d}.timeindex").write_bytes(times)
    return written


def snapshot(*producers: tuple[int, int]) -> bytes:
    """A snapshot of producers, each with its id and last offset."""
    entries = b"".join(struct.pack(">qhiqiqiq", id, 0, 5, last, 2, NOW, -1, -1) for id, last in producers)
    rest = struct.pack(">i", len(producers)) + entries
    return struct.pack(">hI", 1, crc32c(rest)) + rest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with one partition of two segments."""
    partition = tmp_path / "orders-0"
    partition.mkdir()
    plain = {i: batch(i, time=NOW + i, producer=7) for i in range(0, 30, 3)}
    ended = {
        3: batch(3, 2, time=NOW + 3),
        5: marker(5, 9),
        6: batch(6, time=NOW + 6, producer=9, transactional=True),
        9: batch(9, 2, time=NOW + 9),
        11: marker(11, 9),
    }
    write_segment(partition, 0, [data for _, data in sorted((plain | ended).items())])
    write_segment(partition, 30, [batch(i, time=NOW + i, epoch=1) for i in (30, 33, 40)])
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 30\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: om2_OlAOSjy1zpOO6eubKA")
    (partition / f"{SECOND}.snapshot").write_bytes(snapshot((7, 29), (8, 3)))
    (partition / f"{SEGMENT}.txnindex").write_bytes(aborted(6, 11, 12))
    (tmp_path / "meta.properties").write_text("#\nversion=1\ncluster.id=abc\nnode.id=1\n")
    for name, offset in [("recovery-point", 43), ("log-start", 0), ("replication", 43)]:
        (tmp_path / f"{name}-offset-checkpoint").write_text(f"0\n1\norders 0 {offset}\n")
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n0\n")
    (tmp_path / ".kafka_cleanshutdown").write_text("")
    return tmp_path


def test_a_good_directory_has_no_findings(root: Path) -> None:
    report = check(root)
    assert report.findings == []
    assert report.ok
    assert (report.partitions, report.segments, report.batches, report.records) == (1, 2, 15, 39)
    assert report.summary().startswith("1 partitions, 2 segments, 15 batches, 39 records, ")
    assert report.summary().endswith(": 0 errors, 0 warnings")


def test_one_partition_can_be_checked_alone(root: Path) -> None:
    report = check(root / "orders-0")
    assert report.findings == []
    assert report.batches == 15


def test_what_is_on_its_way_out_is_left_alone(root: Path) -> None:
    gone = root / "orders-1.0123456789abcdef-delete"
    gone.mkdir()
    (gone / f"{SEGMENT}.log").write_bytes(b"anything")
    (root / "orders-0" / "00000000000000000020.log.deleted").write_bytes(b"anything")
    assert check(root).findings == []


def test_gaps_are_what_compaction_leaves(root: Path) -> None:
    empty = build_batch([Record(0, 0, None, None), Record(5, 0, None, None)], base_offset=50, leader_epoch=1)
    log = root / "orders-0" / f"{SECOND}.log"
    log.write_bytes(log.read_bytes() + empty)
    assert check(root).findings == []


def test_a_followers_index_has_one_entry_for_several_batches(root: Path) -> None:
    partition = root / "orders-0"
    written = write_segment(partition, 30, [batch(i, time=NOW + i, epoch=1) for i in (30, 33, 36, 39)])
    entry = struct.pack(">ii", written[3].last_offset - 30, written[1].position)
    (partition / f"{SECOND}.index").write_bytes(entry)
    assert check(partition).findings == []


def test_a_live_broker_leaves_zeros_behind_its_newest_entries(root: Path) -> None:
    for kind, entry in (("index", 8), ("timeindex", 12)):
        path = root / "orders-0" / f"{SECOND}.{kind}"
        path.write_bytes(path.read_bytes() + bytes(entry * 1000))
    assert check(root).findings == []


Damage = tuple[str, "Callable[[bytes], bytes]", str]

ERRORS: list[Damage] = [
    (f"orders-0/{SEGMENT}.log", lambda d: d[:100] + bytes((d[100] ^ 1,)) + d[101:], "CRC-32C does not match"),
    (f"orders-0/{SECOND}.log", lambda d: d[:-1], "no batch, and"),
    (f"orders-0/{SECOND}.log", lambda d: d + b"\x00" * 20 + b"x", "no whole batch, and 21 bytes are left"),
    (f"orders-0/{SEGMENT}.log", lambda d: d + bytes(100), "magic 0, length 0: no batch"),
    (f"orders-0/{SECOND}.log", lambda d: d[:16] + b"\x01" + d[17:], "magic 1"),
    (f"orders-0/{SECOND}.log", lambda d: d[:8] + b"\x7f\xff\xff\xff" + d[12:], "length 2147483647"),
    (f"orders-0/{SECOND}.log", lambda d: d + batch(42, epoch=1), "offset 42 follows offset 42"),
    (f"orders-0/{SECOND}.log", lambda d: batch(29, epoch=0) + d, "offset 29 follows offset 29"),
    (f"orders-0/{SEGMENT}.log", lambda d: d + batch(30), "offset 32 reaches into the segment from 30"),
    (f"orders-0/{SECOND}.log", lambda d: d + batch(2**31 + 30, epoch=1), "too far"),
    (f"orders-0/{SECOND}.log", lambda d: d + batch(50, epoch=0), "leader epoch 0 follows 1"),
    (f"orders-0/{SECOND}.log", lambda d: d + batch(50, epoch=2), "leader-epoch-checkpoint has 1"),
    (f"orders-0/{SECOND}.log", lambda d: d[:12] + b"\x80" + d[13:], "leader epoch -2147483647 follows 0"),
    (f"orders-0/{SEGMENT}.index", lambda d: d[:-1], "not whole entries of 8"),
    (f"orders-0/{SEGMENT}.index", lambda d: d[8:] + d[:8], "does not rise"),
    (f"orders-0/{SEGMENT}.index", lambda d: d[:7] + bytes((d[7] + 1,)) + d[8:], "where no batch starts"),
    (f"orders-0/{SEGMENT}.index", lambda d: d[:3] + bytes((d[3] - 1,)) + d[4:], "no batch's last"),
    (f"orders-0/{SEGMENT}.index", lambda d: d[:3] + b"\x00" + d[4:], "before that of the batch"),
    (f"orders-0/{SEGMENT}.index", lambda d: d + struct.pack(">ii", 900, 2000), "behind the last batch"),
    (f"orders-0/{SEGMENT}.timeindex", lambda d: d + b"\x00", "not whole entries of 12"),
    (f"orders-0/{SEGMENT}.timeindex", lambda d: d[12:] + d[:12], "does not rise"),
    (f"orders-0/{SEGMENT}.timeindex", lambda d: d[:7] + bytes((d[7] - 1,)) + d[8:], "the batch with offset 2 has"),
    (f"orders-0/{SECOND}.timeindex", lambda d: d[:-1] + b"\x08", "which is in no batch"),
    (f"orders-0/{SECOND}.timeindex", lambda d: d + struct.pack(">qi", NOW + 99, 99), "behind the last batch"),
    (f"orders-0/{SECOND}.snapshot", lambda d: d[:-1] + b"\x00", "CRC-32C does not match"),
    (f"orders-0/{SECOND}.snapshot", lambda d: d[:5], "too few"),
    (f"orders-0/{SECOND}.snapshot", lambda d: b"\x00\x05" + d[2:], "version 5"),
    (f"orders-0/{SECOND}.snapshot", lambda d: snapshot((7, 30)), "producer 7, last offset 30"),
    (f"orders-0/{SECOND}.snapshot", lambda d: snapshot((7, 3), (7, 4)), "producer 7, last offset 4"),
    (
        f"orders-0/{SECOND}.snapshot",
        lambda d: struct.pack(">hIi", 1, crc32c(struct.pack(">i", 3)), 3),
        "3 producers do not take 10 bytes",
    ),
    (f"orders-0/{SEGMENT}.txnindex", lambda d: d[:-1], "not whole entries of 34"),
    (f"orders-0/{SEGMENT}.txnindex", lambda d: b"\x00\x01" + d[2:], "version 1"),
    (f"orders-0/{SEGMENT}.txnindex", lambda d: aborted(12, 11, 12), "do not fit the segment"),
    (
        f"orders-0/{SEGMENT}.txnindex",
        lambda d: b"",
        "lacks the transaction of producer 9 that was aborted at offset 11",
    ),
    (f"orders-0/{SEGMENT}.txnindex", lambda d: aborted(6, 11, 12, 8), "producer 8 has no transaction that was aborted"),
    (f"orders-0/{SEGMENT}.txnindex", lambda d: aborted(6, 11, 12, 8), "lacks the transaction of producer 9"),
    (f"orders-0/{SEGMENT}.txnindex", lambda d: aborted(7, 11, 12), "begins at offset 6, not at 7"),
    (f"orders-0/{SEGMENT}.txnindex", lambda d: aborted(5, 11, 12), "begins at 5, before the last one ended: 5"),
    (f"orders-0/{SEGMENT}.txnindex", lambda d: aborted(6, 11, 14), "before offset 14 was decided, it says, but at 12"),
    ("orders-0/leader-epoch-checkpoint", lambda d: b"0\n2\n0 0\n1 44\n", "starts at 44, after the log's end 43"),
    ("orders-0/leader-epoch-checkpoint", lambda d: b"0\n2\n1 0\n0 30\n", "does not come after"),
    ("orders-0/leader-epoch-checkpoint", lambda d: b"0\n3\n0 0\n1 30\n", "and has 2 rows"),
    ("orders-0/leader-epoch-checkpoint", lambda d: b"1\n0\n", "claims version and count ['1', '0']"),
    ("orders-0/leader-epoch-checkpoint", lambda d: b"0\n1\nzero 0\n", "not an epoch and an offset"),
    ("orders-0/leader-epoch-checkpoint", lambda d: b"0\n1\n0 0 0\n", "not 2 words"),
    ("orders-0/leader-epoch-checkpoint", lambda d: b"0", "claims version and count ['0']"),
    ("orders-0/leader-epoch-checkpoint", lambda d: b"\xff\xfe", "claims version"),
    ("meta.properties", lambda d: b"", "does not hold a version"),
    ("recovery-point-offset-checkpoint", lambda d: b"0\n1\norders 0 44\n", "is at 44, but its log ends at 43"),
    ("log-start-offset-checkpoint", lambda d: b"0\n1\norders 0 44\n", "is at 44, but its log ends at 43"),
    ("log-start-offset-checkpoint", lambda d: b"0\n1\norders x 44\n", "not a topic, a partition and an offset"),
    ("log-start-offset-checkpoint", lambda d: b"0\n2\norders 0 4\norders 0 4\n", "stands there twice"),
    ("replication-offset-checkpoint", lambda d: b"0\n1\norders 0\n", "not 3 words"),
]


@pytest.mark.parametrize(("name", "damage", "what"), ERRORS, ids=[f"{name}: {what}" for name, _, what in ERRORS])
def test_damage_is_an_error(root: Path, name: str, damage: Callable[[bytes], bytes], what: str) -> None:
    path = root / name
    path.write_bytes(damage(path.read_bytes()))
    report = check(root)
    assert not report.ok
    found = [finding for finding in report.errors if what in finding.what]
    assert found, [str(finding) for finding in report.findings]
    assert str(found[0]).startswith(f"error: {path}")


def test_a_transaction_of_batches_that_are_gone_is_known_by_its_index_alone(root: Path) -> None:
    """Retention, or compaction, has removed some or all of its batches."""
    partition = root / "orders-0"
    (root / "log-start-offset-checkpoint").write_text("0\n1\norders 0 30\n")
    for path in partition.glob(f"{SEGMENT}.*"):
        path.unlink()
    write_segment(partition, 30, [batch(30, 12, epoch=1, producer=9, transactional=True), marker(42, 9, epoch=1)])
    for first in (3, 30):
        (partition / f"{SECOND}.txnindex").write_bytes(aborted(first, 42, 43))
        assert check(root).ok, first
    (partition / f"{SECOND}.txnindex").write_bytes(aborted(31, 42, 43))
    assert not check(root).ok
    write_segment(partition, 30, [marker(42, 9, epoch=1)])  # nothing is left of it, so nobody has to know
    (partition / f"{SECOND}.txnindex").unlink()
    assert check(root).ok


def test_where_offsets_are_missing_a_marker_may_be_gone(root: Path) -> None:
    """Compaction removes markers, and the cleaner's checkpoint may not say that it was there."""
    partition = root / "orders-0"
    before = batch(30, epoch=1, producer=9, transactional=True)
    after = [batch(36, epoch=1, producer=9, transactional=True), marker(42, 9, epoch=1)]
    index = partition / f"{SECOND}.txnindex"
    index.write_bytes(aborted(36, 42, 43))
    write_segment(partition, 30, [before, *after])
    assert check(root).ok
    index.write_bytes(aborted(30, 34, 35) + aborted(36, 42, 43))
    assert check(root).ok
    index.write_bytes(aborted(36, 42, 43))
    write_segment(partition, 30, [before, batch(33, epoch=1), *after[:1], batch(39, epoch=1), *after[1:]])
    assert "begins at offset 30, not at 36" in check(root).errors[0].what


def test_after_a_crash_the_next_start_makes_the_transaction_index_anew(root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink()
    (root / "orders-0" / f"{SEGMENT}.txnindex").unlink()
    assert not check(root).ok
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 11\n")
    report = check(root)
    assert report.ok
    assert ["lacks the transaction" in each.what for each in report.warnings] == [True]


@pytest.mark.parametrize(("recovery_point", "closed", "ok"), [(33, False, True), (34, False, False), (33, True, False)])
def test_after_a_crash_the_next_start_reads_epochs_from_batches(
    root: Path, recovery_point: int, closed: bool, ok: bool
) -> None:
    """They are written down before the recovery point passes their batches, and no sooner."""
    partition = root / "orders-0"
    write_segment(partition, 30, [batch(30, epoch=1), batch(33, epoch=2), batch(36, epoch=2), batch(40, epoch=3)])
    (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {recovery_point}\n")
    if not closed:
        (root / ".kafka_cleanshutdown").unlink()
    for report in (check(root), check(partition)):
        assert report.ok == ok
        if ok:
            said = [finding.what for finding in report.warnings]
            assert said == [f"does not have epoch {e} yet, which starts at {at}" for e, at in ((2, 33), (3, 40))]


def test_a_wrong_codec_or_count_is_an_error(root: Path) -> None:
    good = batch(50, epoch=1)
    for position, new, what in [(22, b"\x05", "codec 5"), (57, b"\x00\x00\x00\x09", "9 records do not fit")]:
        bad = bytearray(good)
        bad[position : position + len(new)] = new
        bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
        write_segment(root / "orders-0", 30, [batch(30, epoch=1), bytes(bad)])
        assert [what in finding.what for finding in check(root / "orders-0").errors] == [True]


def test_a_time_index_that_hides_a_later_batch_is_an_error(root: Path) -> None:
    partition = root / "orders-0"
    batches = [batch(30, epoch=1, time=NOW + 100), batch(33, epoch=1, time=NOW)]
    written = write_segment(partition, 30, batches)
    (partition / f"{SECOND}.timeindex").write_bytes(struct.pack(">qi", written[1].max_timestamp, 5))
    assert "but a batch before offset 35" in check(root).errors[0].what


WARNINGS: list[Damage] = [
    (f"orders-0/{SECOND}.log", lambda d: d + bytes(5000), "5000 zeros follow the last batch"),
    (f"orders-0/{SEGMENT}.index", lambda d: d + bytes(80), "zeros follow the entries"),
    ("replication-offset-checkpoint", lambda d: b"0\n1\norders 0 44\n", "is at 44, but its log ends at 43"),
    ("orders-0/00000000000000000060.snapshot", lambda d: snapshot(), "up to 60, the log ends at 43"),
    ("orders-0/00000000000000000060.index", lambda d: b"", "an index without its segment"),
    (f"orders-0/{SEGMENT}.log.cleaned", lambda d: b"", "left over"),
    (f"orders-0/{SEGMENT}.index.swap", lambda d: b"", "left over"),
    ("orders-0/partition.metadata", lambda d: b"", "does not hold a version and a topic id"),
    ("orders-0/partition.metadata", lambda d: d[:-1], "does not hold a version and a topic id"),
    ("orders-0/notes.txt", lambda d: b"", "does not belong here"),
    ("elsewhere/file", lambda d: b"", "not a partition's directory"),
    ("empty-0/leader-epoch-checkpoint", lambda d: b"", "is missing: the partition does not know its topic's id"),
    ("empty-0/00000000000000000060.snapshot", lambda d: snapshot(), "holds no segment, though it was written to"),
]


@pytest.mark.parametrize(("name", "damage", "what"), WARNINGS, ids=[f"{name}: {what}" for name, _, what in WARNINGS])
def test_what_the_next_start_repairs_is_a_warning(
    root: Path, name: str, damage: Callable[[bytes], bytes], what: str
) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(damage(path.read_bytes() if path.exists() else b""))
    report = check(root)
    assert report.ok, [str(finding) for finding in report.findings]
    assert any(what in finding.what for finding in report.findings)


@pytest.mark.parametrize(
    "name",
    [
        f"orders-0/{SEGMENT}.index",
        f"orders-0/{SEGMENT}.timeindex",
        "orders-0/leader-epoch-checkpoint",
        "orders-0/partition.metadata",
        "meta.properties",
    ],
)
def test_a_missing_file_is_a_warning(root: Path, name: str) -> None:
    (root / name).unlink()
    report = check(root)
    assert [finding.path for finding in report.findings] == [root / name]
    assert report.findings[0].severity is Severity.WARNING


@pytest.mark.parametrize(("sequence", "epoch"), [(3, 0), (60, -1)])
def test_a_producer_that_repeats_itself_is_a_warning(root: Path, sequence: int, epoch: int) -> None:
    again = build_batch(
        [Record(0, 0, None, None)],
        base_offset=50,
        leader_epoch=1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
    )
    if epoch < 0:
        newer = bytearray(batch(45, epoch=1, producer=7))
        newer[51:53] = b"\x00\x01"
        newer[17:21] = crc32c(bytes(newer[21:])).to_bytes(4, "big")
        again = bytes(newer) + again
    log = root / "orders-0" / f"{SECOND}.log"
    log.write_bytes(log.read_bytes() + again)
    report = check(root)
    assert report.ok
    assert [finding.what.split(" ")[:2] for finding in report.findings] == [["producer", "7"]]


def test_findings_of_one_file_are_cut(root: Path) -> None:
    path = root / "orders-0" / f"{SECOND}.index"
    path.write_bytes(struct.pack(">ii", 900, 900) * 500)
    report = check(root)
    assert len(report.findings) == 20
    assert report.left_out > 400
    assert "more left out" in report.summary()


def test_what_is_no_directory_is_an_error(tmp_path: Path) -> None:
    assert [finding.what for finding in check(tmp_path / "nowhere").errors] == ["is not a directory"]


def test_a_partition_that_was_never_written_is_no_finding(root: Path) -> None:
    (root / "empty-0").mkdir()
    (root / "empty-0" / "partition.metadata").write_text("version: 0\ntopic_id: om2_OlAOSjy1zpOO6eubKA")
    (root / "led-0").mkdir()
    (root / "led-0" / "partition.metadata").write_text("version: 0\ntopic_id: om2_OlAOSjy1zpOO6eubKA")
    (root / "led-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert check(root).findings == []


def remove_segment(partition: Path, base: str) -> None:
    for path in partition.glob(f"{base}.*"):
        path.unlink()


def with_third_segment(root: Path) -> Path:
    """The partition, which has a segment in the middle now."""
    partition = root / "orders-0"
    write_segment(partition, 43, [batch(43, epoch=1), batch(46, epoch=1)])
    assert check(root).findings == []
    return partition


def test_a_segment_that_is_gone_is_an_error(root: Path) -> None:
    remove_segment(with_third_segment(root), SECOND)
    for where in (root, root / "orders-0"):
        (found,) = check(where).errors
        assert found.what.startswith("a segment is missing: offsets 30 to 42, before 00000000000000000043.log")


def test_where_the_cleaner_has_been_offsets_are_missing(root: Path) -> None:
    partition = with_third_segment(root)
    trace = (partition / f"{SECOND}.index").read_bytes()
    remove_segment(partition, SECOND)
    for cleaned, errors in ((42, 1), (43, 0)):
        (root / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {cleaned}\n")
        assert [len(check(where).errors) for where in (root, partition)] == [errors, errors]
    (partition / f"{SECOND}.index").write_bytes(trace)
    (found,) = check(root).errors
    assert found.what.endswith(f"{SECOND}.index is left of it")


def test_after_a_clean_stop_the_first_segment_is_missed(root: Path) -> None:
    remove_segment(root / "orders-0", SEGMENT)
    (root / ".kafka_cleanshutdown").unlink()
    assert check(root).errors == []  # retention may have removed it, and the checkpoint is older
    (root / ".kafka_cleanshutdown").write_text("")
    (found,) = check(root).errors
    assert found.what == "the log starts at 0, but its first segment begins at 30: one before it is missing"


@pytest.mark.parametrize("sequence", [0, -1])
def test_commits_in_transactions_have_no_order(root: Path, sequence: int) -> None:
    partition = root / "__consumer_offsets-0"
    (root / "orders-0").rename(partition)
    for path in root.glob("*-checkpoint"):
        path.write_text("0\n0\n")
    records = [Record(number, 0, b"k", b"v") for number in range(4)]
    commits = [
        build_batch(
            records,
            base_offset=offset,
            leader_epoch=1,
            producer_id=9,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        for offset in (50, 54)
    ]
    log = partition / f"{SECOND}.log"
    log.write_bytes(log.read_bytes() + b"".join(commits))
    report = check(root)
    assert (report.errors, report.warnings) == ([], [])
    assert report.summary().endswith(": 0 errors, 0 warnings")
    if sequence == 0:
        assert report.findings == []
    else:
        (note,) = report.findings
        assert str(note).startswith(f"note: {root}: 2 batches of __consumer_offsets have no sequence number")
        assert note.remedy == Remedy(RemedyKind.SEQUENCE_OFFSETS, str(root))
