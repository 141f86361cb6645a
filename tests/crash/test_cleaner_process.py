"""The cleaner's process: it does what the code does in this one, and its end, however it comes, harms nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import StorageFailed
from barnabas.storage.cleaner.cleaner import task_for
from barnabas.storage.cleaner.plan import examine
from barnabas.storage.cleaner.process import CleaningFailed, Uncleanable, WorkerDied, WorkerProcess
from barnabas.storage.cleaner.task import CleaningTask
from barnabas.storage.cleaner.worker.cleaning import CleaningAborted
from barnabas.storage.log.log import Log
from tests.support.compaction import LIMITS, clean_log, compacted, keyed, seen, settle
from tests.support.logs import NOW, TOPIC_ID, TP, append, store
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from barnabas.storage.cleaner.task import CleanedGroup
    from barnabas.storage.directory import LogDirectory


@pytest.fixture
def home(tmp_path: Path) -> LogDirectory:
    return store(tmp_path)


@pytest.fixture
def log(home: LogDirectory) -> Log:
    """Two segments of two values each for one key, and an empty one."""
    log = Log.create(TP, home, f"{home.path}/{TP}", compacted(segment_bytes=150), TOPIC_ID)
    append(log, *(keyed([(b"a", b"%d" % number)], producer_id=3, sequence=number) for number in range(4)))
    settle(log)
    return log


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    worker = WorkerProcess()
    yield worker
    worker.end()


def leftovers(log: Log) -> list[str]:
    return [path.name for path in log.directory.iterdir() if path.suffix in (".cleaned", ".swap")]


def test_a_worker_cleans_one_log_after_another(log: Log, home: LogDirectory, worker: WorkerProcess) -> None:
    done = clean_log(log, home, worker=worker)
    assert (done.records_in, done.records_out, done.cleaned_to) == (4, 1, 4)
    assert [record.value for record in seen(log)] == [b"3"]
    pid = worker.pid
    append(log, keyed([(b"a", b"last")]))
    settle(log)
    clean_log(log, home, worker=worker)
    assert [record.value for record in seen(log)] == [b"last"]
    assert worker.pid == pid
    worker.end()
    assert worker.pid is None


def test_a_task_survives_the_pipe(log: Log, home: LogDirectory) -> None:
    task = task_for(examine(log, NOW), home.files, LIMITS, NOW)
    assert task.producers
    assert CleaningTask.decode(task.encode()) == task


def test_a_worker_that_is_killed_is_told_of_and_replaced(log: Log, home: LogDirectory, worker: WorkerProcess) -> None:
    task = task_for(examine(log, NOW), home.files, LIMITS, NOW)

    def kill(group: CleanedGroup) -> bool:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        return True

    with pytest.raises(WorkerDied, match="signal 9"):
        worker.clean(task, kill)
    assert [record.value for record in seen(log)] == [b"0", b"1", b"2", b"3"]
    clean_log(log, home, worker=worker)
    assert [record.value for record in seen(log)] == [b"3"]
    assert leftovers(log) == []


def test_a_swap_that_fails_does_not_disturb_the_next_task(log: Log, home: LogDirectory, worker: WorkerProcess) -> None:
    task = task_for(examine(log, NOW), home.files, LIMITS, NOW)

    def fail(group: CleanedGroup) -> bool:
        raise StorageFailed("the disk is full")

    with pytest.raises(StorageFailed):
        worker.clean(task, fail)
    clean_log(log, home, worker=worker)
    assert [record.value for record in seen(log)] == [b"3"]


def test_damage_and_missing_files_are_told_apart(log: Log, home: LogDirectory, worker: WorkerProcess) -> None:
    task = task_for(examine(log, NOW), home.files, LIMITS, NOW)
    with pytest.raises(CleaningAborted, match="No such file"):
        worker.clean(task._replace(directory=f"{home.path}/gone"), lambda _: True)
    first = task.segments[0]
    with pytest.raises(Uncleanable, match="no sound batch"):
        worker.clean(task._replace(segments=(first._replace(size=first.size - 1), *task.segments[1:])), lambda _: True)
    (log.directory / "00000000000000000000.index.cleaned").mkdir()
    with pytest.raises(CleaningFailed):
        worker.clean(task, lambda _: True)
    assert worker.pid is not None


def test_a_stop_breaks_a_cleaning_off(log: Log, home: LogDirectory) -> None:
    worker = WorkerProcess()
    errors: list[Exception] = []

    def run() -> None:
        try:
            clean_log(log, home, worker=worker, limits=LIMITS._replace(bytes_per_second=1))
        except CleaningAborted as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: worker.pid is not None, "a worker")
    worker.close()
    thread.join(60)
    assert [str(error) for error in errors] == ["the broker is stopping"]
    assert leftovers(log) == []
    with pytest.raises(CleaningAborted):
        clean_log(log, home, worker=worker)


def test_a_worker_ends_with_its_broker(log: Log, home: LogDirectory) -> None:
    task = task_for(examine(log, NOW), home.files, LIMITS._replace(bytes_per_second=1), NOW)
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas.storage.cleaner.worker.process"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"task {task.encode()}\n".encode())
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
