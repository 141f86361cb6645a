"""The log manager after a stop: what checkpoints say, what they lack, and logs that lost what was on disk."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn
from unittest.mock import Mock

import pytest

from barnabas.model.errors import (
    StorageFailed,
)
from barnabas.model.ids import TopicPartition
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.check import check
from barnabas.storage.checkpoints import CLEANED, RECOVERY_POINTS
from barnabas.storage.segments.segments import Segments
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, UnsyncedFiles, append, batch
from tests.unit.storage.conftest import CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.model.log_config import LogConfig
    from barnabas.storage.log.log import Log
    from barnabas.storage.manager import LogManager


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
    manager.checkpoint()  # it is no log that was just made
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


def test_a_gap_in_a_compacted_log_that_was_just_made_is_damage(start: Callable[..., LogManager]) -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    manager = start(config=config)
    log = manager.create(TP, TOPIC_ID, config)
    for _ in range(2):  # also if no checkpoint was written between two crashes
        end = log.log_end_offset
        append(log, *(batch(2, size=300) for _ in range(10)))
        manager.close(clean=False)
        lost = sorted(log.directory.glob("*.log"))[-5]
        lost.write_bytes(b"")  # as a power loss may do to what was not synced
        manager = start(config=config)
        found = manager.get(TP)
        assert found is not None
        log = found
        assert end <= log.log_end_offset == int(lost.stem)
    manager.checkpoint()
    assert not list(log.directory.glob("*unlisted"))
    assert check(log.log_dir).errors == []


def test_a_gap_in_a_log_that_was_just_made_and_is_compacted_since_is_damage(tmp_path: Path) -> None:
    compacted = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    manager = StepManager(tmp_path).start({TP.topic: CONFIG})
    log = manager.create(TP, TOPIC_ID, CONFIG)
    log.update_config(compacted)
    manager.drain()
    append(log, *(batch(2, size=300) for _ in range(10)))
    manager.close(clean=False)
    lost = sorted(log.directory.glob("*.log"))[-3]
    lost.write_bytes(b"")  # as a power loss may do to what was not synced
    again = StepManager(tmp_path).start({TP.topic: compacted}).get(TP)
    assert again is not None
    assert again.log_end_offset == int(lost.stem)


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
    monkeypatch.setattr(Segments, "carry_out", Mock(side_effect=OSError(errno.EIO, "the disk fails now")))
    monkeypatch.setattr(Segments, "start_again", Mock(side_effect=OSError(errno.EIO, "the disk fails now")))
    with pytest.raises(StorageFailed):
        log.truncate_to(cut)
    said = [
        (tmp_path / "data" / f"{name}-offset-checkpoint").read_text().split()[-1]
        for name in ("recovery-point", "log-start", "replication", "cleaner")
    ]
    assert list(map(int, said)) == ([6, 4, 6, 6] if cut == 6 else [0, 2, 0, 0])


class Unasked(dict[TopicPartition, "Log"]):
    """The logs of a directory, none of which is looked at but by its name."""

    def values(self) -> NoReturn:
        raise AssertionError("somebody looks at all logs")


def test_a_log_that_has_lost_nothing_is_not_held_against_all_others(start: Callable[..., LogManager]) -> None:
    """After a crash each log is asked: with 40,000 of them a start spent half of its 12 s on that."""
    manager = start()
    log = manager.create(TP, TOPIC_ID, CONFIG)
    append(log, batch(2))
    log.flush()
    manager.checkpoint()
    log.store.logs = Unasked(log.store.logs)
    manager._checkpoints.lower(log)
    with pytest.raises(AssertionError, match="all logs"):
        manager.checkpoint()


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
        with pytest.raises(StorageFailed, match=r"20, but its records end at 18") as caught:
            append(torn, batch(1))
        assert caught.value.remedy == Remedy(RemedyKind.ACCEPT_LOSS, str(log.directory.parent))
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
