"""Batches on their way into a log, as a follower writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import CorruptMessage, OffsetOutOfRange
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from tests.support.logs import (
    NOW,
    UnsyncedFiles,
    append,
    batch,
    headers,
    new_log,
    now_and_reopened,
    read_bytes,
    recovered,
    reopened,
    stored,
)

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

    from barnabas.storage.log.log import Log


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


@pytest.mark.parametrize(("at", "error"), [(-1, "CRC"), (16, "magic"), (11, "CRC")])
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


def placed(base_offset: int, count: int) -> bytes:
    return base_offset.to_bytes(8, "big") + batch(count)[8:]


def test_an_empty_log_begins_within_the_batch_that_its_leaders_log_begins_within(log: Log) -> None:
    log.truncate_fully(113)
    with pytest.raises(OffsetOutOfRange):
        log.append_replica(placed(105, 10) + placed(115, 3), now_ms=NOW)
    log.start_within(placed(105, 10) + placed(115, 3), now_ms=NOW)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (113, 113, 118)
    assert [header.base_offset for header in headers(log)] == [105, 115]
    assert [segment.base_offset for segment in log.segments] == [105]
    for again in (reopened(log), recovered(log)):
        assert again.log_end_offset == 118
        assert read_bytes(again, 113) == placed(105, 10) + placed(115, 3)


def test_a_log_that_ends_within_that_batch_drops_what_it_has(log: Log) -> None:
    append(log, batch(48), batch(2), epoch=1)
    log.start_within(placed(48, 5), now_ms=NOW)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 50, 53)
    assert stored(log) == [placed(48, 5)]
    assert [segment.base_offset for segment in log.segments] == [48]


def test_nothing_is_dropped_for_batches_that_were_damaged_on_the_way(log: Log) -> None:
    append(log, batch(50))
    before = stored(log)
    with pytest.raises(CorruptMessage):
        log.start_within(placed(48, 5) + placed(53, 2)[:-1] + b"?", now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset) == (0, 50)
    assert stored(log) == before
