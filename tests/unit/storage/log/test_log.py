"""Cutting a log, deleting from it, and what else it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.model.errors import InconsistentTopicId, OffsetOutOfRange
from barnabas.model.ids import NO_ID
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import Truncation
from tests.support.faulty_files import FaultyFiles
from tests.support.logs import (
    NOW,
    SMALL,
    TOPIC_ID,
    TP,
    append,
    batch,
    file_names,
    log_in,
    new_log,
    oldest,
    read_bytes,
    reopened,
    store,
    stored,
)

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.segments.segments import Segments


@pytest.mark.parametrize("offset", [0, 1, 2, 5, 20, 21, 49, 98, 99, 100, 200])
def test_truncation_leaves_a_prefix(small: Log, offset: int) -> None:
    append(small, *(batch(2, size=30) for _ in range(50)))
    before = stored(small)

    small.truncate_to(offset)

    assert stored(small) == before[: offset // 2]
    assert small.log_end_offset == min(offset // 2 * 2, 100)
    assert append(small, batch(1)) == [small.log_end_offset - 1]
    assert len(stored(reopened(small))) == min(offset // 2, 50) + 1


@pytest.mark.parametrize("offset", [50, 51, 52])
def test_an_epoch_that_begins_with_the_log_within_a_batch_goes_with_that_batch(log: Log, offset: int) -> None:
    """No epoch may begin after the end of the log: batches that come then would count as of the one before it."""
    for epoch, count in ((1, 48), (2, 5), (3, 1)):
        append(log, batch(count), epoch=epoch)
    log.high_watermark = 53
    log.delete_records_before(50)
    log.truncate_to(offset)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (48, 48, ())
    append(log, batch(1), epoch=2)
    assert (log.epoch_at(48), log.latest_epoch) == (2, 2)


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
    assert [(found.producer_id, found.last_sequence) for found in small.producers.describe()] == [(7, 11)]
    assert append(small, batch(1, producer_id=7, sequence=12)) == [12]


def test_a_log_can_start_again_elsewhere(small: Log) -> None:
    append(small, *(batch(2, size=100, producer_id=7, sequence=2 * number) for number in range(10)))
    small.truncate_fully(1000)
    assert (small.log_start_offset, small.log_end_offset, small.recovery_point) == (1000, 1000, 1000)
    assert not small.producers.describe()
    assert append(small, batch()) == [1000]
    again = reopened(small)
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1001)


def test_truncation_before_the_first_segment_starts_again_there(log: Log) -> None:
    log.truncate_fully(1000)
    append(log, batch())
    log.truncate_to(500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)


def test_truncation_before_the_logs_start_starts_again_there(log: Log) -> None:
    append(log, *(batch(2) for _ in range(10)))
    log.high_watermark = 20
    log.delete_records_before(10)
    log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert (log.recovery_point, log.high_watermark, log.latest_epoch) == (5, 5, -1)
    assert append(log, batch()) == [5]
    assert [segment.base_offset for segment in log.segments] == [5]


def test_truncation_starts_again_where_retention_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[tuple[int, int]] = []

    def lower(log: Log) -> None:
        lowered.append((log.recovery_point, log.log_start_offset))

    small = Log.create(TP, store(tmp_path, lower_checkpoints=lower), f"{tmp_path}/{TP}", SMALL, TOPIC_ID)
    append(small, *(batch(2, size=100) for _ in range(20)))
    small.high_watermark = 40
    cut = small.segments[1].base_offset + 1
    real = Truncation._try_to_cut

    def late(truncation: Truncation, segments: Segments, offset: int) -> bool:
        small.remove_segments(oldest(small, 3), NOW)
        return real(truncation, segments, offset)

    monkeypatch.setattr(Truncation, "_try_to_cut", late)
    small.truncate_to(cut)
    assert (small.log_start_offset, small.log_end_offset) == (cut, cut)
    assert lowered[-1][1] == cut, "what is on disk was lowered for that, too"


def test_truncation_reads_no_more_than_it_must(tmp_path: Path) -> None:
    """It takes no longer for a long segment than for a short one, where its producers wrote before the cut."""
    files = FaultyFiles(tmp_path)
    log = new_log(tmp_path, LogConfig(index_interval_bytes=1000), files)
    append(log, batch(1, producer_id=7))
    append(log, *(batch(1, size=100) for _ in range(2000)))
    before = files.read_bytes
    log.truncate_to(1990)
    assert files.read_bytes - before < 10_000
    assert [found.producer_id for found in log.producers.describe()] == [7]
    assert log.log_end_offset == 1990


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
    assert "00000000000000000000.log.1.deleted" in file_names(small)
    assert "00000000000000000003.snapshot" not in file_names(small)
    assert len(part.file.read(part.length, part.position)) == part.length
    part.file.release()


def test_removing_all_segments_leaves_an_empty_one(small: Log) -> None:
    append(small, *(batch(1, size=200) for _ in range(4)))
    assert small.remove_segments(oldest(small, 2), NOW) == 2
    assert (small.log_start_offset, small.log_end_offset, small.size) == (4, 4, 0)
    assert small.remove_segments(oldest(small, 1), NOW) == 0
    assert append(small, batch()) == [4]


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
