"""What a cleaning keeps of a log, rule by rule; tests/properties and tests/crash have random histories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.records.batch import HAS_DELETE_HORIZON, LOG_APPEND_TIME, read_header
from barnabas.protocol.records.compression import Codec
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.check import check
from barnabas.storage.cleaner.cleaner import clean
from barnabas.storage.cleaner.plan import examine
from barnabas.storage.cleaner.process import InThisProcess, Uncleanable
from barnabas.storage.cleaner.worker.cleaning import CleaningAborted
from barnabas.storage.log import validation
from barnabas.storage.log.log import Log
from tests.support.compaction import LIMITS, clean_log, compacted, keyed, seen, settle
from tests.support.logs import NOW, TOPIC_ID, TP, append, headers, read_bytes, recovered, reopened, store, stored

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.model.log_config import LogConfig
    from barnabas.storage.directory import LogDirectory

DAY = 86_400_000


class Home:
    """A compacted log and its directory."""

    def __init__(self, path: Path, config: LogConfig | None = None) -> None:
        self.path = path
        self.store: LogDirectory = store(path)
        self.log = Log.create(TP, self.store, f"{path}/{TP}", config or compacted(), TOPIC_ID)

    def clean(self, now_ms: int = NOW) -> None:
        clean_log(self.log, self.store, now_ms=now_ms)
        assert check(self.log.directory).errors == []

    def values(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in seen(self.log)]

    def reopen(self) -> None:
        self.log = reopened(self.log)
        self.store = store(self.path)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def marker(kind: ControlType, producer_id: int = 7, timestamp: int = NOW) -> bytes:
    return build_marker(EndOfTransaction(kind, 0), timestamp=timestamp, producer_id=producer_id, producer_epoch=0)


def transaction(key: bytes, value: bytes, sequence: int = 0, producer_id: int = 7) -> bytes:
    return keyed([(key, value)], producer_id=producer_id, sequence=sequence, transactional=True)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_last_record_of_each_key_stays_where_it_was(home: Home, codec: Codec) -> None:
    for value in (b"1", b"2", b"3"):
        append(home.log, keyed([(b"a", value), (b"b", value), (b"long key" * 10, value)], codec=codec))
    append(home.log, keyed([(b"b", b"4")], codec=codec))
    settle(home.log)
    home.clean()
    assert home.values() == [(6, b"a", b"3"), (8, b"long key" * 10, b"3"), (9, b"b", b"4")]
    assert [header.codec for header in headers(home.log)] == [codec, codec]
    home.reopen()
    assert home.values() == [(6, b"a", b"3"), (8, b"long key" * 10, b"3"), (9, b"b", b"4")]


def test_batches_that_lose_nothing_are_copied_byte_by_byte(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1"), (b"b", b"1")], codec=Codec.GZIP), keyed([(b"c", b"1")]))
    settle(home.log)
    before = stored(home.log)
    home.clean()
    assert stored(home.log) == before


def test_a_batch_that_loses_records_keeps_its_offsets_and_takes_the_timestamps_of_the_rest(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]), keyed([(b"c", b"2")]))
    settle(home.log)
    home.clean()
    first = headers(home.log)[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 2)
    assert (first.base_timestamp, first.max_timestamp) == (NOW, NOW + 1)
    assert read_header(read_bytes(home.log, 2)).base_offset == 0


def test_records_without_a_key_go(home: Home) -> None:
    append(home.log, keyed([(None, b"1"), (b"a", b"1"), (None, b"2")]), keyed([(None, b"3")]), keyed([(b"b", b"1")]))
    settle(home.log)
    home.clean()
    assert home.values() == [(1, b"a", b"1"), (4, b"b", b"1")]


def test_the_active_segment_is_left_alone(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1")]))
    settle(home.log)
    append(home.log, keyed([(b"a", b"2"), (b"a", b"3")]))
    home.log.high_watermark = home.log.log_end_offset
    home.clean()
    assert home.values() == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


@pytest.mark.parametrize("what", ["high watermark", "open transaction"])
def test_what_is_not_committed_supersedes_nothing(home: Home, what: str) -> None:
    append(home.log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    home.log.roll(NOW)
    append(home.log, transaction(b"a", b"3") if what == "open transaction" else keyed([(b"a", b"3")]))
    settle(home.log)
    if what == "high watermark":
        home.log.high_watermark = 2
    home.clean()
    assert home.values() == [(1, b"a", b"2"), (2, b"a", b"3")]
    assert home.log.cleaned_to == 2


def test_what_supersedes_is_on_disk_before_anything_goes(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    home.log.roll(NOW)
    home.log.high_watermark = 2
    assert home.log.recovery_point == 0
    home.clean()
    assert home.log.recovery_point == 2


def test_small_segments_become_one_and_go_on_ending_where_the_next_begins(tmp_path: Path) -> None:
    home = Home(tmp_path, compacted(segment_bytes=1000))
    for number in range(40):
        append(home.log, keyed([(b"a", b"x" * 300), (b"key %d" % number, b"")]))
    settle(home.log)
    before = [segment.base_offset for segment in home.log.segments]
    home.clean()
    home.clean()
    bases = [segment.base_offset for segment in home.log.segments]
    assert len(bases) < len(before) / 3
    assert set(bases) < set(before)
    assert [segment.next_offset() for segment in home.log.segments[:-1]] == bases[1:]
    assert all(segment.size <= 1000 for segment in home.log.segments)


def test_a_tombstone_stays_for_delete_retention_from_its_first_cleaning_on(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1"), (b"b", b"1")]), keyed([(b"a", None), (b"c", b"1")], timestamp=NOW + 5))
    settle(home.log)
    home.clean(NOW)
    expected = [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert home.values() == expected
    batch = headers(home.log)[1]
    assert batch.attributes & HAS_DELETE_HORIZON
    assert batch.base_timestamp == NOW + DAY
    assert [record.timestamp for record in seen(home.log)] == [NOW + 1, NOW + 5, NOW + 6]
    home.clean(NOW + DAY - 1)
    assert home.values() == expected
    home.clean(NOW + DAY)
    assert home.values() == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert seen(home.log)[1].timestamp == NOW + 6


def test_a_horizon_changes_no_append_time(tmp_path: Path) -> None:
    home = Home(tmp_path)
    batch = keyed([(b"a", None), (b"b", b"1")])
    stamped = validation.stamp(batch, read_header(batch), NOW + 77)
    home.log.append(batch, 0, NOW + 77, stamped)
    settle(home.log)
    home.clean()
    (header,) = headers(home.log)
    assert header.attributes & LOG_APPEND_TIME
    assert header.attributes & HAS_DELETE_HORIZON
    assert [record.timestamp for record in seen(home.log)] == [NOW + 77, NOW + 77]


def test_the_last_batch_of_a_producer_stays_as_a_header(home: Home) -> None:
    last = keyed([(b"a", b"2")], producer_id=5, sequence=1)
    append(home.log, keyed([(b"a", b"1")], producer_id=5, sequence=0), last)
    append(home.log, keyed([(b"a", b"3")]), keyed([(b"b", b"1")]))
    settle(home.log)
    home.clean()
    assert [(header.base_offset, header.record_count) for header in headers(home.log)] == [(1, 0), (2, 1), (3, 1)]
    home.log.abandon()
    for snapshot in home.log.directory.glob("*.snapshot"):
        snapshot.unlink()
    home.log = recovered(home.log)
    again = home.log.append(last, leader_epoch=0, now_ms=NOW)
    assert (again.duplicate, again.base_offset) == (True, 1)
    append(home.log, keyed([(b"a", b"4")], producer_id=5, sequence=2))


def test_aborted_data_goes_and_its_marker_follows(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1")]), transaction(b"a", b"aborted"), marker(ControlType.ABORT))
    append(home.log, transaction(b"b", b"1", 1), marker(ControlType.COMMIT), keyed([(b"z", b"1")]))
    settle(home.log)
    assert home.log.producers.has_aborted
    home.clean()
    assert home.values() == [(0, b"a", b"1"), (3, b"b", b"1"), (5, b"z", b"1")]
    assert [header.base_offset for header in headers(home.log) if header.is_control] == [2, 4]
    assert [entry[:3] for segment in home.log.segments for entry in segment.txn_index.entries()] == [(7, 1, 2)]
    home.clean(NOW + 1)
    assert not home.log.producers.has_aborted
    horizons = [header.base_timestamp for header in headers(home.log) if header.attributes & HAS_DELETE_HORIZON]
    assert horizons == [NOW + 1 + DAY]
    home.clean(NOW + 1 + DAY)
    assert [header.base_offset for header in headers(home.log) if header.is_control] == [4]
    assert home.values() == [(0, b"a", b"1"), (3, b"b", b"1"), (5, b"z", b"1")]


def test_a_commit_marker_goes_after_its_data(home: Home) -> None:
    append(home.log, transaction(b"a", b"1"), marker(ControlType.COMMIT), keyed([(b"a", b"2")]))
    append(home.log, transaction(b"b", b"1", 1), marker(ControlType.COMMIT), keyed([(b"z", b"1")]))
    settle(home.log)
    for now in (NOW, NOW + 1):
        home.clean(now)
        assert [header.base_offset for header in headers(home.log) if header.is_control] == [1, 4]
    home.clean(NOW + 1 + DAY)
    assert [header.base_offset for header in headers(home.log) if header.is_control] == [4]


def test_a_map_too_small_for_all_keys_cleans_in_passes(home: Home) -> None:
    for value in (b"1", b"2"):
        append(home.log, *(keyed([(b"key %d" % number, value)]) for number in range(10)))
    settle(home.log)
    small = LIMITS._replace(memory=4 * 200, load_factor=1.0)
    ends = []
    while (home.log.cleaned_to or 0) < home.log.log_end_offset:
        clean_log(home.log, home.store, limits=small)
        ends.append(home.log.cleaned_to)
    assert ends == [4, 8, 12, 16, 20]
    assert home.values() == [(10 + number, b"key %d" % number, b"2") for number in range(10)]


def test_batches_larger_than_the_buffer_are_read_whole(tmp_path: Path) -> None:
    home = Home(tmp_path, compacted(segment_bytes=100_000))
    append(home.log, keyed([(b"a", b"x" * 20_000), (b"b", b"1")]), keyed([(b"a", b"2")]), keyed([(b"c", b"1")]))
    settle(home.log)
    clean_log(home.log, home.store, limits=LIMITS._replace(chunk=100))
    assert home.values() == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_large_records_and_many_of_them(tmp_path: Path, codec: Codec) -> None:
    home = Home(tmp_path, compacted(segment_bytes=4_000_000))
    many = [(b"key %d" % (number % 9_000), b"v" * (number % 300)) for number in range(10_000)]
    append(home.log, keyed(many, codec=codec), keyed([(b"k" * 10_000, b"v" * 30_000)] * 2, codec=codec))
    append(home.log, keyed([(b"z", b"1")]))
    settle(home.log)
    clean_log(home.log, home.store, limits=LIMITS._replace(memory=1 << 22))
    last = {key: (offset, value) for offset, (key, value) in enumerate(many)}
    expected = sorted((offset, key, value) for key, (offset, value) in last.items())
    assert home.values() == [*expected, (10_001, b"k" * 10_000, b"v" * 30_000), (10_002, b"z", b"1")]


def test_damage_is_not_sealed_with_a_new_crc(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]), keyed([(b"b", b"1")]))
    settle(home.log)
    path = home.log.directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    before = {each.name for each in home.log.directory.iterdir()}
    with pytest.raises(Uncleanable, match="CRC"):
        clean_log(home.log, home.store)
    assert {each.name for each in home.log.directory.iterdir()} == before
    assert home.log.cleaned_to is None


def test_records_are_found_by_time_after_a_cleaning(home: Home) -> None:
    for number in range(60):
        append(home.log, keyed([(b"key %d" % (number % 7), b"%d" % number)], timestamp=NOW + 1000 * number))
    settle(home.log)
    home.clean()
    for _ in range(2):
        records = seen(home.log)
        assert len(records) == 7
        for record in records:
            found = home.log.offset_for_time(record.timestamp - 500, up_to=60)
            assert found is not None
            assert found[:2] == (record.timestamp, record.offset)
        latest = home.log.offset_of_max_timestamp()
        assert latest is not None
        assert latest.offset == records[-1].offset
        home.reopen()


def test_a_reader_with_an_old_view_goes_on_reading(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    settle(home.log)
    (part,) = home.log.read(0, 1 << 20, 2, True).slices
    part.file.acquire()
    home.clean()
    home.store.empty_trash(NOW + DAY)
    assert part.file.read(part.length, part.position).count(b"a") == 2
    part.file.release()
    assert home.values() == [(1, b"a", b"2")]


def test_a_log_that_was_cut_meanwhile_stays_as_it_is(home: Home) -> None:
    append(home.log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")]))
    settle(home.log)
    todo = examine(home.log, NOW)
    append(home.log, keyed([(b"a", b"3")]))
    home.log.truncate_to(2)
    with pytest.raises(CleaningAborted):
        clean(todo, home.store, InThisProcess(home.store.files), LIMITS, NOW)
    assert home.values() == [(0, b"a", b"1"), (1, b"a", b"2")]
    assert not list(home.log.directory.glob("*.cleaned"))
    assert not list(home.log.directory.glob("*.swap"))
