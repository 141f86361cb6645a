from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.model.log_config import LogConfig
from barnabas.storage.log.validation import check
from tests.support.logs import NOW, SMALL, append, batch, new_log, reopened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("codec", range(5))
def test_a_record_inside_a_batch_is_found_by_time(tmp_path: Path, codec: int) -> None:
    log = new_log(tmp_path, SMALL)
    for number in range(40):
        append(log, batch(5, timestamp=NOW + 100 * number, codec=codec), epoch=number // 20)
    for each in (log, None):
        found_in = each or reopened(log)
        assert found_in.offset_for_time(0, up_to=200) == (NOW, 0, 0)
        assert found_in.offset_for_time(NOW + 703, up_to=200) == (NOW + 703, 38, 0)
        assert found_in.offset_for_time(NOW + 705, up_to=200) == (NOW + 800, 40, 0)
        assert found_in.offset_for_time(NOW + 3904, up_to=200) == (NOW + 3904, 199, 1)
        assert found_in.offset_for_time(NOW + 3904, up_to=199) is None
        assert found_in.offset_for_time(NOW + 3905, up_to=200) is None
        assert found_in.offset_of_max_timestamp() == (NOW + 3904, 199, 1)


def test_the_first_of_equal_timestamps_is_the_latest(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    assert log.offset_of_max_timestamp() is None
    append(log, batch(3, timestamp=NOW), batch(1, timestamp=NOW + 50), batch(2, timestamp=NOW + 49), batch(1))
    assert log.offset_of_max_timestamp() == (NOW + 50, 3, 0)


def test_timestamps_out_of_order_are_found(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    append(log, *(batch(1, timestamp=NOW + late, size=150) for late in (50, 10, 70, 20, 90, 30, 5, 40)))
    assert log.offset_for_time(NOW + 51, up_to=8) == (NOW + 70, 2, 0)
    assert log.offset_for_time(NOW + 5, up_to=8) == (NOW + 50, 0, 0)
    assert log.offset_for_time(NOW + 71, up_to=8) == (NOW + 90, 4, 0)


def test_deleted_records_are_not_found(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL)
    append(log, *(batch(5, timestamp=NOW + 10 * number, size=20) for number in range(10)))
    log.high_watermark = 50
    log.delete_records_before(23)
    assert log.offset_for_time(NOW, up_to=50) == (NOW + 43, 23, 0)


def test_with_log_append_time_a_batch_has_one_time(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    sent = batch(3, timestamp=5)
    for now_ms in (NOW, NOW + 10):
        log.append(sent, 0, now_ms, check(sent, log.config, now_ms))
    assert log.offset_for_time(NOW + 1, up_to=6) == (NOW + 10, 3, 0)
    assert log.offset_of_max_timestamp() == (NOW + 10, 3, 0)


def test_records_without_timestamps_are_not_found(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, batch(1, timestamp=-1))
    assert log.offset_for_time(0, up_to=1) is None
    assert log.offset_of_max_timestamp() is None
