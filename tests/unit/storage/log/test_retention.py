from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.storage.check import check
from barnabas.storage.log.retention import expired_segments
from tests.support.logs import (
    NOW,
    SMALL,
    TOPIC_ID,
    TP,
    StepManager,
    UnsyncedFiles,
    append,
    batch,
    file_names,
    new_log,
    oldest,
    reopened,
    stored,
)

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.log.log import Log

SIZE = len(batch(1, size=200))
HOUR = 3_600_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Four segments of three batches and one of one, an hour apart."""
    log = new_log(tmp_path, config(segment_bytes=1000, retention_ms=-1))
    append(log, *(batch(1, size=200, timestamp=NOW + HOUR * (number // 3)) for number in range(13)))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9, 12]
    log.high_watermark = 13
    return log


def config(
    *,
    segment_bytes: int = 1000,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    policy: frozenset[str] = frozenset({"delete"}),
) -> LogConfig:
    return LogConfig(
        segment_bytes=segment_bytes, retention_ms=retention_ms, retention_bytes=retention_bytes, cleanup_policy=policy
    )


def test_without_limits_everything_stays(log: Log) -> None:
    assert expired_segments(log, NOW + 1000 * HOUR).count == 0


def test_time_counts_from_the_largest_timestamp_of_a_segment(log: Log) -> None:
    log.update_config(config(retention_ms=10 * HOUR))
    assert expired_segments(log, NOW + 10 * HOUR).count == 0
    assert expired_segments(log, NOW + 10 * HOUR + 1).count == 1
    assert expired_segments(log, NOW + 13 * HOUR).count == 3
    assert expired_segments(log, NOW + 15 * HOUR).count == 5


@pytest.mark.parametrize("keep", [0, 12])
@pytest.mark.parametrize("interval", [100, 10_000])
def test_a_time_index_that_is_damaged_is_no_reason_to_remove_records(tmp_path: Path, keep: int, interval: int) -> None:
    """What is left of it, or the age of the file, may be long ago."""
    settings = LogConfig(segment_bytes=1000, index_interval_bytes=interval, retention_ms=HOUR)
    log = new_log(tmp_path, settings)
    append(log, *(batch(1, size=200, timestamp=NOW + HOUR * number) for number in range(6)))
    log.close()
    path = log.directory / f"{0:020d}.timeindex"
    path.write_bytes(path.read_bytes()[:keep] if keep else struct.pack(">qi", NOW - 100 * HOUR, 2))
    again = reopened(log)
    again.high_watermark = 6
    assert expired_segments(again, NOW + 3 * HOUR).count == 0
    assert expired_segments(again, NOW + 3 * HOUR + 1).count == 1
    again.close()


def test_size_counts_from_the_end(log: Log) -> None:
    for limit, expected in ((13, 0), (11, 0), (10, 1), (8, 1), (7, 2), (1, 4), (0, 5)):
        log.update_config(config(retention_bytes=limit * SIZE))
        assert expired_segments(log, NOW).count == expected, limit


def test_deleted_records_take_their_segments_along(log: Log) -> None:
    log.update_config(config(policy=frozenset({"compact"}), retention_ms=1))
    log.delete_records_before(8)
    assert expired_segments(log, NOW + 1000 * HOUR).count == 2
    log.delete_records_before(13)
    assert expired_segments(log, NOW + 1000 * HOUR).count == 4


def test_what_is_not_committed_stays(log: Log) -> None:
    log.update_config(config(retention_ms=1, retention_bytes=0))
    for high_watermark, expected in ((0, 0), (3, 1), (8, 2), (12, 4), (13, 5)):
        log.high_watermark = high_watermark
        assert expired_segments(log, NOW + 1000 * HOUR).count == expected


def test_what_came_since_it_was_decided_stays(log: Log) -> None:
    log.update_config(config(retention_ms=1))
    expired = expired_segments(log, NOW + 1000 * HOUR)
    assert expired.count == 5
    append(log, batch(1, size=200, timestamp=NOW + 5 * HOUR))
    log.high_watermark = 14
    assert log.remove_segments(expired, NOW) == 4
    assert (log.log_start_offset, log.log_end_offset) == (12, 14)


def test_nothing_goes_from_a_log_that_was_cut_since(log: Log) -> None:
    log.update_config(config(retention_ms=1))
    expired = expired_segments(log, NOW + 1000 * HOUR)
    log.truncate_to(4)
    append(log, *(batch(1, size=200, timestamp=NOW + 1000 * HOUR) for _ in range(9)))
    assert log.remove_segments(expired, NOW) == 0
    assert (log.log_start_offset, log.log_end_offset) == (0, 13)


def test_an_empty_active_segment_stays(log: Log) -> None:
    log.update_config(config(retention_ms=1, retention_bytes=0))
    assert log.remove_segments(expired_segments(log, NOW + 1000 * HOUR), NOW) == 5
    assert expired_segments(log, NOW + 1000 * HOUR).count == 0


def test_without_timestamps_the_files_age_counts(tmp_path: Path) -> None:
    log = new_log(tmp_path, config(retention_ms=1000))
    append(log, batch(1, timestamp=-1))
    log.high_watermark = 1
    os.utime(log.segments[0].path, (NOW / 1000, NOW / 1000))
    assert expired_segments(log, NOW + 1000).count == 0
    assert expired_segments(log, NOW + 1001).count == 1


class UnrenamedFiles(UnsyncedFiles):
    """Files of which the n-th is not renamed, once."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.number = errno.ENOSPC

    def rename(self, old: str, new: str) -> None:
        if self.left is not None and new.endswith(".deleted"):
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise OSError(self.number, os.strerror(self.number), new)
        super().rename(old, new)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("failing", range(9))
def test_segments_whose_files_were_not_renamed_are_removed_later(
    tmp_path: Path, failing: int, number: int, restarts: bool
) -> None:
    """They were in no list any more, and on the disk for good."""
    files = UnrenamedFiles()
    manager = StepManager(tmp_path, files).start({TP.topic: SMALL})
    log = manager.create(TP, TOPIC_ID, SMALL)
    append(log, *(batch(1, size=300, producer_id=7, sequence=each) for each in range(20)))
    log.high_watermark = log.log_end_offset
    manager.drain()
    before = stored(log)
    files.left, files.number = failing, number
    with pytest.raises(StorageFailed):
        log.remove_segments(oldest(log, 3), NOW)
    files.left = None
    start = log.log_start_offset
    kept = before[start:]
    assert start == 6
    assert stored(log) == kept
    if restarts:
        manager.close(clean=False)
        manager = StepManager(tmp_path).start({TP.topic: SMALL})
        again = manager.get(TP)
        assert again is not None
        log = again
    log.high_watermark = log.log_end_offset
    if not restarts:
        manager.remove_expired(log, NOW)
        assert log.log_start_offset == start
        assert stored(log) == kept
    else:
        assert stored(log)[-len(kept) :] == kept
    manager.delete_due(NOW + 10**9)
    names = {name for name in file_names(log) if name[:20].isdecimal()}
    bases = {f"{segment.base_offset:020d}" for segment in log.segments}
    assert {name[:20] for name in names if not name.endswith(".snapshot")} == bases
    assert not any(".deleted" in name for name in names)
    manager.close()
    assert check(tmp_path).errors == []
