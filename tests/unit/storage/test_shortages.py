"""A call to the file system fails once, and the log goes on: nothing is left that would do harm later."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from barnabas.model.errors import BarnabasError, StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from tests.support.compaction import clean_log, compacted, keyed, seen, settle
from tests.support.faulty_files import FaultyFiles
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, UnsyncedFiles, append, batch, file_names, stored


class ShortFiles(UnsyncedFiles):
    """Files for which there are no descriptors now and then."""

    def __init__(self) -> None:
        self.no_new_log = False
        self.syncs_left: int | None = None
        self.synced: list[str] = []

    def open(self, path: str, *, create: bool = False) -> int:
        if self.no_new_log and create and path.endswith(".log"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create)

    def sync(self, fd: int) -> None:
        self.synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    def sync_dir(self, path: str) -> None:
        if self.syncs_left is not None:
            self.syncs_left -= 1
            if self.syncs_left < 0:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def test_a_segment_without_a_successor_goes_on_and_is_synced(tmp_path: Path) -> None:
    files, config = ShortFiles(), LogConfig(segment_bytes=1000, flush_messages=1)
    manager = StepManager(tmp_path, files).start({TP.topic: config})
    log = manager.create(TP, TOPIC_ID, config)
    append(log, *(batch(1, size=50) for _ in range(5)))
    files.no_new_log = True
    with pytest.raises(StorageFailed):
        append(log, batch(1, size=600))
    log.flush()
    files.no_new_log = False
    for _ in range(3):
        files.synced.clear()
        append(log, batch(1, size=50))
        assert log.flush() == log.log_end_offset
        assert log.segments[-1].path in files.synced
    append(log, batch(1, size=600))
    assert len(log.segments) == 2
    before = stored(log)
    manager.close()
    again = StepManager(tmp_path).start({TP.topic: config}).get(TP)
    assert again is not None
    assert stored(again) == before


@pytest.mark.parametrize("failing_from", range(4))
def test_a_swap_that_was_not_finished_does_not_come_back(tmp_path: Path, failing_from: int) -> None:
    files, config = ShortFiles(), compacted(file_delete_delay_ms=60_000)
    manager = StepManager(tmp_path, files).start({TP.topic: config})
    log = manager.create(TP, TOPIC_ID, config)
    home = manager.store_of(log)
    for number in range(60):
        append(log, keyed([(b"key%02d" % (number % 40), b"%03d" % number + b"x" * 40)]))
    settle(log)
    files.syncs_left = failing_from  # two syncs of the directory for each group of segments
    with pytest.raises(BarnabasError, match="Too many open files"):
        clean_log(log, home)
    files.syncs_left = None
    assert not home.failed
    assert not [name for name in file_names(log) if name.endswith((".swap", ".cleaned"))]
    for number in range(60, 140):
        append(log, keyed([(b"key%02d" % (number % 8), b"%03d" % number + b"x" * 40)]))
    for number in range(3):
        settle(log)
        clean_log(log, home)
        manager.checkpoint_cleaned(log)
        append(log, keyed([(b"more", b"%d" % number)]))
    before = seen(log)
    manager.close()
    again = StepManager(tmp_path).start({TP.topic: config}).get(TP)
    assert again is not None
    assert seen(again) == before
    assert {record.key for record in before} >= {b"key%02d" % number for number in range(40)}


@pytest.mark.parametrize("seed", range(20))
def test_an_aborted_transaction_before_the_recovery_point_is_known_after_a_power_loss(
    tmp_path: Path, seed: int
) -> None:
    files, config = FaultyFiles(tmp_path), LogConfig(segment_bytes=400)
    manager = StepManager(tmp_path, files).start({TP.topic: config})
    log = manager.create(TP, TOPIC_ID, config)
    append(log, keyed([(b"k", b"aborted" * 20)], producer_id=7, sequence=0, transactional=True))
    end = EndOfTransaction(ControlType.ABORT, 0)
    append(log, build_marker(end, timestamp=NOW, producer_id=7, producer_epoch=0))
    log.high_watermark = log.log_end_offset
    log.flush()
    manager.checkpoint()
    append(log, batch(1, size=200))  # begins a segment where the recovery point is
    files.power_loss(seed)
    again = StepManager(tmp_path, files).start({TP.topic: config}).get(TP)
    assert again is not None
    again.high_watermark = again.log_end_offset
    found = again.read(0, 1 << 20, again.last_stable_offset(again.log_end_offset), True, committed=True)
    assert found.size
    assert [each.producer_id for each in found.aborted] == [7]
