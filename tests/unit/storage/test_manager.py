from __future__ import annotations

import errno
import os
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import Mock
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
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.checkpoints import CLEANED, RECOVERY_POINTS
from barnabas.storage.manager import LogManager
from barnabas.storage.segments import Segments
from tests.support.logs import NOW, TOPIC_ID, TP, UnsyncedFiles, append, batch, stored
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def start(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., LogManager]]:
    started: list[LogManager] = []

    def start(
        *names: str, broker_id: int = 1, cluster_id: str = "test", threads: int = 1, config: LogConfig = CONFIG
    ) -> LogManager:
        manager = LogManager(
            [tmp_path / name for name in names or ("data",)],
            clock=clock,
            files=UnsyncedFiles(),
            recovery_threads=threads,
            max_open_files=32,
        )
        started.append(manager)
        manager.load(broker_id=broker_id, cluster_id=cluster_id, configs={TP.topic: config})
        return manager

    yield start
    for manager in started:
        manager.close(clean=False)


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
    manager.create(TP, TOPIC_ID, CONFIG)
    manager.close()
    (tmp_path / "b" / str(TP)).mkdir()
    with pytest.raises(StartupError, match="in two log directories"):
        start("a", "b")
    (tmp_path / "b" / str(TP)).rmdir()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert len(start("a", "b").logs()) == 1


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


def test_checkpoints_hold_what_is_known(start: Callable[..., LogManager], tmp_path: Path) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    log.flush()
    log.high_watermark = 9
    log.delete_records_before(4)
    manager.checkpoint()

    def content(name: str) -> str:
        return (tmp_path / "data" / name).read_text()

    assert content("recovery-point-offset-checkpoint") == "0\n1\ntopic 0 20\n"
    assert content("log-start-offset-checkpoint") == "0\n1\ntopic 0 4\n"
    assert content("replication-offset-checkpoint") == "0\n1\ntopic 0 9\n"
    before = (tmp_path / "data" / "replication-offset-checkpoint").stat().st_mtime_ns
    manager.checkpoint()
    assert (tmp_path / "data" / "replication-offset-checkpoint").stat().st_mtime_ns == before


def test_a_damaged_checkpoint_costs_only_time(start: Callable[..., LogManager], tmp_path: Path) -> None:
    manager = start()
    append(manager.create(TP, TOPIC_ID, CONFIG), batch(2))
    manager.close()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / "data" / name).write_text("nonsense\nnonsense\n")
    log = start().get(TP)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)


@pytest.mark.parametrize(
    "config", [CONFIG, replace(CONFIG, cleanup_policy=frozenset({"compact"}))], ids=["delete", "compact"]
)
@pytest.mark.parametrize(
    "lost",
    [
        {CLEANED: "nonsense\nnonsense\n"},
        {CLEANED: None, RECOVERY_POINTS: None},
        {CLEANED: None, RECOVERY_POINTS: "0\n0\n"},
    ],
    ids=["damaged", "none", "copied"],
)
def test_gaps_that_compaction_left_are_no_damage_when_checkpoints_are_lost(
    start: Callable[..., LogManager], tmp_path: Path, config: LogConfig, lost: dict[str, str | None]
) -> None:
    manager = start(config=config)
    log = manager.create(TP, TOPIC_ID, config)
    append(log, *(batch(2, size=300) for _ in range(10)))
    manager.close(clean=False)
    second = sorted(log.directory.glob("*.log"))[1]
    second.unlink()  # as Kafka's cleaner may do
    for name, text in {RECOVERY_POINTS: "nonsense\nnonsense\n", **lost}.items():
        path = tmp_path / "data" / name
        path.unlink(missing_ok=True) if text is None else path.write_text(text)
    again = start(config=config).get(TP)
    assert again is not None
    may_have_gaps = config.compact or lost[CLEANED] is not None
    assert (again.log_end_offset, again.cleaned_to) == (20 if may_have_gaps else int(second.stem), None)


def test_ends_of_transactions_above_the_high_watermark_are_known_without_a_log_start(
    start: Callable[..., LogManager], tmp_path: Path
) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(2, producer_id=7, transactional=True))
    end = EndOfTransaction(ControlType.COMMIT, 0)
    log.append(build_marker(end, timestamp=NOW, producer_id=7, producer_epoch=0), 0, NOW)
    log.high_watermark = 2
    manager.close()
    (tmp_path / "data" / "log-start-offset-checkpoint").unlink()  # Apache Kafka notes only logs that begin later
    again = start().get(TP)
    assert again is not None
    assert (again.high_watermark, again.log_end_offset) == (2, 3)
    assert [again.last_stable_offset(committed) for committed in (2, 3)] == [0, 3]


@pytest.mark.parametrize("cut", [6, 2])
def test_a_cut_lowers_what_the_checkpoints_say_before_anything_else(
    start: Callable[..., LogManager], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Else the next crash would take what is written after it for known to be on disk."""
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    log.flush()
    log.high_watermark = log.cleaned_to = 18
    log.delete_records_before(4)
    manager.checkpoint()
    monkeypatch.setattr(Segments, "truncate_to", Mock(side_effect=OSError(errno.EIO, "the disk fails now")))
    monkeypatch.setattr(Segments, "start_again", Mock(side_effect=OSError(errno.EIO, "the disk fails now")))
    with pytest.raises(StorageFailed):
        log.truncate_to(cut)
    said = [
        (tmp_path / "data" / f"{name}-offset-checkpoint").read_text().split()[-1]
        for name in ("recovery-point", "log-start", "replication", "cleaner")
    ]
    assert list(map(int, said)) == ([6, 4, 6, 6] if cut == 6 else [0, 2, 0, 0])


def test_what_a_crash_has_cut_is_not_said_to_be_committed_any_more(
    start: Callable[..., LogManager], tmp_path: Path
) -> None:
    """Else what is written in its place would be, before anybody has it."""
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(9)))
    log.flush()
    append(log, batch(2, size=100))
    log.high_watermark = log.cleaned_to = 20
    manager.checkpoint()
    manager.close(clean=False)
    last = max(log.directory.glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 1)
    again = start().get(TP)
    assert again is not None
    assert (again.log_end_offset, again.cleaned_to) == (18, 18)
    for name in ("recovery-point", "replication", "cleaner"):
        assert (tmp_path / "data" / f"{name}-offset-checkpoint").read_text().split()[-1] == "18"


def test_a_log_that_lost_what_was_on_disk_is_not_served_after_any_stop(
    start: Callable[..., LogManager], tmp_path: Path
) -> None:
    """Else the offsets of acknowledged records are given out again: a kill was enough to get there."""
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    log.high_watermark = 20
    manager.close()
    last = max(log.directory.glob("*.log"))
    whole = last.read_bytes()
    last.write_bytes(whole[:-1])
    files = {path: path.read_bytes() for path in log.directory.glob("*.*index")}
    for clean in (False, False, True, True, False):
        manager = start()
        torn = manager.get(TP)
        assert torn is not None
        with pytest.raises(StorageFailed, match=r"20, but its records end at 18.*log mend --accept-loss"):
            append(torn, batch(1))
        assert torn.is_failed
        assert manager.have_failed
        manager.checkpoint()
        manager.close(clean=clean)
        assert last.read_bytes() == whole[:-1]
        assert {path: path.read_bytes() for path in files} == files
    last.write_bytes(whole)
    back = start().get(TP)
    assert back is not None
    assert append(back, batch(1)) == [20]


def test_a_directory_that_is_full_when_it_is_loaded_fails_alone(
    start: Callable[..., LogManager], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash has cut a log, its checkpoints are lowered, which takes room."""
    manager = start("data", "other")
    logs = [manager.create(TopicPartition(TP.topic, number), TOPIC_ID, CONFIG) for number in range(2)]
    for log in logs:
        append(log, batch(2, size=100))
        log.high_watermark = 2
    manager.checkpoint()
    manager.close(clean=False)
    os.truncate(max(logs[0].directory.glob("*.log")), 10)

    write = UnsyncedFiles.write_file

    def full(self: UnsyncedFiles, path: str, data: bytes, *, sync: bool = True) -> None:
        if path.endswith("replication-offset-checkpoint"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, path, data, sync=sync)

    with monkeypatch.context() as patched:
        patched.setattr(UnsyncedFiles, "write_file", full)
        manager = start("data", "other")
    assert list(manager.failed_directories) == [logs[0].log_dir]
    served = manager.get(logs[1].tp)
    assert served is not None
    assert append(served, batch(1)) == [2]


def test_a_torn_log_leaves_the_others_of_its_directory_in_service(
    start: Callable[..., LogManager], tmp_path: Path
) -> None:
    """Apache Kafka notes the starts of few logs only: the others are opened when the broker starts."""
    manager = start()
    other = TopicPartition(TP.topic, 1)
    torn, whole = (manager.create(tp, TOPIC_ID, CONFIG) for tp in (TP, other))
    for log in (torn, whole):
        append(log, batch(2, size=100))
    manager.close()
    os.truncate(max(torn.directory.glob("*.log")), 10)
    (tmp_path / "data" / "log-start-offset-checkpoint").write_text("0\n0\n")
    manager = start()
    refused, served = manager.get(TP), manager.get(other)
    assert refused is not None
    assert served is not None
    assert refused.is_failed
    assert append(served, batch(1)) == [2]


def test_a_torn_log_that_is_taken_back_is_not_served_either(start: Callable[..., LogManager]) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    manager.close()
    last = max(log.directory.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-1])
    manager = start()
    torn = manager.get(TP)
    assert torn is not None
    assert manager.set_aside(torn) is not None
    for _ in range(2):
        torn = manager.create(TP, TOPIC_ID, CONFIG)
        with pytest.raises(StorageFailed, match="20, but its records end at 18"):
            append(torn, batch(1))
        manager.close(clean=False)
        manager = start()


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
    assert log.producers()
    clock.advance(86_400_000)
    manager.expire_producers(clock.now_ms())
    assert not log.producers()


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
