"""Reading a log: by offset, from the cache or the disk, and by leader epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.model.clock import ManualClock
from barnabas.model.errors import OffsetOutOfRange
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from barnabas.storage.files import ColdRead
from barnabas.storage.segments.indexes import OffsetIndex
from tests.support.logs import (
    NOW,
    UnsyncedFiles,
    append,
    batch,
    log_in,
    new_log,
    now_and_reopened,
    read_bytes,
    reopened,
    split,
    store,
    stored,
)

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segment import FileSlice


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


class UnreadFiles(UnsyncedFiles):
    """Files of which nothing is read."""

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Not here."""
        raise AssertionError("a file is read")

    read_cached = read


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_newest_batches_are_found_without_a_look_at_the_file(tmp_path: Path, at_once: int) -> None:
    """Also by a follower that lacks what its leader has compacted away: of a gap, the batch behind it is found."""
    leader = new_log(tmp_path / "leader")
    append(leader, *(batch(3, size=number) for number in range(9)))
    kept = [each for each in stored(leader) if read_header(each).base_offset not in (3, 6, 15)]
    follower = new_log(tmp_path / "follower", files=UnreadFiles())
    for at in range(0, 6, at_once):
        follower.append_replica(b"".join(kept[at : at + at_once]), now_ms=NOW)
    for offset in range(27):
        at = next(number for number, each in enumerate(kept) if read_header(each).last_offset >= offset)
        whole = slice_of(follower, offset, 1)
        assert (whole.position, whole.length) == (sum(map(len, kept[:at])), len(kept[at])), offset
        rest = slice_of(follower, offset, 1 << 20)
        assert rest.length == sum(map(len, kept[at:]))


def slice_of(log: Log, offset: int, max_bytes: int) -> FileSlice:
    (found,) = log.read(offset, max_bytes, log.log_end_offset, True).slices
    return found


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


@pytest.mark.parametrize("first", [(0, None), (None, -1), (None, 1 << 30), (None, 113), (7, None)])
def test_an_index_entry_that_would_have_readers_pass_over_batches_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: tuple[int | None, int | None]
) -> None:
    log = new_log(tmp_path, LogConfig(index_interval_bytes=100))
    append(log, *(batch(3) for _ in range(20)))
    log.close()
    [index] = log.directory.glob("*.index")
    data = index.read_bytes()
    old = OffsetIndex.ENTRY.unpack_from(data)
    entry = [was if new is None else new for was, new in zip(old, first, strict=True)]
    index.write_bytes(OffsetIndex.ENTRY.pack(*entry) + data[8:])
    again = reopened(log)
    for offset in range(0, 60, 3):
        assert read_header(read_bytes(again, offset)).base_offset == offset
    assert again.store.failed is None
    found = again.offset_for_time(NOW, up_to=60)
    assert found is not None
    assert found.offset == 0
    doubts = [line for line in caplog.messages if "made anew" in line]
    assert len(doubts) <= 1
    assert all(f"has offset {entry[0]} at byte {entry[1]}" in line for line in doubts)
    assert doubts or entry[0] == 7
    again.close()
    index.unlink()
    assert len(stored(reopened(again))) == 20


def test_where_an_index_is_wrong_batches_are_looked_for_in_a_thread(tmp_path: Path) -> None:
    """Without it, the file may have to be gone over from its beginning."""
    log = new_log(tmp_path, LogConfig(index_interval_bytes=100))
    append(log, *(batch(3) for _ in range(20)))
    log.close()
    [index] = log.directory.glob("*.index")
    index.write_bytes(bytes(4) + index.read_bytes()[4:])
    again = reopened(log)
    again.open()
    with pytest.raises(ColdRead):
        again.read(0, 100, 60, True, may_block=False)
    assert again.read(0, 100, 60, True).slices[0].position == 0


@pytest.mark.parametrize("length", [-12, -13, -1, 0, 48])
def test_what_tests_split_ends_where_no_batch_begins(length: int) -> None:
    """A batch that says it has no bytes was split off for ever."""
    whole, damaged = batch(), bytearray(batch())
    damaged[8:12] = length.to_bytes(4, "big", signed=True)
    assert split(whole + damaged + whole) == [whole]
