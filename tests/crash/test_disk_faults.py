"""Disks that are full, and syncs that fail: the directory stops, what was acknowledged stays, and how it comes back."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.model.clock import ManualClock
from barnabas.model.errors import StartupError, StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.storage.files import UnknownState
from barnabas.storage.manager import LogManager
from tests.failing_calls.files import FailingFiles
from tests.support.faulty_files import FaultyFiles, PowerLoss
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, UnsyncedFiles, append, batch, stored

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.log.log import Log

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=50)


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    return FaultyFiles(tmp_path)


@pytest.fixture
def manager(tmp_path: Path, files: FaultyFiles) -> StepManager:
    return StepManager(tmp_path, files).start({TP.topic: CONFIG})


@pytest.fixture
def log(manager: StepManager) -> Log:
    return manager.create(TP, TOPIC_ID, CONFIG)


def restarted(tmp_path: Path, files: FaultyFiles) -> Log:
    files.kill()
    log = StepManager(tmp_path, files).start({TP.topic: CONFIG}).get(TP)
    assert log is not None
    return log


@pytest.mark.parametrize("room", range(0, 3000, 97))
def test_a_full_disk_stops_the_directory_and_loses_nothing(
    tmp_path: Path, files: FaultyFiles, manager: StepManager, log: Log, room: int
) -> None:
    acknowledged: list[bytes] = []
    files.room = room
    with pytest.raises(StorageFailed, match="No space left"):
        for number in range(100):
            append(log, batch(2, size=50, producer_id=1, sequence=2 * number))
            acknowledged = stored(log)

    assert stored(log) == acknowledged
    assert log.log_end_offset == 2 * len(acknowledged)
    assert list(manager.failed_directories) == [tmp_path]
    files.room = None
    with pytest.raises(StorageFailed):
        append(log, batch())
    with pytest.raises(StorageFailed):
        log.flush()
    manager.checkpoint()
    manager.close()

    again = restarted(tmp_path, files)
    assert stored(again) == acknowledged
    assert append(again, batch(2, size=50, producer_id=1, sequence=2 * len(acknowledged))) == [2 * len(acknowledged)]


@pytest.mark.parametrize("room", range(0, 3000, 293))
def test_a_directory_that_has_room_again_is_used_again(
    tmp_path: Path, files: FaultyFiles, manager: StepManager, log: Log, room: int
) -> None:
    clock = log.store.clock
    assert isinstance(clock, ManualClock)
    number = 0
    for _ in range(3):
        files.room = room
        with pytest.raises(StorageFailed, match="No space left"):
            while True:
                append(log, batch(2, size=50, producer_id=1, sequence=2 * number))
                number += 1
        clock.advance(60_000)
        assert manager.try_failed_directories() == []
        files.room = None
        clock.advance(60_000)
        assert manager.try_failed_directories() == [log]
        assert not manager.failed_directories
        assert append(log, batch(2, size=50, producer_id=1, sequence=2 * number)) == [2 * number]
        number += 1
        manager.drain()
        manager.checkpoint()
    before = stored(log)
    assert len(before) == number

    again = restarted(tmp_path, files)
    assert stored(again) == before
    assert append(again, batch(2, size=50, producer_id=1, sequence=2 * number)) == [2 * number]


def test_a_disk_that_is_full_again_and_again_is_tried_less_and_less_often(
    files: FaultyFiles, manager: StepManager, log: Log
) -> None:
    clock = log.store.clock
    assert isinstance(clock, ManualClock)
    pauses = []
    for _ in range(7):
        files.room = 0
        with pytest.raises(StorageFailed):
            append(log, batch())
        files.room = None
        seconds = 0
        while not manager.try_failed_directories():
            clock.advance(1000)
            seconds += 1
        pauses.append(seconds)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_what_makes_room_is_done_on_a_full_disk(tmp_path: Path, files: FaultyFiles, manager: StepManager) -> None:
    log = manager.create(TP, TOPIC_ID, replace(CONFIG, retention_bytes=1))
    other = manager.create(TP._replace(partition=1), TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=200) for _ in range(10)))
    log.high_watermark = log.log_end_offset
    files.room = 0
    with pytest.raises(StorageFailed):
        append(log, batch())
    assert manager.retention_pass(NOW) > 0
    assert log.log_start_offset == log.segments[0].base_offset > 0
    assert manager.set_aside(other) is not None
    (stray,) = manager.strays()
    assert manager.delete_stray(stray)
    assert manager.delete_due(NOW + 10**9) > 0
    assert not [path.name for path in tmp_path.rglob("*") if path.name.endswith(("-delete", ".deleted"))]


def test_a_sync_that_finds_no_room_is_not_forgiven(
    files: FaultyFiles, manager: StepManager, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, batch())

    def sync(_fd: int) -> None:
        raise UnknownState(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(files, "sync", sync)
        with pytest.raises(StorageFailed):
            log.flush()
    clock = log.store.clock
    assert isinstance(clock, ManualClock)
    clock.advance(60_000)
    assert manager.try_failed_directories() == []
    assert manager.failed_directories


def test_a_disk_that_has_room_and_does_not_sync_is_not_used_again(
    tmp_path: Path, files: FaultyFiles, manager: StepManager, log: Log
) -> None:
    files.room = 0
    with pytest.raises(StorageFailed, match="No space left"):
        append(log, batch())
    clock = log.store.clock
    assert isinstance(clock, ManualClock)
    files.room, files.failing_syncs = None, True
    clock.advance(60_000)
    assert manager.try_failed_directories() == []
    files.failing_syncs = False
    clock.advance(60_000)
    assert manager.try_failed_directories() == []
    assert list(manager.failed_directories) == [tmp_path]


def test_what_a_topic_left_on_a_failed_disk_is_not_taken_for_the_next_of_that_name(
    tmp_path: Path, files: FaultyFiles, manager: StepManager, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, batch())
    with monkeypatch.context() as refusing:
        refusing.setattr(files, "rename", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        stray = manager.set_aside(log)
    assert stray is not None
    assert stray.path == str(log.directory)
    clock = log.store.clock
    assert isinstance(clock, ManualClock)
    clock.advance(60_000)
    manager.try_failed_directories()
    another = UUID(int=0x777)
    assert stored(manager.create(TP, another, CONFIG)) == []
    assert [stray.topic_id for stray in manager.strays()] == [TOPIC_ID]


def test_a_log_that_could_not_be_made_leaves_nothing_that_counts_as_set_aside(
    tmp_path: Path, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(NOW)
    manager = StepManager(tmp_path, files, clock).start({TP.topic: CONFIG})
    with monkeypatch.context() as refusing:
        refusing.setattr(files, "rename", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(StorageFailed, match="No space left"):
            manager.create(TP, TOPIC_ID, CONFIG)
    clock.advance(60_000)
    manager.try_failed_directories()
    assert stored(manager.create(TP, TOPIC_ID, CONFIG)) == []
    assert manager.strays() == []


@pytest.mark.parametrize("operations", range(12))
def test_a_deleted_log_has_its_new_name_on_disk_before_its_files_go(tmp_path: Path, operations: int) -> None:
    files = FailingFiles(tmp_path)
    manager = StepManager(tmp_path, files).start({TP.topic: CONFIG})
    log = manager.create(TP, TOPIC_ID, replace(CONFIG, file_delete_delay_ms=0))
    append(log, *(batch(2, size=200) for _ in range(6)))
    log.flush()
    manager.drain()
    manager.checkpoint()
    there = {path.name for path in log.directory.iterdir() if path.suffix != ".tmp"}
    stray = manager.set_aside(log)
    assert stray is not None
    assert manager.delete_stray(stray)
    files.crash_in = operations
    with suppress(PowerLoss):
        manager.delete_due(NOW)
    files.lose_unsynced()
    for left in tmp_path.glob(f"{TP}*"):
        assert left.name.endswith("-delete") or there <= {path.name for path in left.iterdir()}


def test_a_write_error_stops_the_directory(files: FaultyFiles, manager: StepManager, log: Log) -> None:
    append(log, batch())
    files.failing_writes = True
    with pytest.raises(StorageFailed, match="Input/output error"):
        append(log, batch())
    assert len(stored(log)) == 1
    assert manager.failed_directories
    with pytest.raises(StorageFailed, match="all log directories have failed"):
        manager.create(TP._replace(partition=1), TOPIC_ID, CONFIG)


def test_a_failed_sync_is_never_believed_later(
    tmp_path: Path, files: FaultyFiles, manager: StepManager, log: Log
) -> None:
    append(log, batch(), batch())
    log.flush()
    manager.checkpoint()
    append(log, batch())
    files.failing_syncs = True
    waiting = manager.flush_through(log, 3)
    manager.drain()
    assert isinstance(waiting.exception(timeout=0), StorageFailed)
    assert log.recovery_point == 2

    files.failing_syncs = False
    with pytest.raises(StorageFailed):
        log.flush()
    with pytest.raises(StorageFailed):
        append(log, batch())
    assert len(stored(log)) == 3
    manager.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()

    files.power_loss(1)
    again = StepManager(tmp_path, files).start({TP.topic: CONFIG}).get(TP)
    assert again is not None
    assert again.log_end_offset >= 2


def test_a_failing_directory_leaves_the_others_alone(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    files = FaultyFiles(tmp_path)
    files.make_dir(str(bad))
    manager = LogManager([bad, tmp_path / "good"], clock=ManualClock(NOW), files=files)
    manager.load(broker_id=1, cluster_id="test", configs={})
    logs = [manager.create(TP._replace(partition=number), TOPIC_ID, CONFIG) for number in range(4)]
    assert [log.log_dir.name for log in logs] == ["bad", "good", "bad", "good"]

    files.room = 0
    with pytest.raises(StorageFailed):
        append(logs[0], batch())
    files.room = None

    with pytest.raises(StorageFailed):
        append(logs[2], batch())
    assert append(logs[1], batch()) == append(logs[3], batch()) == [0]
    assert manager.create(TP._replace(partition=9), TOPIC_ID, CONFIG).log_dir.name == "good"
    manager.checkpoint()
    manager.close()
    assert not (bad / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "good" / ".kafka_cleanshutdown").exists()


class Unreadable(UnsyncedFiles):
    """A disk whose directories cannot be listed."""

    def subdirectories(self, path: str) -> list[str]:
        """Fail, for one directory."""
        if path.endswith("bad"):
            raise OSError(5, "Input/output error")
        return super().subdirectories(path)


def test_a_directory_that_cannot_be_loaded_is_left_out(tmp_path: Path) -> None:
    manager = LogManager([tmp_path / "bad", tmp_path / "good"], clock=ManualClock(NOW), files=Unreadable())
    manager.load(broker_id=1, cluster_id="test", configs={})
    assert [path.name for path in manager.failed_directories] == ["bad"]
    with pytest.raises(StorageFailed, match="may be in"):
        manager.create(TP, TOPIC_ID, CONFIG, is_new=False)
    assert manager.create(TP, TOPIC_ID, CONFIG, is_new=True).log_dir.name == "good"
    manager.close()

    alone = LogManager([tmp_path / "bad"], clock=ManualClock(NOW), files=Unreadable())
    with pytest.raises(StartupError, match="no log directory can be used"):
        alone.load(broker_id=1, cluster_id="test", configs={})
    alone.close(clean=False)
