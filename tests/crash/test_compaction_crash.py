"""Compaction on a disk that forgets: at any crash point, the log is a log, and equals its dictionary.

See tests/support/compaction_run.py for what is compared. The power goes off in the middle of any file operation, a
rename of the swap among them, and any part of what was not synced may be lost.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.storage.check import check
from tests.compat.format.contents import produce, read, text_messages
from tests.support.brokers import Barnabas
from tests.support.compaction_run import CompactionRun
from tests.support.faulty_files import PowerLoss
from tests.support.memory import parent_in_memory
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

CRASHES = 3
GROUP = 9


@pytest.fixture
def disk() -> Iterator[Path]:
    """A directory in memory, where the system has such: these tests make many thousand files."""
    with tempfile.TemporaryDirectory(dir=parent_in_memory()) as path:
        yield Path(path)


def runs(disk: Path, group: int) -> Iterator[CompactionRun]:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        root = disk / str(seed)
        root.mkdir()
        yield CompactionRun(root, seed)


@pytest.mark.parametrize("group", range(12))
@pytest.mark.parametrize("power", [True, False], ids=["power loss", "killed process"])
def test_a_compacted_log_equals_its_dictionary_after_every_crash(disk: Path, group: int, power: bool) -> None:
    cleanings = 0
    for run in runs(disk, group):
        for _ in range(CRASHES):
            with contextlib.suppress(PowerLoss):
                log = run.start()
                run.check(log)
                run.files.crash_in = run.chance.randint(0, 400)
                run.live(log)
            run.crash(power=power)
        run.finish(run.start())
        cleanings += run.cleanings
    assert cleanings > GROUP


@pytest.mark.parametrize("group", range(2))
def test_a_crash_in_each_operation_of_one_cleaning(disk: Path, group: int) -> None:
    """The same log, crashed once in every file operation that a cleaning of it takes."""
    for power in (True, False):
        for operation in range(200):
            root = disk / f"{power}-{operation}"
            root.mkdir()
            run = CompactionRun(root, group)
            log = run.start()
            run.live(log, 60)
            log.roll(run.clock.now_ms())
            log.flush()
            run.manager.drain()
            run.certain = log.recovery_point
            run.files.crash_in = operation
            try:
                run.clean(log)
            except PowerLoss:
                run.crash(power=power)
                run.check(run.start())
                continue
            break
        else:
            pytest.fail("the cleaning did not come to its end")


def test_a_broker_killed_while_it_cleans_leaves_no_worker_and_no_harm(tmp_path: Path) -> None:
    settings = {
        "log.cleaner.backoff.ms": "20",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.io.max.bytes.per.second": "50000.0",
        "log.segment.bytes": "1048576",
    }
    with Barnabas(tmp_path, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1, config={"cleanup.policy": "compact"})])["t"].result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 20})
        produce(producer, "t", 0, [each._replace(key=b"key") for each in text_messages(2_500, 500, 0)])

        def workers() -> list[str]:
            return subprocess.run(["pgrep", "-P", str(broker.pid)], capture_output=True, text=True).stdout.split()

        (worker,) = wait_until(workers, "a worker")
        broker.kill()
    wait_until(lambda: subprocess.run(["ps", "-p", worker], capture_output=True).returncode != 0, "the worker's end")
    with Barnabas(tmp_path, {**settings, "log.cleaner.io.max.bytes.per.second": "1e300"}) as broker:
        checkpoint = broker.data / "cleaner-offset-checkpoint"
        wait_until(lambda: checkpoint.exists() and "t 0 " in checkpoint.read_text(), "a cleaning")
        contents = read(broker.bootstrap, "t", 0)
        assert contents.records[-1].offset == 2_499
        assert len(contents.records) < 2_500
        assert broker.stop() == 0
    assert check(broker.data).errors == []
