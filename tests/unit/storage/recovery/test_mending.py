"""`barnabas log mend`: what earlier versions wrote becomes right, and lost ends are given up by decision alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from barnabas.cli.log.command import command
from barnabas.model.errors import StartupError
from barnabas.model.ids import TopicPartition
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.check import check
from barnabas.storage.recovery.mending import mend
from tests.support.compaction import clean_log, compacted, keyed, seen, settle
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, append, batch, headers, stored

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.log.log import Log

OFFSETS = TopicPartition(CONSUMER_OFFSETS, 3)


def fill_as_before(log: Log) -> None:
    """Commits of offsets as earlier versions wrote them: two in a transaction, one of another client."""
    for number in range(6):
        data = keyed([(b"a", b"%d" % number)] * 2, producer_id=7, sequence=-1, transactional=True)
        log.append(data, 0, NOW, in_sequence=False)
        end = EndOfTransaction(ControlType.COMMIT, 0)
        append(log, build_marker(end, timestamp=NOW, producer_id=7, producer_epoch=0), keyed([(b"b", b"%d" % number)]))
    log.high_watermark = log.log_end_offset


def started(path: Path, tp: TopicPartition, config: LogConfig) -> tuple[StepManager, Log]:
    manager = StepManager(path).start({tp.topic: config})
    return manager, manager.get(tp) or manager.create(tp, TOPIC_ID, config)


def sequences(log: Log) -> set[int]:
    return {header.base_sequence for header in headers(log) if header.producer_id >= 0 and not header.is_control}


def test_commits_without_a_sequence_get_one(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=600)
    manager, log = started(tmp_path, OFFSETS, config)
    fill_as_before(log)
    before, values = stored(log), seen(log)
    manager.close()
    found = check(tmp_path)
    assert found.ok
    assert [finding.severity.value for finding in found.findings] == ["note"]
    files = {path.name: path.read_bytes() for path in log.directory.iterdir()}

    done = CliRunner().invoke(command, ["mend", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert f"{OFFSETS}: 6 batches and " in done.stdout
    assert check(tmp_path).findings == []
    assert {path.name: len(path.read_bytes()) for path in log.directory.iterdir()} == {
        name: len(data) for name, data in files.items()
    }
    assert [name for name, data in files.items() if name.endswith("index") and data != log_file(log, name)] == []
    again = CliRunner().invoke(command, ["mend", str(tmp_path)])
    assert (again.exit_code, again.stdout) == (0, "")
    manager, log = started(tmp_path, OFFSETS, config)
    assert sequences(log) == {0}
    assert seen(log) == values
    assert [read_header(each)[:2] for each in stored(log)] == [read_header(each)[:2] for each in before]
    assert {each.last_sequence for each in log.producers.describe()} == {1}
    manager.close()


def log_file(log: Log, name: str) -> bytes:
    return (log.directory / name).read_bytes()


def test_a_cleaning_gives_them_one_too(tmp_path: Path) -> None:
    manager, log = started(tmp_path, OFFSETS, compacted())
    fill_as_before(log)
    settle(log)
    kept = {record.key: record.value for record in seen(log)}
    clean_log(log, log.store)
    assert sequences(log) == {0}
    assert {record.key: record.value for record in seen(log)} == kept
    manager.close()
    assert check(tmp_path).findings == []


def test_a_running_broker_keeps_its_files(tmp_path: Path) -> None:
    manager, _ = started(tmp_path, OFFSETS, LogConfig())
    with pytest.raises(StartupError, match="in use by another broker"):
        list(mend(tmp_path, accept_loss=False))
    manager.close()


def test_a_partition_is_no_data_directory(tmp_path: Path) -> None:
    manager, log = started(tmp_path, OFFSETS, LogConfig())
    manager.close()
    before = {path.name for path in log.directory.iterdir()}
    with pytest.raises(StartupError, match=f"name the data directory, {tmp_path}"):
        list(mend(log.directory, accept_loss=False))
    assert {path.name for path in log.directory.iterdir()} == before


@pytest.mark.parametrize("torn", [1, 100, 1_000_000])
def test_a_lost_end_is_given_up_when_its_owner_says_so(tmp_path: Path, torn: int) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=100)
    manager, log = started(tmp_path, TP, config)
    for number in range(30):
        append(log, batch(2, size=50, timestamp=NOW + number), epoch=number // 9)
    log.high_watermark = 60
    before = stored(log)
    last = log.segments[-1]
    manager.close()
    os.truncate(last.path, max(last.size - torn, 0))
    left = max(last.size - torn, 0) // (last.size // ((60 - last.base_offset) // 2))
    end = last.base_offset + 2 * left

    refused = CliRunner().invoke(command, ["mend", str(tmp_path)])
    assert refused.exit_code == 1
    assert f"offsets {end} to 59 are missing; with --accept-loss, the log goes on at 60" in refused.stdout
    assert not check(tmp_path).ok
    done = CliRunner().invoke(command, ["mend", "--accept-loss", str(tmp_path)])
    assert done.exit_code == 0
    assert f"offsets {end} to 59 are given up: the log goes on at 60" in done.stdout
    assert check(tmp_path).errors == []

    manager, log = started(tmp_path, TP, config)
    assert append(log, batch(1), epoch=4) == [60]
    log.high_watermark = 61
    kept = [each for each in stored(log) if read_header(each).record_count]
    assert kept[:-1] == before[: end // 2]
    manager.close(clean=False)
    manager, log = started(tmp_path, TP, config)
    assert log.log_end_offset == 61
    manager.close()
    assert check(tmp_path).errors == []


def test_a_log_without_files_goes_on_where_it_ended(tmp_path: Path) -> None:
    manager, log = started(tmp_path, TP, LogConfig())
    append(log, batch(5))
    manager.close()
    for path in log.directory.glob("0*"):
        path.unlink()
    assert [each.done for each in mend(tmp_path, accept_loss=True)] == [True]
    manager, log = started(tmp_path, TP, LogConfig())
    assert append(log, batch(1)) == [5]
    manager.close()
    assert check(tmp_path).errors == []


@pytest.mark.parametrize("lost", [1, None])
def test_a_hole_in_what_was_on_disk_is_given_up_after_a_crash(tmp_path: Path, lost: int | None) -> None:
    """What lies behind it stays."""
    config = LogConfig(segment_bytes=500, index_interval_bytes=100)
    manager, log = started(tmp_path, TP, config)
    for number in range(30):
        append(log, batch(2, size=50, timestamp=NOW + number), epoch=number // 9)
    log.high_watermark = 60
    before = {read_header(each).base_offset: each for each in stored(log)}
    hurt, after = log.segments[2:4]
    log.flush(after.base_offset - 1)
    manager.checkpoint()
    manager.close(clean=False)
    end = hurt.base_offset
    if lost is None:
        for path in log.directory.glob(f"{hurt.base_offset:020d}.*"):
            path.unlink()
    else:
        os.truncate(hurt.path, hurt.size - lost)
        end = after.base_offset - 2
    manager, log = started(tmp_path, TP, config)
    assert log.torn is not None
    manager.close()

    missing = f"offsets {end} to {after.base_offset - 1}"
    goes_on = f"the log goes on at {after.base_offset}"
    assert [(each.what, each.goes_on_at) for each in mend(tmp_path, accept_loss=False)] == [
        (f"{missing} are missing", after.base_offset)
    ]
    assert [each.what for each in mend(tmp_path, accept_loss=True)] == [f"{missing} are given up: {goes_on}"]
    assert list(mend(tmp_path, accept_loss=True)) == []
    manager, log = started(tmp_path, TP, config)
    kept = {read_header(each).base_offset: each for each in stored(log) if read_header(each).record_count}
    assert kept == {base: each for base, each in before.items() if not end <= base < after.base_offset}
    assert append(log, batch(1), epoch=4) == [60]
    manager.close()
    assert check(tmp_path).errors == []
