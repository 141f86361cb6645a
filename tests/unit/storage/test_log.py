from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.model.clock import ManualClock
from barnabas.model.errors import (
    CorruptMessage,
    InconsistentTopicId,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import NO_ID
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import LOG_APPEND_TIME, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage import validation
from barnabas.storage.log import AppendInfo, Log
from tests.support.logs import (
    NOW,
    TOPIC_ID,
    TP,
    UnsyncedFiles,
    append,
    batch,
    headers,
    new_log,
    oldest,
    read_bytes,
    recovered,
    reopened,
    split,
    store,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

    from barnabas.storage.directory import LogDirectory

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return new_log(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Log:
    return new_log(tmp_path, SMALL)


def now_and_reopened(log: Log) -> Iterator[Log]:
    yield log
    yield reopened(log)


def files(log: Log) -> set[str]:
    return {path.name for path in log.directory.iterdir()}


def test_batches_get_consecutive_offsets_and_the_leaders_epoch(log: Log) -> None:
    first, second = batch(3), batch(2)

    assert log.append(first, leader_epoch=5, now_ms=NOW) == AppendInfo(0, 2, -1, 0, False)
    assert log.append(memoryview(second), leader_epoch=6, now_ms=NOW) == AppendInfo(3, 4, -1, 0, False)

    assert [(found.base_offset, found.leader_epoch) for found in headers(log)] == [(0, 5), (3, 6)]
    assert [found[16:] for found in stored(log)] == [first[16:], second[16:]]
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)


def test_a_header_that_was_read_already_is_used(log: Log) -> None:
    data = batch(3)
    assert log.append(data, 0, NOW, read_header(data)).last_offset == 2


def test_log_append_time_is_written_into_the_header_and_its_crc(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))

    sent = batch(2, timestamp=5, producer_id=1)
    info = log.append(sent, 1, NOW, validation.check(sent, log.config, NOW))
    repeated = log.append(sent, 1, NOW + 9, validation.check(sent, log.config, NOW + 9))

    (data,) = stored(log)
    header = read_header(data)
    assert repeated == info._replace(duplicate=True)
    assert (header.base_offset, header.leader_epoch) == (0, 1)
    assert info.append_time == header.max_timestamp == NOW
    assert header.attributes & LOG_APPEND_TIME
    assert header.base_timestamp == 5
    assert header.crc == crc32c(data[21:])


def test_a_batch_whose_length_lies_is_refused(log: Log) -> None:
    with pytest.raises(CorruptMessage):
        append(log, batch() + b"x")
    assert log.log_end_offset == 0


def test_a_batch_larger_than_a_segment_is_refused(small: Log) -> None:
    with pytest.raises(RecordListTooLarge):
        append(small, batch(1, size=2000))


def test_reads_begin_at_the_batch_that_holds_the_offset(log: Log) -> None:
    append(log, batch(3), batch(3), batch(3))
    assert [read_header(found).base_offset for found in split(read_bytes(log, 4))] == [3, 6]


def test_reads_do_not_pass_the_limit(log: Log) -> None:
    append(log, batch(3), batch(3), batch(3))
    for up_to, expected in ((0, []), (1, [0]), (3, [0]), (4, [0, 3]), (6, [0, 3]), (9, [0, 3, 6])):
        found = split(read_bytes(log, 0, up_to=up_to))
        assert [read_header(each).base_offset for each in found] == expected, up_to
    assert read_bytes(log, 4, up_to=3) == b""


def test_max_bytes_cuts_but_one_batch_is_whole_if_asked(log: Log) -> None:
    append(log, batch(3), batch(3))
    size = len(batch(3))
    assert len(read_bytes(log, 0, 10, min_one=True)) == size
    assert len(read_bytes(log, 0, 10, min_one=False)) == 10
    assert len(read_bytes(log, 0, 0, min_one=False)) == 0
    assert len(read_bytes(log, 0, size + 5, min_one=True)) == size + 5
    assert len(read_bytes(log, 5, 10, min_one=True)) == size


def test_offsets_outside_the_log_are_refused(log: Log) -> None:
    append(log, batch(3))
    assert read_bytes(log, 3) == b""
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, 3, True)


def test_every_offset_can_be_read_in_many_segments(small: Log) -> None:
    append(small, *(batch(2, size=30) for _ in range(50)))
    assert len(small.segments) > 5
    for log in now_and_reopened(small):
        for offset in range(100):
            first = read_header(read_bytes(log, offset))
            assert first.base_offset <= offset <= first.last_offset
        assert len(stored(log)) == 50


def test_segments_are_rolled_by_size(small: Log) -> None:
    append(small, *(batch(1, size=200) for _ in range(7)))
    bases = [segment.base_offset for segment in small.segments]
    assert bases == [0, 3, 6]
    assert all(segment.size <= 1000 for segment in small.segments)
    assert {"00000000000000000003.log", "00000000000000000003.index", "00000000000000000003.timeindex"} <= files(small)
    assert "00000000000000000003.snapshot" in files(small)


def test_segments_are_rolled_by_the_age_of_their_records(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_ms=1000))
    append(log, batch(timestamp=NOW), batch(timestamp=NOW + 1000), batch(timestamp=NOW + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    again = reopened(log)
    append(again, batch(timestamp=NOW + 2001), batch(timestamp=NOW + 2002))
    assert [segment.base_offset for segment in again.segments] == [0, 2, 4]


def test_without_timestamps_age_counts_by_the_clock(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_ms=1000))
    append(log, batch(timestamp=-1), now_ms=NOW)
    append(log, batch(timestamp=-1), now_ms=NOW + 1000)
    append(log, batch(timestamp=-1), now_ms=NOW + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_jitter_brings_rolls_forward(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_ms=1000, segment_jitter_ms=1000))
    append(log, batch(timestamp=NOW), batch(timestamp=NOW + 1001))
    assert len(log.segments) == 2


def test_segments_are_rolled_when_an_index_is_full(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_index_bytes=60, index_interval_bytes=1))
    append(log, *(batch(timestamp=NOW + number) for number in range(20)))
    assert len(log.segments) == 4
    for segment in log.segments[:-1]:
        assert segment.time_index.entries <= 5
        assert segment.offset_index.entries <= 7


def test_segments_are_rolled_when_offsets_do_not_fit(log: Log) -> None:
    far = bytearray(batch())
    far[:8] = (2**31 + 5).to_bytes(8, "big")
    append(log, batch())
    log.append_replica(bytes(far), now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 5]
    assert log.log_end_offset == 2**31 + 6
    assert [found.base_offset for found in headers(log)] == [0, 2**31 + 5]


def test_changed_settings_hold_at_once(log: Log) -> None:
    append(log, batch(size=300), batch(size=300))
    log.update_config(SMALL)
    append(log, batch(size=300), batch(size=300))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_follower_keeps_offsets_and_epochs(log: Log, tmp_path: Path) -> None:
    append(log, batch(3), epoch=2)
    append(log, batch(2), epoch=4)
    follower = new_log(tmp_path / "follower")
    data = b"".join(stored(log))

    info = follower.append_replica(data + data[:30], now_ms=NOW)

    assert info is not None
    assert (info.base_offset, info.last_offset) == (0, 4)
    assert stored(follower) == stored(log)
    assert follower.offset_for_epoch(2) == (2, 3)
    assert follower.append_replica(data[:30], now_ms=NOW) is None
    with pytest.raises(OffsetOutOfRange):
        follower.append_replica(data, now_ms=NOW)


@pytest.mark.parametrize("at_once", [1, 2, 7, 60])
@pytest.mark.parametrize("index_bytes", [60, 10_000])
def test_a_follower_has_the_files_of_its_leader_however_many_batches_come_at_once(
    tmp_path: Path, at_once: int, index_bytes: int
) -> None:
    config = LogConfig(segment_bytes=4000, index_interval_bytes=300, segment_index_bytes=index_bytes)
    leader, follower = new_log(tmp_path / "leader", config), new_log(tmp_path / "follower", config)
    for number in range(60):
        timestamp = NOW + 7 * number % 40
        append(leader, batch(1 + number % 3, size=11 * number % 250, timestamp=timestamp), epoch=number // 25)
    batches = stored(leader)
    for at in range(0, 60, at_once):
        follower.append_replica(b"".join(batches[at : at + at_once]), now_ms=NOW)
    assert len(leader.segments) > 3
    assert stored(follower) == batches
    leader.close()
    follower.close()
    assert contents(follower) == contents(leader)


@pytest.mark.parametrize(("at", "error"), [(-1, "CRC"), (16, "format"), (11, "CRC")])
def test_a_follower_writes_nothing_of_what_was_damaged_on_the_way(
    log: Log, tmp_path: Path, at: int, error: str
) -> None:
    append(log, batch(2), batch(2), batch(2))
    sound, damaged, last = (bytearray(each) for each in stored(log))
    damaged[at] ^= 1
    follower = new_log(tmp_path / "follower")
    with pytest.raises(CorruptMessage, match=error):
        follower.append_replica(bytes(sound + damaged + last), now_ms=NOW)
    assert (follower.log_end_offset, stored(follower)) == (0, [])


def contents(log: Log) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.directory.iterdir()}


def test_a_follower_writes_what_came_at_once_with_one_call(log: Log, tmp_path: Path) -> None:
    append(log, *(batch(2, size=100) for _ in range(11)))
    files = CountedWrites()
    follower = new_log(tmp_path / "follower", files=files)
    first, *others = stored(log)
    follower.append_replica(first, now_ms=NOW)
    files.writes = 0
    follower.append_replica(b"".join(others), now_ms=NOW)
    assert (files.writes, follower.log_end_offset) == (1, 22)


class CountedWrites(UnsyncedFiles):
    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def append(self, fd: int, data: Buffer) -> int:
        self.writes += 1
        return super().append(fd, data)


def test_a_follower_may_have_gaps(log: Log) -> None:
    for base in (5, 10, 15):
        data = bytearray(batch(2))
        data[:8] = base.to_bytes(8, "big")
        log.append_replica(bytes(data), now_ms=NOW)
    for each in now_and_reopened(log):
        for offset, expected in ((0, 5), (6, 5), (7, 10), (11, 10), (12, 15), (16, 15)):
            assert read_header(read_bytes(each, offset)).base_offset == expected
        assert read_bytes(each, 7, up_to=8) == b""


@pytest.mark.parametrize("offset", [0, 1, 2, 5, 20, 21, 49, 98, 99, 100, 200])
def test_truncation_leaves_a_prefix(small: Log, offset: int) -> None:
    append(small, *(batch(2, size=30) for _ in range(50)))
    before = stored(small)

    small.truncate_to(offset)

    assert stored(small) == before[: offset // 2]
    assert small.log_end_offset == min(offset // 2 * 2, 100)
    assert append(small, batch(1)) == [small.log_end_offset - 1]
    assert len(stored(reopened(small))) == min(offset // 2, 50) + 1


def test_truncation_revokes_what_waits_to_be_sent(log: Log) -> None:
    append(log, batch(), batch())
    (part,) = log.read(0, 1000, 2, True).slices
    log.truncate_to(1)
    assert part.file.revoked
    assert not log.read(0, 1000, 1, True).slices[0].file.revoked


def test_truncation_takes_epochs_producers_and_marks_along(small: Log) -> None:
    for number in range(20):
        append(small, batch(1, size=100, producer_id=7, sequence=number), epoch=number // 5)
    small.flush()
    small.high_watermark = 20

    small.truncate_to(12)

    assert (small.recovery_point, small.high_watermark, small.latest_epoch) == (12, 12, 2)
    assert [(found.producer_id, found.last_sequence) for found in small.producers()] == [(7, 11)]
    assert append(small, batch(1, producer_id=7, sequence=12)) == [12]


def test_a_log_can_start_again_elsewhere(small: Log) -> None:
    append(small, *(batch(2, size=100, producer_id=7, sequence=2 * number) for number in range(10)))
    small.truncate_fully(1000)
    assert (small.log_start_offset, small.log_end_offset, small.recovery_point) == (1000, 1000, 1000)
    assert not small.producers()
    assert append(small, batch()) == [1000]
    again = reopened(small)
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1001)


def test_truncation_before_the_first_segment_starts_again_there(log: Log) -> None:
    log.truncate_fully(1000)
    append(log, batch())
    log.truncate_to(500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)


def test_deleted_records_cannot_be_read(small: Log) -> None:
    append(small, *(batch(2, size=100) for _ in range(10)), epoch=1)
    small.high_watermark = 20

    assert small.delete_records_before(5) == 5
    assert small.delete_records_before(3) == 5

    with pytest.raises(OffsetOutOfRange):
        small.read(4, 100, 20, True)
    assert read_header(read_bytes(small, 5)).base_offset == 4
    assert small.epoch_at(5) == 1
    for offset in (-1, 21):
        with pytest.raises(OffsetOutOfRange):
            small.delete_records_before(offset)
    assert reopened(small).log_start_offset == 5


def test_removed_segments_move_the_log_start(small: Log) -> None:
    append(small, *(batch(1, size=200) for _ in range(10)))
    (part,) = small.read(0, 10_000, 10, True).slices
    part.file.acquire()
    assert small.remove_segments(oldest(small, 2), NOW) == 2
    assert small.log_start_offset == 6
    assert "00000000000000000000.log.deleted" in files(small)
    assert "00000000000000000003.snapshot" not in files(small)
    assert len(part.file.read(part.length, part.position)) == part.length
    part.file.release()


def test_removing_all_segments_leaves_an_empty_one(small: Log) -> None:
    append(small, *(batch(1, size=200) for _ in range(4)))
    assert small.remove_segments(oldest(small, 2), NOW) == 2
    assert (small.log_start_offset, small.log_end_offset, small.size) == (4, 4, 0)
    assert small.remove_segments(oldest(small, 1), NOW) == 0
    assert append(small, batch()) == [4]


def test_the_tail_is_warm_and_what_was_found_on_disk_is_not(small: Log) -> None:
    append(small, *(batch(1, size=200) for _ in range(4)))
    assert is_warm(small, 3)
    assert not is_warm(small, 0)
    again = reopened(small)
    assert not is_warm(again, 3)


def is_warm(log: Log, offset: int) -> bool:
    return log.read(offset, 1000, log.log_end_offset, True).slices[0].warm


def test_what_was_written_a_while_ago_is_not_warm(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    home = store(tmp_path)
    home.clock = clock
    log = log_in(home, 0)
    for _ in range(10):
        append(log, batch(), now_ms=clock.now_ms())
        clock.advance(10_000)
    warm = [is_warm(log, offset) for offset in range(10)]
    assert warm == sorted(warm)
    assert warm.index(True) in (6, 7)
    clock.advance(60_000)
    assert not is_warm(log, 9)
    append(log, batch(), now_ms=clock.now_ms())
    assert [is_warm(log, 9), is_warm(log, 10)] == [False, True]


def test_reads_of_cached_data_need_not_wait(small: Log) -> None:
    append(small, *(batch(1, size=200) for _ in range(10)))
    again = reopened(small)
    for offset in range(10):
        assert again.read(offset, 10, 10, True, may_block=False).size == len(batch(1, size=200))


def test_epochs_end_where_the_next_begins(log: Log) -> None:
    append(log, batch(3), epoch=1)
    append(log, batch(3), epoch=4)
    for each in now_and_reopened(log):
        assert each.offset_for_epoch(4) == (4, 6)
        assert each.offset_for_epoch(1) == (1, 3)
        assert each.offset_for_epoch(3) == (1, 3)
        assert each.offset_for_epoch(0) == (0, 0)
        assert each.offset_for_epoch(5) == (-1, -1)
        assert each.offset_for_epoch(-1) == (-1, -1)
        assert each.latest_epoch == 4
        assert [each.epoch_at(offset) for offset in (0, 2, 3, 5)] == [1, 1, 4, 4]


def test_a_new_leader_notes_its_epoch_before_it_writes(log: Log) -> None:
    append(log, batch(3), epoch=1)
    log.assign_epoch(2, 3)
    assert log.offset_for_epoch(2) == (2, 3)
    assert log.offset_for_epoch(1) == (1, 3)


def test_a_clean_reopen_reads_nothing_again(small: Log) -> None:
    append(small, *(batch(2, size=100, producer_id=3, sequence=2 * number) for number in range(20)), epoch=3)
    before, producers = stored(small), small.producers()
    again = reopened(small)
    assert not again.is_open
    assert (again.log_start_offset, again.log_end_offset) == (0, 40)
    assert stored(again) == before
    assert again.producers() == producers
    assert again.recovery_point == 40
    assert again.topic_id == TOPIC_ID


def test_closing_an_unchanged_log_writes_nothing(small: Log) -> None:
    append(small, *(batch(2, size=100) for _ in range(20)))
    again = reopened(small)
    again.read(0, 100, 40, True)
    times = {path: path.stat().st_mtime_ns for path in again.directory.iterdir()}
    again.close()
    assert {path: path.stat().st_mtime_ns for path in again.directory.iterdir()} == times


def test_a_killed_process_loses_nothing(small: Log) -> None:
    for number in range(20):
        append(small, batch(2, size=100, producer_id=3, sequence=2 * number), epoch=number // 7)
    before, producers = stored(small), small.producers()
    again = recovered(small)
    assert stored(again) == before
    assert again.producers() == producers
    assert (again.offset_for_epoch(0), again.offset_for_epoch(1), again.latest_epoch) == ((0, 14), (1, 28), 2)
    assert append(again, batch(1)) == [40]


def test_a_closed_log_takes_no_calls(log: Log) -> None:
    log.close()
    with pytest.raises(UnknownTopicOrPartition):
        append(log, batch())
    with pytest.raises(UnknownTopicOrPartition):
        log.read(0, 1, 1, True)


def test_a_topic_id_is_given_once(log: Log) -> None:
    assert log.topic_id == TOPIC_ID
    log.set_topic_id(TOPIC_ID)
    with pytest.raises(InconsistentTopicId):
        log.set_topic_id(UUID(int=9))
    log.close()
    (log.directory / "partition.metadata").unlink()
    again = reopened(log)
    assert again.topic_id == NO_ID
    again.set_topic_id(UUID(int=9))
    assert reopened(again).topic_id == UUID(int=9)


def test_flush_moves_the_recovery_point(small: Log) -> None:
    append(small, *(batch(1, size=200) for _ in range(10)))
    assert small.recovery_point == 0
    assert small.flush(up_to=6) == 6
    assert small.flush() == 10
    assert all(segment.synced for segment in small.segments[:-1])
    assert small.flush() == 10


def test_flush_messages_asks_for_a_flush(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(flush_messages=3))
    append(log, batch(2))
    assert not log.flush_required
    append(log, batch(1))
    assert log.flush_required
    log.flush()
    assert not log.flush_required


def test_descriptors_stay_few(tmp_path: Path) -> None:
    home = store(tmp_path, open_files=8)
    logs = [log_in(home, number) for number in range(30)]
    for _ in range(3):
        for log in logs:
            append(log, batch())
    assert home.pool.open_count <= 8
    for log in logs:
        assert len(stored(log)) == 3
    assert home.pool.open_count <= 8
    for log in logs:
        log.close()
    assert home.pool.open_count == 0


def log_in(home: LogDirectory, number: int) -> Log:
    tp = TP._replace(partition=number)
    return Log.create(tp, home, f"{home.path}/{tp}", LogConfig(), TOPIC_ID)


class TestStability:
    def end(self, log: Log, kind: ControlType = ControlType.COMMIT) -> None:
        log.append(build_marker(EndOfTransaction(kind, 0), timestamp=NOW, producer_id=7, producer_epoch=0), 0, NOW)

    @pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
    def test_a_transaction_is_over_when_its_end_is_committed(self, tmp_path: Path, kind: ControlType) -> None:
        log = new_log(tmp_path)
        append(log, batch(2))
        append(log, batch(2, producer_id=7, transactional=True))
        assert [log.last_stable_offset(committed) for committed in (1, 3, 4)] == [1, 2, 2]
        self.end(log, kind)
        append(log, batch(2))
        assert [log.last_stable_offset(committed) for committed in (1, 3, 4, 5, 7)] == [1, 2, 2, 5, 7]

    @pytest.mark.parametrize("restarted", [reopened, recovered])
    @pytest.mark.parametrize("rolled_at", [0, 2, 4, 5])
    def test_that_an_end_is_not_committed_is_known_after_a_restart(
        self, tmp_path: Path, restarted: Callable[[Log], Log], rolled_at: int
    ) -> None:
        log = new_log(tmp_path)
        for write in (
            lambda: append(log, batch(2)),
            lambda: append(log, batch(2, producer_id=7, transactional=True)),
            lambda: self.end(log),
            lambda: append(log, batch(2)),
        ):
            if log.log_end_offset == rolled_at:
                log.roll(NOW)
            write()
        log.high_watermark = 4
        again = restarted(log)
        again.high_watermark = 4
        again.open()
        assert again.first_unstable_offset is None
        assert [again.last_stable_offset(committed) for committed in (1, 3, 4, 5, 7)] == [1, 2, 2, 5, 7]

    def test_an_end_that_was_cut_away_is_none(self, tmp_path: Path) -> None:
        log = new_log(tmp_path)
        append(log, batch(2, producer_id=7, transactional=True))
        self.end(log)
        log.truncate_to(2)
        append(log, batch(2))
        assert log.last_stable_offset(4) == 0
        self.end(log)
        assert [log.last_stable_offset(committed) for committed in (4, 5)] == [0, 5]

    def test_nothing_is_stable_before_the_log_begins(self, tmp_path: Path) -> None:
        log = new_log(tmp_path)
        append(log, batch(2, producer_id=7, transactional=True))
        self.end(log)
        log.high_watermark = 2
        log.delete_records_before(1)
        assert log.last_stable_offset(2) == 1
