"""The log manager: which directories and logs there are, deletions, flushes and retention."""

from __future__ import annotations

import errno
import gc
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from barnabas.model.clock import ManualClock
from barnabas.model.errors import (
    NotLeaderOrFollower,
    StartupError,
    StorageFailed,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import TopicPartition
from barnabas.model.log_config import LogConfig
from barnabas.storage import checkpoints
from barnabas.storage.manager import LogManager
from tests.support.logs import NOW, TOPIC_ID, TP, UnsyncedFiles, append, batch, stored
from tests.support.waiting import wait_until
from tests.unit.storage.conftest import CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_logs_are_found_again_after_a_clean_stop(start: Callable[..., LogManager]) -> None:
    manager = start()
    for number in range(5):
        log = manager.create(TP._replace(partition=number), TOPIC_ID, CONFIG)
        append(log, *(batch(2, size=100) for _ in range(number)))
        log.high_watermark = log.log_end_offset
    log.delete_records_before(3)
    manager.close()

    again = start()

    assert {found.tp.partition: found.log_end_offset for found in again.logs()} == {0: 0, 1: 2, 2: 4, 3: 6, 4: 8}
    assert not any(found.is_open for found in again.logs())
    last = again.get(TP._replace(partition=4))
    assert last is not None
    assert (last.log_start_offset, last.high_watermark, last.config) == (3, 8, CONFIG)
    assert len(stored(last)) == 3
    assert again.get(TopicPartition("other", 0)) is None


def test_whose_logs_they_are_is_known_when_they_are_loaded(
    start: Callable[..., LogManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the event loop it would be a file to be read for each of them."""
    manager = start()
    for number in range(3):
        manager.create(TP._replace(partition=number), TOPIC_ID, CONFIG)
    manager.close()
    again = start()
    monkeypatch.delattr("barnabas.storage.checkpoints.read_topic_id")
    assert {log.topic_id for log in again.logs()} == {TOPIC_ID}


def test_logs_are_recovered_after_any_other_stop(start: Callable[..., LogManager]) -> None:
    manager = start()
    for number in range(5):
        append(manager.create(TP._replace(partition=number), TOPIC_ID, CONFIG), batch(2), batch(2))
    manager.checkpoint()
    manager.close(clean=False)

    again = start(threads=3)

    assert len(again.logs()) == 5
    for log in again.logs():
        assert log.is_open
        assert (log.log_end_offset, log.recovery_point, log.topic_id) == (4, 0, TOPIC_ID)


def test_its_pools_of_threads_are_those_that_it_is_given(tmp_path: Path, clock: ManualClock) -> None:
    made: set[str] = set()

    def make(threads: int, name: str) -> ThreadPoolExecutor:
        made.add(name)
        return ThreadPoolExecutor(threads, name)

    def manager() -> LogManager:
        found = LogManager(
            [tmp_path / "data"], clock=clock, files=UnsyncedFiles(), recovery_threads=3, make_executor=make
        )
        found.load(broker_id=1, cluster_id="test", configs={TP.topic: CONFIG})
        return found

    first = manager()
    log = first.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(2))
    wait([first.flush_through(log, 2)])
    first.close(clean=False)
    again = manager()
    for partition in (1, 2):
        append(again.create(TP._replace(partition=partition), TOPIC_ID, CONFIG), batch(2))
    again.close()
    assert made == {"barnabas-flush", "barnabas-recovery", "barnabas-close"}


def test_a_second_process_is_refused(start: Callable[..., LogManager]) -> None:
    start()
    with pytest.raises(StartupError, match="in use by another broker"):
        start()


def test_a_directory_of_another_broker_or_cluster_is_refused(start: Callable[..., LogManager]) -> None:
    start().close()
    with pytest.raises(StartupError, match="belongs to broker 1"):
        start(broker_id=2)
    with pytest.raises(StartupError, match="belongs to cluster test"):
        start(cluster_id="other")


def test_the_cluster_id_can_be_asked_for_before_loading(start: Callable[..., LogManager], tmp_path: Path) -> None:
    fresh = LogManager([tmp_path / "data"], clock=ManualClock(NOW))
    assert fresh.stored_cluster_id() is None
    start().close()
    assert fresh.stored_cluster_id() == "test"


def test_partitions_go_where_the_fewest_are(start: Callable[..., LogManager]) -> None:
    manager = start("a", "b", "c")
    logs = [manager.create(TP._replace(partition=number), TOPIC_ID, CONFIG) for number in range(7)]
    assert [log.log_dir.name for log in logs] == ["a", "b", "c", "a", "b", "c", "a"]
    assert [path.name for path in manager.directories] == ["a", "b", "c"]
    assert [len(manager.logs_in(path)) for path in manager.directories] == [3, 2, 2]
    manager.close()
    again = start("a", "b", "c")
    assert [len(again.logs_in(path)) for path in again.directories] == [3, 2, 2]


def test_a_partition_in_two_directories_is_refused(start: Callable[..., LogManager], tmp_path: Path) -> None:
    manager = start("a", "b")
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(1))
    manager.close()
    shutil.copytree(log.directory, tmp_path / "b" / str(TP))
    with pytest.raises(StartupError, match="in two log directories"):
        start("a", "b")
    shutil.rmtree(tmp_path / "b" / str(TP))
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert len(start("a", "b").logs()) == 1


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("has_id", [True, False], ids=["with its id", "without an id"])
@pytest.mark.parametrize("begun", ["a", "b"])
def test_a_log_that_was_only_begun_in_another_directory_is_set_aside(
    start: Callable[..., LogManager], tmp_path: Path, begun: str, has_id: bool, clean: bool
) -> None:
    manager = start("a", "b")
    if begun == "a":
        manager.prefer(TOPIC_ID, TP.partition, tmp_path / "b")
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(3))
    manager.close(clean=clean)
    left = tmp_path / begun / str(TP)
    left.mkdir()
    if has_id:
        shutil.copy(log.directory / "partition.metadata", left)
    for _ in range(2):
        manager = start("a", "b")
        again = manager.create(TP, TOPIC_ID, CONFIG, is_new=False)
        assert (again.directory, again.log_end_offset) == (log.directory, 3)
        assert [stray.store.path for stray in manager.strays()] == [str(tmp_path / begun)]
        manager.close(clean=clean)


def test_whether_a_log_has_records_is_seen_in_its_files(start: Callable[..., LogManager], tmp_path: Path) -> None:
    manager = start("a", "b")
    empty = manager.create(TP, TOPIC_ID, CONFIG)
    manager.close()
    full = start("b")
    append(full.create(TP, TOPIC_ID, CONFIG), batch(3))
    full.close()
    for path in (tmp_path / "b" / str(TP)).iterdir():  # put back from a copy; the checkpoints of a say that it is empty
        shutil.copy(path, empty.directory)
    with pytest.raises(StartupError, match="in two log directories"):
        start("a", "b")


def test_a_log_whose_making_broke_off_is_made_where_it_was_begun(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    manager = LogManager([tmp_path / name for name in "abc"], clock=ManualClock(NOW), files=files)
    manager.load(broker_id=1, cluster_id="test", configs={})
    manager.create(TP._replace(partition=1), TOPIC_ID, CONFIG)  # so that not all have as few logs
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        patch.setattr(checkpoints, "write_topic_id", refuse)
        with pytest.raises(StorageFailed):
            manager.create(TP, TOPIC_ID, CONFIG)
    manager.create(TP._replace(partition=2), TOPIC_ID, CONFIG)  # in the same directory, so another one has fewer now
    manager.create(TP, TOPIC_ID, CONFIG)
    assert len(list(tmp_path.glob(f"*/{TP}"))) == 1
    manager.close()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("current", [TOPIC_ID, UUID(int=9)], ids=["the first", "the second"])
def test_of_two_topics_of_one_name_in_two_directories_one_is_set_aside(
    start: Callable[..., LogManager], tmp_path: Path, clean: bool, current: UUID
) -> None:
    """The first was deleted, and the second made, while the first directory could not be written to."""
    manager = start("a", "b")
    first = manager.create(TP, TOPIC_ID, CONFIG)
    append(first, batch(1))
    first.flush()
    first.store.distrust("the disk failed")
    manager.set_aside(first)
    second = manager.create(TP, UUID(int=9), CONFIG)
    append(second, batch(2))
    assert {first.log_dir.name, second.log_dir.name} == {"a", "b"}
    manager.close(clean=clean)

    for _ in range(2):  # whatever was set aside at the first start is found by the second
        manager = start("a", "b")
        log = manager.create(TP, current, CONFIG, is_new=False)
        assert (log.topic_id, log.log_end_offset) == (current, 1 if current == TOPIC_ID else 2)
        (stray,) = manager.strays()
        assert {stray.topic_id, current} == {TOPIC_ID, UUID(int=9)}
        manager.close(clean=clean)
    assert not list(tmp_path.glob("*/*-delete"))


def test_creating_again_gives_the_same_log(start: Callable[..., LogManager]) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    assert manager.create(TP, TOPIC_ID, CONFIG) is log


def test_what_an_earlier_topic_of_the_name_left_is_set_aside(start: Callable[..., LogManager], tmp_path: Path) -> None:
    manager = start()
    old = manager.create(TP, TOPIC_ID, CONFIG)
    data = batch(3)
    old.append(data, leader_epoch=0, now_ms=NOW)
    new = manager.create(TP, UUID(int=99), CONFIG)
    assert (new.topic_id, new.log_end_offset) == (UUID(int=99), 0)
    (stray,) = old.log_dir.glob("*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size == len(data)


def test_a_new_partition_has_only_the_files_it_needs(start: Callable[..., LogManager], tmp_path: Path) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    log.flush()
    assert {path.name for path in log.directory.iterdir()} == {"partition.metadata"}
    append(log, batch())
    manager.close()
    assert {path.name for path in log.directory.iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }


def test_a_deleted_partition_goes_at_once_and_its_files_later(
    start: Callable[..., LogManager], tmp_path: Path, clock: ManualClock
) -> None:
    manager = start()
    tp = TopicPartition("t" * 249, 7)
    log = manager.create(tp, TOPIC_ID, CONFIG)
    append(log, batch())
    (part,) = log.read(0, 1000, 1, True).slices
    part.file.acquire()

    stray = manager.set_aside(log)
    assert stray is not None
    assert manager.set_aside(log) is None
    assert manager.delete_stray(stray)
    assert not manager.delete_stray(stray)

    assert manager.get(tp) is None
    with pytest.raises(UnknownTopicOrPartition):
        append(log, batch())
    (moved,) = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert moved.name.startswith("ttt")
    assert moved.name.endswith("-delete")
    assert len(moved.name) == 255
    assert part.file.read(8, 0) == bytes(8)
    part.file.release()
    assert manager.delete_due(clock.now_ms()) == 0
    clock.advance(1000)
    assert manager.delete_due(clock.now_ms()) == 1
    assert not moved.exists()


def test_nothing_is_left_in_memory_of_a_deleted_partition(start: Callable[..., LogManager], clock: ManualClock) -> None:
    """Without a collection: what has outlived one is frozen, and no later one would free it."""
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(2), batch(2))
    assert log.read(0, 1000, 4, True).size
    manager.flush_through(log, 4).result(30)
    gone = weakref.ref(log)
    read, make_next_file = log.read, log.appender.make_next_file
    gc.disable()
    try:
        stray = manager.set_aside(log)
        assert stray is not None
        assert manager.delete_stray(stray)
        del log
        wait_until(lambda: gone() is None, "the log to be freed")
    finally:
        gc.enable()
    clock.advance(3600)
    assert manager.delete_due(clock.now_ms()) == 1
    assert manager._strays._strays == {}
    with pytest.raises(UnknownTopicOrPartition):
        read(0, 1000, 4, True)
    make_next_file()


def test_leftover_directories(start: Callable[..., LogManager], tmp_path: Path, clock: ManualClock) -> None:
    start().close()
    uuid = "0123456789abcdef0123456789abcdef"
    gone = [f"a-b-0.{uuid}-delete"]
    kept = [f"a-b-1.{uuid}-future", f"a-b-2.{uuid}-stray", "lost+found", "__cluster_metadata-0", "a-x"]
    for name in (*gone, *kept):
        (tmp_path / "data" / name).mkdir()
    manager = start()
    assert not manager.logs()
    assert manager.delete_due(clock.now_ms()) == 1
    assert not (tmp_path / "data" / gone[0]).exists()
    assert all((tmp_path / "data" / name).exists() for name in kept)


@pytest.mark.parametrize("clean", [True, False])
def test_a_partition_made_again_does_not_inherit_offsets(start: Callable[..., LogManager], clean: bool) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    log.flush()
    log.high_watermark = 20
    log.delete_records_before(15)
    manager.checkpoint()
    manager.set_aside(log)
    append(manager.create(TP, UUID(int=5), CONFIG), batch(1))
    manager.close(clean=clean)
    again = start().get(TP)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (0, 1)


def test_waiting_for_a_flush(start: Callable[..., LogManager]) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    futures = []
    for _ in range(20):
        append(log, batch(2, size=100))
        futures.append(manager.flush_through(log, log.log_end_offset))
    assert wait(futures, timeout=30).not_done == set()
    assert all(done.result() >= 2 * (number + 1) for number, done in enumerate(futures))
    assert manager.flush_through(log, 40).result(timeout=0) == 40
    assert log.recovery_point == 40


def test_a_flush_of_what_was_cut_fails(start: Callable[..., LogManager]) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(1))
    with pytest.raises(NotLeaderOrFollower):
        manager.flush_through(log, 2).result(timeout=30)


def test_new_leader_epochs_reach_their_file_soon(start: Callable[..., LogManager]) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    for epoch in range(3):
        append(log, batch(1), epoch=epoch)
    wait_until(
        lambda: read(log.directory / "leader-epoch-checkpoint") == "0\n3\n0 0\n1 1\n2 2\n", "the epochs are written"
    )
    assert log.recovery_point == 0


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_partitions_can_be_deleted_while_they_are_flushed(start: Callable[..., LogManager]) -> None:
    manager = start()
    for number in range(100):
        log = manager.create(TP, UUID(int=number), CONFIG)
        append(log, *(batch(2, size=100) for _ in range(5)), epoch=number)
        manager.set_aside(log)
    manager.close()
    assert not manager.failed_directories


def test_flush_ms(start: Callable[..., LogManager], clock: ManualClock) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, LogConfig(flush_ms=100))
    append(log, batch(1))
    manager.flush_due(clock.now_ms())
    assert log.recovery_point == 0
    clock.advance(100)
    manager.flush_due(clock.now_ms())
    assert log.recovery_point == 1


def test_retention_runs_over_all_logs(start: Callable[..., LogManager], clock: ManualClock, tmp_path: Path) -> None:
    manager = start()
    for number in range(3):
        log = manager.create(
            TP._replace(partition=number), TOPIC_ID, LogConfig(segment_bytes=500, retention_ms=1000 * number)
        )
        append(log, *(batch(2, size=100) for _ in range(6)))
        log.high_watermark = 12
    clock.advance(1500)
    assert manager.retention_pass(clock.now_ms()) == 12
    assert [log.log_start_offset for log in manager.logs()] == [12, 12, 0]
    clock.advance(60_000)
    assert manager.delete_due(clock.now_ms()) == 12
    assert not list(tmp_path.glob("**/*.deleted"))


def test_producers_are_forgotten(start: Callable[..., LogManager], clock: ManualClock) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(1, producer_id=1))
    manager.expire_producers(clock.now_ms())
    assert log.producers.describe()
    clock.advance(86_400_000)
    manager.expire_producers(clock.now_ms())
    assert not log.producers.describe()


def test_a_failed_start_leaves_nothing_locked(start: Callable[..., LogManager], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match="no log directory can be used"):
        start("file")


def test_all_directories_failed(start: Callable[..., LogManager], tmp_path: Path) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(1))
    for store in manager._directories.values():
        store.fail(OSError(5, "Input/output error"), "testing")
    assert list(manager.failed_directories) == [tmp_path / "data"]
    with pytest.raises(StorageFailed):
        manager.create(TP._replace(partition=1), TOPIC_ID, CONFIG)
    assert len(stored(log)) == 1
