"""Numbered records, a load into each table format, and kill -9 at random; then every number is in each table once.

    python -m tests.pipelines.kills --kills 30 [--minutes 20] [--standalone] [--seed 7]

What dies, at random: the driver, its JVM, both at once, one Python worker, all Python workers, on a standalone cluster
an executor. A driver that died is started again, with nothing but the tables. Every few kills the broker is killed or
stopped, and comes back.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.clients import Admin, Producer
from barnabas.pipelines.tables.opening import FORMATS
from tests.support.brokers import Barnabas
from tests.support.processes import Process, free_port
from tests.support.tables import content
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 4
TOPIC = "numbers"
PER_SECOND = 500
BROKER_EVERY = 2
"""After so many kills the broker's turn comes."""


class Numbers(threading.Thread):
    """Sends 0, 1, 2, ... until it is told to end; each is acknowledged, whatever the broker goes through."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer(self._servers, delivery_timeout_ms=300_000) as producer:
            while not self._over.is_set():
                for _ in range(PER_SECOND // 20):
                    value = json.dumps({"n": self.sent}).encode()
                    producer.send(TOPIC, value, partition=self.sent % PARTITIONS)
                    self.sent += 1
                self._over.wait(0.05)

    def end(self) -> int:
        """Wait until all have arrived; how many there are."""
        self._over.set()
        self.join(300)
        assert not self.is_alive()
        return self.sent


class Trial:
    """One run."""

    def __init__(self, folder: Path, seed: int, master: str = "local[2,3]") -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._master = master
        self._port = free_port()
        self._broker = Barnabas(folder, port=self._port)
        self._loader: Process | None = None
        self.killed: collections.Counter[str] = collections.Counter()
        with Admin(self._broker.bootstrap) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        self._numbers = Numbers(self._broker.bootstrap)
        self._numbers.start()

    def close(self) -> None:
        """End what is left."""
        if self._loader is not None:
            self._end_loader()
        self._broker.kill()

    def run(self, kills: int, seconds: float = math.inf) -> int:
        """Kill so often, or for so long, then load the rest and check; how many numbers there were."""
        over = time.monotonic() + seconds
        for number in range(1, kills + 1):
            if time.monotonic() > over:
                break
            self._keep_loading()
            time.sleep(self._chance.uniform(0.2, 2.5))
            self._kill_something()
            if number % BROKER_EVERY == 0:
                self._restart_broker()
        total = self._numbers.end()
        if self._loader is not None:
            self._end_loader()
        self._finish()
        self._check(total)
        return total

    def _place(self, kind: str) -> Path:
        return self._folder / f"numbers_{kind}"

    def _start(self, when: str) -> Process:
        words = [sys.executable, "-m", "tests.pipelines.loader"]
        words += [self._broker.bootstrap, TOPIC, str(self._folder), self._master, when]
        return Process("loader", words, self._folder / "loader.log")

    def _keep_loading(self) -> None:
        """See to a loader that is at work: its tables grow."""
        if self._loader is None or not self._loader.alive:
            if self._loader is not None:
                self._end_loader()
            self._loader = self._start("on")
            self._loader.wait_for_output("^loading$", 120)
        before = self._commits()
        loader = self._loader
        wait_until(
            lambda: not loader.alive or all(now > before[kind] for kind, now in self._commits().items()),
            f"no table grows:\n{loader.tail()}",
            120,
            every=0.1,
        )

    def _commits(self) -> dict[str, int]:
        """How many commits each table has, by its files: opening tables would disturb what is tested."""
        logs = {
            "parquet": self._place("parquet") / "_barnabas" / "log",
            "delta": self._place("delta") / "_delta_log",
            "iceberg": self._place("iceberg") / "metadata",
        }
        return {kind: len(list(log.glob("*.json"))) if log.exists() else 0 for kind, log in logs.items()}

    def _kill_something(self) -> None:
        assert self._loader is not None
        kinds = ["driver", "JVM", "driver and JVM", "worker", "all workers"]
        kinds += ["executor"] if self._master.startswith("spark:") else []
        kind = self._chance.choice(kinds)
        victims = self._victims(kind)
        if not victims:
            kind, victims = "driver", self._victims("driver")
        for pid in victims:
            _kill(pid)
        self.killed[kind] += 1

    def _victims(self, kind: str) -> list[int]:
        assert self._loader is not None
        driver = self._loader.pid
        family = dict(_processes())
        of_session = {pid: words for pid, (session, words) in family.items() if session == driver and pid != driver}
        java = [pid for pid, words in of_session.items() if "SparkSubmit" in words]
        nodes = {pid for pid, (_, words) in family.items() if str(self._folder) in words and "deploy.worker" in words}
        executors = [pid for pid, (_, words) in family.items() if "CoarseGrained" in words and _above(pid) & nodes]
        python = [
            pid
            for pid, (_, words) in family.items()
            if "pyspark.daemon" in words and _above(pid) & {*java, *executors, *of_session}
        ]
        workers = [pid for pid in python if _above(pid) & set(python)]
        match kind:
            case "driver":
                return [driver]
            case "JVM":
                return java
            case "driver and JVM":
                return [driver, *java]
            case "worker":
                return [self._chance.choice(workers)] if workers else []
            case "executor":
                return [self._chance.choice(executors)] if executors else []
        return workers

    def _restart_broker(self) -> None:
        if self._chance.random() < 0.5:
            self._broker.kill()
            self.killed["broker"] += 1
        else:
            self._broker.stop()
            self.killed["broker, stopped"] += 1
        self._broker = Barnabas(self._folder, port=self._port)

    def _end_loader(self) -> None:
        """Kill the driver and all that is left of it."""
        assert self._loader is not None
        driver = self._loader.pid
        self._loader.kill()
        for pid, (session, _) in _processes():
            if session == driver:
                _kill(pid)
        self._loader = None

    def _finish(self) -> None:
        loader = self._start("now")
        try:
            assert loader.wait(300) == 0, loader.tail()
        finally:
            self._loader = loader
            self._end_loader()

    def _check(self, total: int) -> None:
        for kind in FORMATS:
            found = collections.Counter(content(kind, self._place(kind)).column("n").to_pylist())
            twice = [number for number, count in found.items() if count > 1]
            missing = [number for number in range(total) if number not in found]
            assert not twice and not missing and len(found) == total, (
                f"{kind}: {len(twice)} numbers more than once ({twice[:5]}), {len(missing)} missing ({missing[:5]})"
            )


def _processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """All processes of this machine that can be looked at: the session, and the command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            yield int(folder.name), (session, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (OSError, ValueError):
            continue


def _above(pid: int) -> set[int]:
    """The processes that a process descends from."""
    found: set[int] = set()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
        found.add(pid)
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Run a trial by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=math.inf, help="kill no longer than this")
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        master = "local[2,3]"
        if given.standalone:
            from tests.support.spark_cluster import SparkCluster

            master = stack.enter_context(SparkCluster(folder)).url
        trial = Trial(folder, given.seed, master)
        stack.callback(trial.close)
        total = trial.run(given.kills, given.minutes * 60)
        kills = ", ".join(f"{kind} {count}" for kind, count in sorted(trial.killed.items()))
        print(f"seed {given.seed}, {time.monotonic() - began:.0f} s: {total} numbers, each once in each table; {kills}")


if __name__ == "__main__":
    main()
