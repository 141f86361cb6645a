"""Drivers and Python workers of an exactly-once sink are killed at random moments, and nothing is lost or repeated.

`BARNABAS_SINK_KILLS=30` kills more often than a test run has time for; the count is printed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import Process
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from barnabas.testing.kafka import Kafka

KILLS = int(os.environ.get("BARNABAS_SINK_KILLS", "4"))
DRIVER_EVERY = 4
"""One kill in so many takes everything; the others take Python workers."""
PARTITIONS = 2
BURST = 400
PATIENCE = 300


class Job(Process):
    """Spark as a session of processes: the driver's Python, its JVM, and the Python workers below that."""

    def __init__(self, kafka: Kafka, source: str, target: str, folder: Path) -> None:
        words = [sys.executable, "-m", "tests.pipelines.sink_job", kafka.bootstrap_servers, source, target]
        super().__init__("sink job", [*words, str(folder / "checkpoint")], folder / "job.log")
        try:
            self.wait_for_output("^running$", PATIENCE)
        except BaseException:
            self.kill_everything()
            raise

    def kill_workers(self, chance: random.Random) -> int:
        """kill -9 of one Python worker, or of all."""
        workers = [pid for pid in self._family() if pid != self.pid and "pyspark" in _command(pid).partition("java")[0]]
        chosen = workers if chance.random() < 0.5 else workers[:1]
        for pid in chosen:
            _kill(pid)
        return len(chosen)

    def kill_everything(self) -> None:
        """kill -9 of driver, JVM and workers, all at once."""
        for pid in self._family():
            _kill(pid)
        self.kill()

    def _family(self) -> list[int]:
        return [int(each.name) for each in Path("/proc").iterdir() if _session(each) == self.pid]


def _session(process: Path) -> int:
    with suppress(OSError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    return 0


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(PATIENCE * (2 + KILLS))
def test_nothing_is_lost_or_repeated_when_driver_and_workers_are_killed(kafka: Kafka, tmp_path: Path) -> None:
    source, target = kafka.topic(partitions=PARTITIONS), kafka.topic(partitions=PARTITIONS)
    seed = random.randrange(1 << 32)
    chance, sent, drivers, workers = random.Random(seed), 0, 0, 0
    print(f"\nseed {seed}")
    job = Job(kafka, source, target, tmp_path)
    try:
        for number in range(1, KILLS + 1):
            for partition in range(PARTITIONS):
                kafka.send(source, *range(sent, sent + BURST), partition=partition)
                sent += BURST
            time.sleep(chance.uniform(0, 3))
            if number % DRIVER_EVERY:
                workers += job.kill_workers(chance)
            else:
                job.kill_everything()
                drivers += 1
                job = Job(kafka, source, target, tmp_path)
            wait_until(partial(_has, kafka, target, sent, job), f"{sent} records", PATIENCE, every=0.3)
    finally:
        job.kill_everything()
    checked = (tmp_path / "job.log").read_text().count("ReplayChecked: ")
    print(f"{drivers} drivers and {workers} workers killed, {checked} epochs found half written, {sent} records")
    assert sorted(int(value or -1) for value in kafka.values(target)) == list(range(sent))


def _has(kafka: Kafka, target: str, count: int, job: Job) -> bool:
    assert job.alive, job.tail()
    return len(kafka.values(target)) >= count
