"""What of a log is left after a stop, a kill and a flush."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import UnknownTopicOrPartition
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from tests.support.logs import NOW, TOPIC_ID, UnsyncedFiles, append, batch, new_log, recovered, reopened, stored

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.log.log import Log


def test_a_clean_reopen_reads_nothing_again(small: Log) -> None:
    append(small, *(batch(2, size=100, producer_id=3, sequence=2 * number) for number in range(20)), epoch=3)
    before, producers = stored(small), small.producers.describe()
    again = reopened(small)
    assert not again.is_open
    assert (again.log_start_offset, again.log_end_offset) == (0, 40)
    assert stored(again) == before
    assert again.producers.describe() == producers
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
    before, producers = stored(small), small.producers.describe()
    again = recovered(small)
    assert stored(again) == before
    assert again.producers.describe() == producers
    assert (again.offset_for_epoch(0), again.offset_for_epoch(1), again.latest_epoch) == ((0, 14), (1, 28), 2)
    assert append(again, batch(1)) == [40]


def test_a_closed_log_takes_no_calls(log: Log) -> None:
    log.close()
    with pytest.raises(UnknownTopicOrPartition):
        append(log, batch())
    with pytest.raises(UnknownTopicOrPartition):
        log.read(0, 1, 1, True)


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


def test_a_log_that_was_cut_and_grew_to_the_same_end_is_closed_with_all_of_it(tmp_path: Path) -> None:
    """After a clean start nothing is to be synced at the next stop where nothing was written, but here it was."""
    log = new_log(tmp_path)
    append(log, *(batch(2) for _ in range(10)))
    log = reopened(log)
    log.truncate_to(10)
    append(log, *(batch(2) for _ in range(5)))
    assert log.log_end_offset == 20
    log.close()
    assert log.recovery_point == 20


def test_the_transaction_index_is_on_disk_before_the_recovery_point_passes_it(tmp_path: Path) -> None:
    """Recovery makes the other indexes anew; of this one, nothing before the recovery point."""

    class Synced(UnsyncedFiles):
        names: set[str] = set()  # noqa: RUF012  (of this test alone)

        def sync_file(self, path: str) -> None:
            self.names.add(path)

        def sync_dir(self, path: str) -> None:
            self.names.add(path)

    log = new_log(tmp_path, files=Synced())
    log.flush()
    Synced.names.clear()
    append(log, batch(2, producer_id=7, transactional=True))
    marker = build_marker(EndOfTransaction(ControlType.ABORT, 0), timestamp=NOW, producer_id=7, producer_epoch=0)
    append(log, marker)
    index = log.segments[0].txn_index.path
    assert log.flush() == 3
    assert Synced.names >= {index, log.path}
