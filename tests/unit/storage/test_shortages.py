"""A call to the file system fails once, and the log goes on: nothing is left that would do harm later."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import BarnabasError, StartupError, StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.check import check
from barnabas.storage.cleaner.process import CleaningFailed
from tests.support.compaction import clean_log, compacted, keyed, seen, settle
from tests.support.faulty_files import FaultyFiles
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, UnsyncedFiles, append, batch, file_names, stored

if TYPE_CHECKING:
    from barnabas.storage.files import DirEntry


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
    home = log.store
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


def test_what_could_not_be_removed_for_want_of_descriptors_is_removed_later(tmp_path: Path) -> None:
    failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    class ShortOnce(UnsyncedFiles):
        def remove_tree(self, path: str) -> None:
            for failure in failures:
                raise failure
            super().remove_tree(path)

    manager = StepManager(tmp_path, ShortOnce()).start()
    log = manager.create(TP, TOPIC_ID, LogConfig(file_delete_delay_ms=0))
    stray = manager.set_aside(log)
    assert stray is not None
    assert manager.delete_stray(stray)
    assert manager.delete_due(NOW) == 0
    failures.clear()
    assert manager.delete_due(NOW) == 1
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


class ShortAtStart(UnsyncedFiles):
    """Files of a broker that starts, of which the n-th cannot be opened."""

    def __init__(self, opened: int, number: int) -> None:
        self._left = opened
        self._number = number
        self.hit = False

    def _open_one(self, path: str) -> None:
        self._left -= 1
        if self._left == -1:
            self.hit = True
            raise OSError(self._number, os.strerror(self._number), path)

    def open(self, path: str, *, create: bool = False) -> int:
        self._open_one(path)
        return super().open(path, create=create)

    def read_file(self, path: str) -> bytes:
        if self.exists(path):
            self._open_one(path)
        return super().read_file(path)

    def entries(self, path: str) -> list[DirEntry]:
        self._open_one(path)
        return super().entries(path)

    def subdirectories(self, path: str) -> list[str]:
        self._open_one(path)
        return super().subdirectories(path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_shortage_at_the_start_is_no_failure_of_the_disk(tmp_path: Path, number: int, clean: bool) -> None:
    """The directory was offline until the next restart: its partitions had no leader, or were made anew elsewhere."""
    opened, files, starts = 0, ShortAtStart(0, number), 0
    while opened == 0 or files.hit:
        root = tmp_path / str(opened)
        manager = StepManager(root).start({TP.topic: LogConfig(segment_bytes=300)})
        log = manager.create(TP, TOPIC_ID, LogConfig(segment_bytes=300))
        append(log, *(batch(1, size=50, producer_id=7, sequence=each) for each in range(6)))
        before = stored(log)
        manager.drain()
        manager.close(clean=clean)

        files = ShortAtStart(opened, number)
        short = StepManager(root, files)
        try:
            short.start({TP.topic: LogConfig(segment_bytes=300)})
        except StartupError as error:
            assert "Its files are as they were" in str(error)
        else:
            starts += 1
            assert not short.failed_directories
            short.close(clean=False)
        again = StepManager(root).start({TP.topic: LogConfig(segment_bytes=300)})
        found = again.get(TP)
        assert found is not None
        assert stored(found) == before
        again.close()
        opened += 1
    assert starts < opened


@pytest.mark.parametrize("is_written", [True, False])
def test_a_clean_stop_removes_what_a_cleaning_left(tmp_path: Path, is_written: bool) -> None:
    """`log check` warned of it, though nothing is wrong."""
    config = compacted()
    manager = StepManager(tmp_path).start({TP.topic: config})
    log = manager.create(TP, TOPIC_ID, config)
    append(log, *(keyed([(b"key", b"%03d" % number)]) for number in range(9)))
    manager.close()
    manager = StepManager(tmp_path).start({TP.topic: config})
    found = manager.get(TP)
    assert found is not None
    log = found
    before = stored(log)
    if is_written:
        append(log, keyed([(b"key", b"999")]))
    for suffix in ("log", "index"):
        (log.directory / f"{0:020d}.{suffix}.cleaned").write_bytes(b"half")
    manager.close()
    assert check(tmp_path).findings == []
    again = StepManager(tmp_path).start({TP.topic: config}).get(TP)
    assert again is not None
    assert stored(again)[: len(before)] == before


def test_what_a_cleaning_left_beside_an_unfinished_replacement_stays_for_the_next_start(tmp_path: Path) -> None:
    """Without it the replacement would count."""
    config = compacted()
    manager = StepManager(tmp_path).start({TP.topic: config})
    log = manager.create(TP, TOPIC_ID, config)
    append(log, *(keyed([(b"key", b"%03d" % number)]) for number in range(9)))
    before = stored(log)
    (log.directory / f"{0:020d}.log.swap").write_bytes(b"")
    (log.directory / f"{0:020d}.index.cleaned").write_bytes(b"")
    manager.close()
    again = StepManager(tmp_path).start({TP.topic: config}).get(TP)
    assert again is not None
    assert stored(again) == before


def test_nothing_is_cleaned_beside_a_replacement_that_was_not_finished(tmp_path: Path) -> None:
    """The next start finishes it, over what a cleaning had put there meanwhile."""
    config = compacted()
    manager = StepManager(tmp_path).start({TP.topic: config})
    log = manager.create(TP, TOPIC_ID, config)
    append(log, *(keyed([(b"key", b"%03d" % number)]) for number in range(9)))
    settle(log)
    before = stored(log)
    (log.directory / f"{0:020d}.log.swap").write_bytes(b"")
    with pytest.raises(CleaningFailed, match="was not finished"):
        clean_log(log, log.store)
    assert stored(log) == before
