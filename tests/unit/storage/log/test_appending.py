"""Batches on their way into a log, as its leader writes them; and when a new segment begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import CorruptMessage, RecordListTooLarge
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import LOG_APPEND_TIME, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage.log import validation
from barnabas.storage.log.log import AppendInfo, Log
from tests.support.logs import NOW, SMALL, append, batch, file_names, headers, new_log, reopened, stored

if TYPE_CHECKING:
    from pathlib import Path


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


def test_segments_are_rolled_by_size(small: Log) -> None:
    append(small, *(batch(1, size=200) for _ in range(7)))
    bases = [segment.base_offset for segment in small.segments]
    assert bases == [0, 3, 6]
    assert all(segment.size <= 1000 for segment in small.segments)
    assert "00000000000000000003.log" in file_names(small)
    later = {"00000000000000000003.index", "00000000000000000003.timeindex", "00000000000000000003.snapshot"}
    assert not later & file_names(small)  # not on the event loop
    small.flush()
    assert later | {"00000000000000000006.snapshot"} <= file_names(small)


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
