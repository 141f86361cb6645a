"""Logs that were set aside keep what they hold, and come back with it."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from barnabas.model.clock import ManualClock
from barnabas.model.ids import NO_ID
from barnabas.model.log_config import LogConfig
from barnabas.storage import checkpoints, strays
from barnabas.storage.files import FileSystem
from barnabas.storage.log.log import Log
from barnabas.storage.manager import LogManager
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, UnsyncedFiles, append, batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=1000)
OTHER = UUID(int=99)


class RestiveFiles(UnsyncedFiles):
    """Notes what it should sync, and has no descriptors to rename with while it is told so."""

    def __init__(self) -> None:
        self.synced: list[int] = []
        self.renames = True

    def sync(self, fd: int) -> None:
        self.synced.append(fd)

    def rename(self, old: str, new: str) -> None:
        if not self.renames:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), new)
        super().rename(old, new)

    @contextmanager
    def not_renaming(self) -> Iterator[None]:
        self.renames = False
        yield
        self.renames = True


def files_of(manager: LogManager) -> RestiveFiles:
    return cast("RestiveFiles", manager.pool.files)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], LogManager]]:
    started: list[LogManager] = []

    def start() -> LogManager:
        manager = LogManager([tmp_path / "data"], clock=ManualClock(NOW), files=RestiveFiles())
        manager.load(broker_id=1, cluster_id="test", configs={TP.topic: CONFIG})
        started.append(manager)
        return manager

    yield start
    for manager in started:
        manager.close(clean=False)


def test_one_whose_topic_is_back_is_taken_back_with_its_data(start: Callable[[], LogManager], tmp_path: Path) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    log.high_watermark = 20
    log.delete_records_before(15)
    log.cleaned_to = 4
    manager.set_aside(log)
    append(manager.create(TP, UUID(int=99), CONFIG), batch(1))
    again = manager.create(TP, TOPIC_ID, CONFIG)
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (15, 20, 20)
    assert (again.topic_id, again.cleaned_to) == (TOPIC_ID, 4)
    manager.checkpoint()
    assert not (again.directory / "stray-offsets.json").exists()
    append(again, batch(1))
    (other,) = manager.strays()
    assert other.topic_id == UUID(int=99)


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_them_and_loads_none(
    start: Callable[[], LogManager], clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(3))
    log.high_watermark = 3
    log.delete_records_before(2)
    stray = manager.set_aside(log)
    assert stray is not None
    manager.write_stray_offsets([stray])
    manager.close(clean=clean)
    manager = start()
    assert not manager.logs()
    assert [each.path for each in manager.strays()] == [stray.path]
    assert caplog.text.count("set aside") == 1
    again = manager.create(TP, TOPIC_ID, CONFIG, is_new=False)
    assert (again.log_start_offset, again.log_end_offset) == (2, 3)
    assert not manager.strays()


def test_segments_with_gaps_between_them_are_taken_back_whole(start: Callable[[], LogManager], tmp_path: Path) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=300) for _ in range(10)))
    stray = manager.set_aside(log)
    assert stray is not None
    manager.close()
    second = sorted(Path(stray.path).glob("*.log"))[1]
    second.unlink()  # as compaction may do; Kafka, which set it aside, left no note of its offsets
    assert start().create(TP, TOPIC_ID, CONFIG).log_end_offset == 20


def test_what_a_power_loss_took_from_one_leaves_no_hole(tmp_path: Path) -> None:
    manager = StepManager(tmp_path).start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=300) for _ in range(5)))
    log.flush()
    append(log, *(batch(2, size=300) for _ in range(5)))
    stray = manager.set_aside(log)
    assert stray is not None
    lost = sorted(Path(stray.path).glob("*.log"))[-2]
    lost.write_bytes(b"")  # it was not synced
    again = manager.create(TP, TOPIC_ID, CONFIG)
    assert log.recovery_point <= again.log_end_offset == int(lost.stem)


def test_one_that_is_taken_back_just_before_a_crash_keeps_what_compaction_left(
    start: Callable[[], LogManager],
) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=300) for _ in range(10)))
    log.high_watermark = 20
    log.delete_records_before(1)
    log.cleaned_to = 19
    stray = manager.set_aside(log)
    assert stray is not None
    sorted(Path(stray.path).glob("*.log"))[1].unlink()
    assert manager.create(TP, TOPIC_ID, CONFIG).log_end_offset == 20
    manager.close(clean=False)
    again = start().get(TP)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset, again.cleaned_to) == (1, 20, 19)


def test_one_that_cannot_be_read_stays_aside(start: Callable[[], LogManager], monkeypatch: pytest.MonkeyPatch) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(3))
    stray = manager.set_aside(log)

    def fail(*_: object, **__: object) -> Log:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Log, "recover", fail)
        with pytest.raises(OSError, match="Input"):
            manager.create(TP, TOPIC_ID, CONFIG)
    assert manager.strays() == [stray]
    assert manager.create(TP, TOPIC_ID, CONFIG).log_end_offset == 3


def test_one_that_an_operator_removed_is_made_anew(start: Callable[[], LogManager]) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(3))
    stray = manager.set_aside(log)
    assert stray is not None
    shutil.rmtree(stray.path)
    assert not manager.delete_stray(stray)
    assert manager.create(TP, TOPIC_ID, CONFIG).log_end_offset == 0
    assert not manager.failed_directories


def test_of_two_of_one_partition_the_one_that_goes_further_is_taken_back(
    start: Callable[[], LogManager], tmp_path: Path
) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(3))
    stray = manager.set_aside(log)
    assert stray is not None
    manager.close()
    shorter = Path(stray.path).with_name(f"{TP}.{'a' * 32}-stray")
    shutil.copytree(stray.path, shorter)
    (shorter / "00000000000000000000.log").write_bytes(b"")
    manager = start()
    assert manager.create(TP, TOPIC_ID, CONFIG).log_end_offset == 3
    assert [each.path for each in manager.strays()] == [str(shorter)]


def test_one_without_a_topic_id_is_nobodys(start: Callable[[], LogManager], tmp_path: Path) -> None:
    start().close()
    nameless = tmp_path / "data" / f"{TP}.{'a' * 32}-stray"
    nameless.mkdir()
    manager = start()
    assert manager.create(TP, NO_ID, CONFIG).log_end_offset == 0
    assert nameless.exists()


@pytest.mark.parametrize(
    "name",
    [b"\xff-0", b"copy of events-0", b"a\nb-0", "events-٣".encode(), b"events-00", b"..-0", b"events-99999999999"],
)
@pytest.mark.parametrize("ending", [b"", b".0123456789abcdef0123456789abcdef-stray"], ids=["partition", "stray"])
def test_a_directory_that_no_topic_can_have_is_left_alone_and_spoils_no_checkpoint(
    start: Callable[[], LogManager], tmp_path: Path, name: bytes, ending: bytes
) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path / "data") + b"/" + name + ending))
    odd.mkdir(parents=True)
    (odd / "00000000000000000000.log").write_bytes(b"whatever it is")
    manager = start()
    append(manager.create(TP, TOPIC_ID, CONFIG), batch(2))
    manager.checkpoint()
    manager.close()
    again = start()
    assert [log.tp for log in again.logs()] == [TP]
    assert again.strays() == []
    assert checkpoints.read_offsets(FileSystem(), f"{tmp_path}/data/log-start-offset-checkpoint") == {TP: 0}
    assert (odd / "00000000000000000000.log").read_bytes() == b"whatever it is"


def test_a_log_that_was_half_made_does_not_stand_in_its_way(start: Callable[[], LogManager], tmp_path: Path) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2) for _ in range(10)))
    manager.set_aside(log)
    manager.close()
    (tmp_path / "data" / str(TP)).mkdir()  # of another topic of that name: the disk was full before it had an id
    again = start()
    assert again.create(TP, TOPIC_ID, CONFIG).log_end_offset == 20
    assert [each.topic_id for each in again.strays()] == [NO_ID]


@pytest.mark.parametrize("removed", [True, False])
def test_a_log_with_records_and_without_an_id_is_used_whatever_is_aside(
    start: Callable[[], LogManager], tmp_path: Path, removed: bool
) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    stray = manager.set_aside(log)
    assert stray is not None
    append(manager.create(TP, UUID(int=99), CONFIG), batch(3))
    manager.close()
    (tmp_path / "data" / str(TP) / "partition.metadata").unlink()  # as Kafka had none before 2.8
    again = start()
    if removed:
        shutil.rmtree(stray.path)
    assert again.create(TP, TOPIC_ID, CONFIG).log_end_offset == 3


def test_one_that_is_cut_right_after_it_was_taken_back_is_not_read_by_its_note(
    start: Callable[[], LogManager],
) -> None:
    """The note that it brought along speaks of offsets that the log has given up."""
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    log.high_watermark = 20
    log.delete_records_before(15)
    manager.set_aside(log)
    again = manager.create(TP, TOPIC_ID, CONFIG)
    assert (again.log_start_offset, again.log_end_offset) == (15, 20)
    again.truncate_fully(5)
    append(again, *(batch(2, size=100) for _ in range(3)))
    manager.close(clean=False)
    found = start().get(TP)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset, found.high_watermark) == (5, 11, 5)


def test_offsets_that_could_not_be_noted_are_told(
    start: Callable[[], LogManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()
    stray = manager.set_aside(manager.create(TP, TOPIC_ID, CONFIG))
    assert stray is not None

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.storage.strays.write_offsets", full)
        assert manager.write_stray_offsets([stray]) == {stray.path}
    assert manager.write_stray_offsets([stray]) == set()


def test_offsets_are_not_noted_by_two_at_once(start: Callable[[], LogManager], monkeypatch: pytest.MonkeyPatch) -> None:
    """A note is written beside itself and renamed: two writers would rename each other's half."""
    manager = start()
    stray = manager.set_aside(manager.create(TP, TOPIC_ID, CONFIG))
    assert stray is not None
    write, writing, both = strays.write_offsets, list[str](), threading.Event()

    def slowly(*what: Any) -> None:
        writing.append("begun")
        if len(writing) == 1:
            taking_back.append(pool.submit(manager.create, TP, TOPIC_ID, CONFIG))
            both.wait(0.3)
        else:
            both.set()
        write(*what)

    taking_back: list[Future[Log]] = []
    monkeypatch.setattr(strays, "write_offsets", slowly)
    with ThreadPoolExecutor(1) as pool:
        assert manager.write_stray_offsets([stray]) == set()
        assert not both.is_set()
        assert taking_back[0].result(30).topic_id == TOPIC_ID
    assert manager.write_stray_offsets([stray]) == set()  # nothing: it is not set aside any more
    assert len(writing) == 2


def left_behind(manager: LogManager) -> None:
    """A log from 15 to 20 that was to be set aside, while its directory could not be renamed."""
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    log.high_watermark = 20
    log.delete_records_before(15)
    with files_of(manager).not_renaming():
        assert manager.set_aside(log) is not None
    assert manager.get(TP) is None
    assert log.directory.exists()


def test_one_that_could_not_be_renamed_is_taken_back_like_any_other(
    start: Callable[[], LogManager],
) -> None:
    """Opened like a log that was closed, it would have its deleted records back, and count as synced."""
    manager = start()
    left_behind(manager)
    files_of(manager).synced.clear()
    again = manager.create(TP, TOPIC_ID, CONFIG, is_new=False)
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (15, 20, 20)
    assert files_of(manager).synced
    assert manager.strays() == []


def test_one_that_could_not_be_renamed_makes_way_for_another_topic_of_the_name(
    start: Callable[[], LogManager],
) -> None:
    manager = start()
    left_behind(manager)
    append(manager.create(TP, OTHER, CONFIG), batch(3))
    (stray,) = manager.strays()
    assert (stray.topic_id, Path(stray.path).name.endswith("-stray")) == (TOPIC_ID, True)
    again = manager.create(TP, TOPIC_ID, CONFIG, is_new=False)
    assert (again.log_start_offset, again.log_end_offset) == (15, 20)
    assert manager.create(TP, OTHER, CONFIG, is_new=False).log_end_offset == 3


def test_of_one_aside_and_one_left_behind_the_one_that_goes_further_is_used(
    start: Callable[[], LogManager], tmp_path: Path
) -> None:
    manager = start()
    left_behind(manager)
    manager.close(clean=False)
    further = tmp_path / "data" / f"{TP}.{'0' * 32}-stray"
    shutil.copytree(tmp_path / "data" / str(TP), further)
    (further / "00000000000000000900.log").write_bytes(b"")
    manager = start()
    log = manager.get(TP)
    assert log is not None
    with files_of(manager).not_renaming():
        manager.set_aside(log)
    assert manager.create(TP, TOPIC_ID, CONFIG, is_new=False).log_end_offset == 900
    assert len(manager.strays()) == 1
    assert not further.exists()


@pytest.mark.parametrize("clean", [True, False])
def test_one_that_could_not_be_renamed_is_recovered_by_the_next_start(
    start: Callable[[], LogManager], clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start()
    left_behind(manager)
    assert manager.write_stray_offsets(manager.strays()) == set()
    manager.checkpoint()
    manager.close(clean=clean)
    caplog.set_level("INFO")
    again = start().get(TP)
    assert again is not None
    assert "was not closed cleanly" in caplog.text
    assert (again.log_start_offset, again.log_end_offset) == (15, 20)


def test_one_that_can_neither_be_read_nor_set_aside_again_is_not_forgotten(
    start: Callable[[], LogManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, *(batch(2, size=100) for _ in range(10)))
    log.high_watermark = 20
    log.delete_records_before(15)
    manager.set_aside(log)

    with monkeypatch.context() as failing:

        def unreadable(*_: object, **__: object) -> None:
            files_of(manager).renames = False
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        failing.setattr(Log, "recover", unreadable)
        with pytest.raises(OSError, match="Too many open files"):
            manager.create(TP, TOPIC_ID, CONFIG, is_new=False)
    files_of(manager).renames = True
    again = manager.create(TP, TOPIC_ID, CONFIG, is_new=False)
    assert (again.log_start_offset, again.log_end_offset) == (15, 20)
