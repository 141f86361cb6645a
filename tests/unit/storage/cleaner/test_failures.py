"""One log that cannot be cleaned does not keep the others from it, and is told of."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from barnabas.cli.log.command import command
from barnabas.model.errors import CorruptMessage, StorageFailed
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.cleaner import manager as cleaner_manager
from barnabas.storage.cleaner.plan import examine
from barnabas.storage.cleaner.process import CleaningFailed, InThisProcess, WorkerDied
from barnabas.storage.cleaner.report import FILE, read_report
from barnabas.storage.cleaner.worker.cleaning import CleaningAborted
from barnabas.storage.files import FileSystem
from tests.support.cleaner_shop import Refusing, Shop, old_and_new, values
from tests.support.compaction import LIMITS, keyed, settle
from tests.support.logs import NOW, append

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.cleaner.task import CleanedGroup, CleanedLog, CleaningTask
    from barnabas.storage.log.log import Log

FIRST = "00000000000000000000"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def until_given_up(shop: Shop) -> int:
    """Clean for as long as it may take until a log is given up; returns how many cleanings were begun."""
    begun = 0
    for _ in range(cleaner_manager.MOST_STRIKES):
        while shop.clean():
            begun += 1
            assert begun < 10, "the same log is taken again and again"
        shop.clock.advance(cleaner_manager.LONGEST_DELAY_MS)
    return begun


def reported(path: Path) -> dict[str, str | None]:
    """What `barnabas log cleaner` says of logs that are not cleaned any more."""
    result = CliRunner().invoke(command, ["cleaner", "--json", str(path)])
    return {each["partition"]: each["uncleanable"] for each in json.loads(result.stdout)}


def test_a_damaged_log_is_uncleanable_alone(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = shop.make("bad", *old_and_new()), shop.make("good", *old_and_new())
    path = bad.directory / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    while shop.clean():
        pass
    assert values(good) == [b"new"]
    assert [log.tp.topic for log in shop.cleaner.uncleanable] == ["bad"]
    assert "bad-0 is not cleaned any more until the broker starts again" in caplog.text
    assert "CRC" in (read_report(FileSystem(), str(shop.path))["bad-0"].uncleanable or "")
    append(bad, keyed([(b"a", b"newer")]))
    assert bad.size > 0
    shop.logs.set_aside(bad)
    assert not shop.clean()
    assert not shop.cleaner.uncleanable


def test_a_failure_puts_a_log_off_and_lets_others_through(shop: Shop) -> None:
    log = shop.make("t", *old_and_new())
    worker = Refusing(CleaningFailed("the disk is full"))
    assert shop.cleaner.clean_next(worker, LIMITS)
    assert not shop.cleaner.clean_next(worker, LIMITS)
    shop.clock.advance(cleaner_manager.FIRST_DELAY_MS)
    assert shop.cleaner.clean_next(worker, LIMITS)
    shop.clock.advance(cleaner_manager.FIRST_DELAY_MS)
    assert not shop.clean()
    shop.clock.advance(cleaner_manager.FIRST_DELAY_MS)
    assert shop.clean()
    assert values(log) == [b"new"]


def test_a_log_that_kills_workers_is_given_up(shop: Shop) -> None:
    shop.make("t", *old_and_new())
    worker = Refusing(WorkerDied("the cleaner's process ended by signal 9"))
    for _ in range(cleaner_manager.MOST_STRIKES):
        assert not shop.cleaner.uncleanable
        assert shop.cleaner.clean_next(worker, LIMITS)
        shop.clock.advance(cleaner_manager.LONGEST_DELAY_MS)
    assert len(shop.cleaner.uncleanable) == 1
    assert not shop.clean()


def test_a_log_that_lost_a_file_is_put_off_and_then_given_up(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = shop.make("bad", *old_and_new()), shop.make("good", *old_and_new())
    (bad.directory / f"{FIRST}.log").unlink()
    assert shop.clean()
    assert "bad-0 was not cleaned: " in caplog.text
    assert shop.clean()
    assert values(good) == [b"new"]
    assert not shop.clean()
    assert not shop.cleaner.uncleanable
    shop.clock.advance(cleaner_manager.FIRST_DELAY_MS)
    assert until_given_up(shop) == cleaner_manager.MOST_STRIKES - 1
    found = reported(shop.path)
    assert found["good-0"] is None
    assert "No such file" in (found["bad-0"] or "")
    assert not good.is_failed


def test_a_log_with_a_short_transaction_index_is_given_up_at_once(shop: Shop) -> None:
    aborted = keyed([(b"a", b"aborted")], producer_id=7, sequence=0, transactional=True)
    marker = build_marker(EndOfTransaction(ControlType.ABORT, 0), timestamp=NOW, producer_id=7, producer_epoch=0)
    shop.make("bad", *old_and_new(), aborted, marker)
    shop.make("good", *old_and_new())
    shop = shop.again()
    bad, good = shop.find("bad"), shop.find("good")
    bad.open()
    (bad.directory / f"{FIRST}.txnindex").write_bytes(b"")
    assert shop.clean()
    assert shop.clean()
    assert not shop.clean()
    assert list(shop.cleaner.uncleanable) == [bad]
    assert values(good) == [b"new"]
    found = reported(shop.path)
    assert found["good-0"] is None
    assert "txnindex" in (found["bad-0"] or "")


@pytest.mark.parametrize("error", [CorruptMessage("damaged"), ZeroDivisionError("damaged")])
def test_what_nobody_expected_gives_up_that_log_alone(
    shop: Shop, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = shop.make("bad", *old_and_new()), shop.make("good", *old_and_new())
    assert shop.cleaner.clean_next(Refusing(error), LIMITS)
    assert "damaged" in shop.cleaner.uncleanable[bad]
    assert ("Traceback" in caplog.text) == isinstance(error, ZeroDivisionError)
    assert shop.clean()
    assert not shop.clean()
    assert values(good) == [b"new"]


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "too many files"), OSError(errno.ENOMEM, "no memory"), MemoryError()]
)
def test_a_shortage_is_never_the_fault_of_a_log(shop: Shop, error: Exception) -> None:
    log = shop.make("t", *old_and_new())
    for _ in range(2 * cleaner_manager.MOST_STRIKES):
        assert shop.cleaner.clean_next(Refusing(error), LIMITS)
        assert not shop.cleaner.clean_next(Refusing(error), LIMITS)
        shop.clock.advance(cleaner_manager.LONGEST_DELAY_MS)
    assert shop.clean()
    assert values(log) == [b"new"]


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EMFILE, "too many files"), StorageFailed("too many files"), OSError(errno.EIO, "read error")],
)
def test_a_log_that_could_not_be_looked_at_is_looked_at_again(
    shop: Shop, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, good = shop.make("t", *old_and_new()), shop.make("good", *old_and_new())

    def refuse(each: Log, now_ms: int) -> object:
        if each is log:
            raise error
        return examine(each, now_ms)

    with monkeypatch.context() as patched:
        patched.setattr(cleaner_manager, "examine", refuse)
        assert shop.clean()
        assert not shop.clean()
    assert values(good) == [b"new"]
    assert not shop.cleaner.uncleanable
    assert not shop.clean()
    shop.clock.advance(cleaner_manager.FIRST_DELAY_MS)
    assert shop.clean()
    assert values(log) == [b"new"]


def test_a_log_that_can_never_be_looked_at_is_given_up(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    log = shop.make("t", *old_and_new())

    def refuse(_log: Log, _now_ms: int) -> object:
        raise OSError(errno.EIO, "read error")

    monkeypatch.setattr(cleaner_manager, "examine", refuse)
    assert until_given_up(shop) == 0
    assert "read error" in shop.cleaner.uncleanable[log]


def test_failures_count_only_until_a_cleaning_succeeds(shop: Shop) -> None:
    log = shop.make("t", *old_and_new())
    for _ in range(2):
        for _ in range(cleaner_manager.MOST_STRIKES - 1):
            assert shop.cleaner.clean_next(Refusing(OSError(errno.EIO, "read error")), LIMITS)
            shop.clock.advance(cleaner_manager.LONGEST_DELAY_MS)
        assert shop.clean()
        append(log, *old_and_new())
        settle(log)
    assert not shop.cleaner.uncleanable


def test_a_cleaning_that_is_broken_off_again_and_again_waits_in_between(shop: Shop) -> None:
    log = shop.make("t", *old_and_new())
    worker = Refusing(CleaningAborted("the log was cut"))
    for _ in range(2 * cleaner_manager.MOST_STRIKES):
        assert shop.cleaner.clean_next(worker, LIMITS)
        assert not shop.cleaner.clean_next(worker, LIMITS)
        shop.clock.advance(cleaner_manager.ABORTED_DELAY_MS)
    assert shop.clean()
    assert values(log) == [b"new"]


def test_a_report_that_cannot_be_read_or_written_stops_no_cleaning(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    logs = [shop.make(name, *old_and_new()) for name in ("one", "two")]
    (shop.path / FILE).mkdir()
    while shop.clean():
        pass
    assert [values(log) for log in logs] == [[b"new"], [b"new"]]
    assert "Could not write the report of the cleaner in" in caplog.text


def test_a_log_waits_for_the_cleaning_of_a_deleted_one_of_its_name(shop: Shop) -> None:
    """Both would write to the same files."""
    first = shop.make("t", *old_and_new())
    cleaned_meanwhile: list[bool] = []

    class Slow(InThisProcess):
        def clean(self, task: CleaningTask, on_group: Callable[[CleanedGroup], bool]) -> CleanedLog:
            stray = shop.logs.set_aside(first)
            assert stray is not None and shop.logs.delete_stray(stray)
            shop.make("t", *old_and_new(b"b"))
            cleaned_meanwhile.append(shop.clean())
            return super().clean(task, on_group)

    assert shop.cleaner.clean_next(Slow(shop.logs.pool.files), LIMITS)
    assert cleaned_meanwhile == [False]
    second = shop.find("t")
    assert values(second) == [b"old", b"new"]
    assert shop.clean()
    assert values(second) == [b"new"]
    assert not shop.logs.failed_directories


def test_what_replaces_segments_of_a_log_that_was_set_aside_is_left_to_its_recovery(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may have its name again already: what counts there must not be undone by who had it before."""
    log = shop.make("t", *old_and_new())
    directory = log.directory

    def set_aside_in_the_middle(*_: object) -> bool:
        (directory / f"{FIRST}.log").rename(directory / f"{FIRST}.log.1.deleted")
        stray = shop.logs.set_aside(log)
        assert stray is not None
        Path(stray.path).rename(directory)
        return False

    monkeypatch.setattr(type(log), "replace_segments", set_aside_in_the_middle)
    shop.clean()
    assert (directory / f"{FIRST}.log.swap").exists()
    assert not shop.logs.failed_directories
