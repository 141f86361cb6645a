"""Which logs are cleaned, which first, and what is noted of it."""

from __future__ import annotations

import os
import sys
from array import array
from typing import TYPE_CHECKING

import pytest

from barnabas.model.ids import TopicPartition
from barnabas.storage.check import check
from barnabas.storage.cleaner.plan import examine, first_dirty_offset, group_segments, may_be_due
from barnabas.storage.cleaner.report import FILE, overview, read_report
from barnabas.storage.cleaner.task import SegmentFiles
from barnabas.storage.cleaner.worker.key_map import ENTRY_BYTES, KeyMap
from barnabas.storage.cleaner.worker.throttle import Throttle
from barnabas.storage.files import DirEntry, FileSystem
from barnabas.storage.log.log import Log
from tests.support.cleaner_shop import Shop, old_and_new, values
from tests.support.compaction import compacted, keyed, settle
from tests.support.logs import NOW, TOPIC_ID, TP, UnsyncedFiles, append, new_log, store

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600_000


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_log_is_due_when_enough_of_it_is_dirty(tmp_path: Path) -> None:
    log = new_log(tmp_path, compacted(min_cleanable_dirty_ratio=0.5))
    append(log, keyed([(b"a", b"x" * 300)]), keyed([(b"a", b"x" * 300)]))
    settle(log)
    todo = examine(log, NOW)
    assert (todo.first_dirty, todo.end, todo.ratio, todo.is_due) == (0, 2, 1.0, True)
    log.cleaned_to = 2
    assert not examine(log, NOW).is_due
    append(log, keyed([(b"a", b"x" * 100)]))
    settle(log)
    todo = examine(log, NOW)
    assert (todo.first_dirty, todo.end, todo.is_due) == (2, 3, False)
    assert todo.dirty_bytes == log.segments[1].size
    assert todo.clean_bytes == log.segments[0].size
    append(log, keyed([(b"a", b"x" * 600)]))
    settle(log)
    assert examine(log, NOW).is_due


def test_young_records_wait_and_old_ones_do_not(tmp_path: Path) -> None:
    config = compacted(min_cleanable_dirty_ratio=1.0, min_compaction_lag_ms=HOUR, max_compaction_lag_ms=10 * HOUR)
    log = new_log(tmp_path, config)
    for hour in range(3):
        append(log, keyed([(b"a", b"1")], timestamp=NOW + hour * HOUR), now_ms=NOW)
        log.roll(NOW)
    settle(log)
    assert examine(log, NOW).end == 0
    assert examine(log, NOW + 2 * HOUR).end == 2
    assert not examine(log, NOW + 10 * HOUR).is_due
    assert examine(log, NOW + 10 * HOUR + 1).is_due


def test_a_segment_is_rolled_in_time_for_the_longest_lag(tmp_path: Path) -> None:
    log = new_log(tmp_path, compacted(max_compaction_lag_ms=HOUR))
    append(log, keyed([(b"a", b"1")]), keyed([(b"a", b"2")], timestamp=NOW + HOUR + 1))
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_checkpoint_that_does_not_fit_counts_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = new_log(tmp_path, compacted())
    append(log, *(keyed([(b"a", b"1")]) for _ in range(5)))
    log.high_watermark = 5
    log.cleaned_to = 6
    assert first_dirty_offset(log) == 0
    assert "It is cleaned from its start" in caplog.text
    log.cleaned_to = 2
    log.delete_records_before(3)
    assert first_dirty_offset(log) == 3
    log.cleaned_to = 5
    log.truncate_to(4)
    assert first_dirty_offset(log) == 4
    log.truncate_fully(9)
    assert first_dirty_offset(log) == 9


def test_neighbours_are_grouped_as_large_as_a_segment_may_be() -> None:
    def segments(*sizes: tuple[int, int, int]) -> list[SegmentFiles]:
        return [SegmentFiles(base, size, index, index, 0) for base, size, index in sizes]

    def grouped(files: list[SegmentFiles], end: int = 100) -> list[list[int]]:
        return [[each.base_offset for each in group] for group in group_segments(files, 1000, 100, end)]

    assert grouped(segments((0, 600, 8), (10, 400, 8), (20, 1, 8), (30, 2000, 8))) == [[0, 10], [20], [30]]
    assert grouped(segments((0, 1, 60), (10, 1, 60), (20, 1, 40))) == [[0], [10, 20]]
    far = segments((0, 1, 8), (10, 1, 8), (2**31, 1, 8), (2**31 + 5, 1, 8))
    assert grouped(far, 2**31 + 10) == [[0, 10], [2**31, 2**31 + 5]]


def test_the_dirtiest_log_comes_first(shop: Shop) -> None:
    half = shop.make("half", *old_and_new())
    assert shop.clean()
    append(half, *old_and_new())
    settle(half)
    full = shop.make("full", *old_and_new())
    assert shop.clean()
    assert (values(full), len(values(half))) == ([b"new"], 3)
    assert shop.clean()
    assert values(half) == [b"new"]
    assert not shop.clean()


def test_what_was_cleaned_is_noted_in_the_checkpoint_and_the_report(shop: Shop) -> None:
    log = shop.make("t", *old_and_new())
    assert shop.clean()
    assert "t 0 2\n" in (shop.path / "cleaner-offset-checkpoint").read_text()
    report = read_report(FileSystem(), str(shop.path))["t-0"]
    assert report.last is not None
    assert (report.cleanings, report.last.cleaned_to, report.last.records_in, report.last.records_out) == (1, 2, 2, 1)
    (shown,) = overview(shop.path)
    assert (shown.partition, shown.first_dirty, shown.dirty_ratio, shown.report) == ("t-0", 2, 0.0, report)
    append(log, keyed([(b"a", b"newer")]))
    settle(log)
    assert 0.4 < overview(shop.path)[0].dirty_ratio < 0.6
    shop.logs.close()
    assert check(shop.path).findings == []
    again = Shop(shop.path)
    found = again.logs.get(log.tp)
    assert found is not None
    assert found.cleaned_to == 2
    found.update_config(compacted(min_cleanable_dirty_ratio=0.9))
    assert not again.clean()
    again.make("u", *old_and_new())
    assert again.clean()
    assert read_report(FileSystem(), str(shop.path))["t-0"] == report


def test_other_topics_are_left_alone(shop: Shop) -> None:
    log = shop.make("t", *old_and_new(), config=compacted(cleanup_policy=frozenset({"delete"})))
    assert not shop.clean()
    assert len(values(log)) == 2


def test_with_both_policies_old_segments_go_as_well(shop: Shop) -> None:
    both = compacted(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=HOUR)
    log = shop.make("t", keyed([(b"a", b"1")]), config=both)
    append(log, *old_and_new(b"b"), keyed([(b"c", b"1")], timestamp=NOW + HOUR))
    settle(log)
    shop.clock.advance(HOUR + 1000)
    assert shop.clean()
    assert log.log_start_offset == 0
    assert shop.logs.retention_pass(shop.clock.now_ms()) == 0
    shop.clock.advance(HOUR)
    log.update_config(compacted(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=HOUR))
    assert shop.logs.retention_pass(shop.clock.now_ms()) >= 1
    assert log.log_start_offset > 0


def test_retention_passes_over_a_log_that_is_being_cleaned(shop: Shop) -> None:
    both = compacted(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=HOUR)
    log = shop.make("t", *old_and_new(), config=both)
    with log.upkeep:
        assert shop.logs.retention_pass(NOW + 10 * HOUR) == 0
        assert not shop.clean()
    assert shop.logs.retention_pass(NOW + 10 * HOUR) == 1


def test_a_report_that_cannot_be_read_begins_anew(shop: Shop) -> None:
    for text in ("", "{}", "[]", '{"partitions": {"t-0": {}}}', '{"partitions": {"t-0": 1}}'):
        (shop.path / FILE).write_text(text)
        assert read_report(FileSystem(), str(shop.path)) == {}


def test_a_key_map_keeps_to_its_memory() -> None:
    keys = KeyMap(1 << 30, 1.0, 0)
    for number in range(100_000):
        keys.last[b"%030d" % number] = (number + 2**31) << 1
    survivors = keys.survivors()
    entries = sum(sys.getsizeof(key) + sys.getsizeof(value) + 28 for key, value in keys.last.items())
    assert isinstance(survivors, array)
    dictionary = max(sys.getsizeof(dict.fromkeys(range(count))) / count for count in (87_382, 174_763))
    assert entries / 100_000 + 1.5 * dictionary + survivors.itemsize <= ENTRY_BYTES + 28


def test_bytes_are_let_through_at_a_rate() -> None:
    clock = [0.0]
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    throttle = Throttle(1000, lambda: clock[0], wait)
    for _ in range(100):
        throttle.spend(100)
    assert clock[0] == pytest.approx(10, abs=0.2)
    clock[0] += 100
    throttle.spend(10)
    assert clock[0] == pytest.approx(110, abs=0.2)


def test_a_cleaned_segment_is_as_old_as_what_went_into_it(shop: Shop) -> None:
    log = shop.make("t", *old_and_new())
    os.utime(log.segments[0].path, (1000, 1000))
    assert shop.clean()
    assert FileSystem().modified_ms(log.segments[0].path) == 1_000_000


def test_a_log_that_nobody_used_stays_closed_unless_it_is_due(shop: Shop) -> None:
    one = compacted(segment_bytes=10_000)
    shop.logs.create(TopicPartition("empty", 0), TOPIC_ID, one)
    append(shop.logs.create(TopicPartition("one-segment", 0), TOPIC_ID, one), *old_and_new())
    shop.make("clean", *old_and_new())
    append(shop.make("clean-and-more", *old_and_new()), *old_and_new())
    some = shop.make("a-little-dirty", keyed([(b"a", b"x" * 500)]))
    while shop.clean():
        pass
    append(some, keyed([(b"a", b"x" * 200)]))
    settle(some)
    shop.make("dirty", *old_and_new())
    shop = shop.again(compacted(min_cleanable_dirty_ratio=0.5))
    assert not any(log.is_open for log in shop.logs.logs())
    assert shop.clean()
    assert not shop.clean()
    assert [log.tp.topic for log in shop.logs.logs() if log.is_open] == ["dirty"]
    assert values(shop.find("dirty")) == [b"new"]
    some = shop.find("a-little-dirty")
    some.update_config(compacted(min_cleanable_dirty_ratio=0.1))
    assert shop.clean()
    assert len(values(some)) == 1


def test_a_closed_log_is_listed_once(shop: Shop) -> None:
    listed: list[str] = []

    class Counted(UnsyncedFiles):
        def entries(self, path: str) -> list[DirEntry]:
            listed.append(path)
            return super().entries(path)

    shop.make("t", *old_and_new())
    assert shop.clean()
    shop = shop.again(files=Counted())
    listed.clear()
    for _ in range(3):
        assert not shop.clean()
    assert listed == [f"{shop.path}/t-0"]
    log = shop.find("t")
    append(log, *old_and_new())
    settle(log)
    assert shop.clean()


def test_a_closed_log_is_opened_when_its_records_may_be_overdue(shop: Shop) -> None:
    shop.make("t", keyed([(b"a", b"x" * 500)]))
    assert shop.clean()
    append(shop.find("t"), keyed([(b"a", b"new")]))
    settle(shop.find("t"))
    shop = shop.again(compacted(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=HOUR))
    assert not shop.clean()
    shop.clock.advance(HOUR + 1)
    assert shop.clean()
    assert values(shop.find("t")) == [b"new"]


@pytest.mark.parametrize(
    ("start", "end", "cleaned_to", "expected"),
    [
        (0, 30, None, True),
        (0, 30, 10, True),
        (0, 30, 19, True),
        (0, 30, 20, False),
        (0, 30, 30, False),
        (20, 30, None, False),
        (20, 30, 10, False),
        (0, 30, 31, True),
        (0, 0, 20, True),
    ],
)
def test_file_names_tell_whether_a_log_may_be_due(
    tmp_path: Path, start: int, end: int, cleaned_to: int | None, expected: bool
) -> None:
    log = Log(TP, store(tmp_path), f"{tmp_path}/t-0", compacted(), log_start_offset=start, recovery_point=end)
    log.cleaned_to = cleaned_to
    names = [f"{base:020}{suffix}" for base in (0, 10, 20) for suffix in (".log", ".index")]
    entries = [DirEntry(name, False, 100) for name in [*names, "partition.metadata", f"{25:020}.log.deleted"]]
    assert may_be_due(log, entries) == expected
