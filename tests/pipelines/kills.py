"""Numbered records into a table of each format and into a topic, with kill -9 at random; then each is there once.

    python -m tests.pipelines.kills --kills 30 [--minutes 20] [--standalone] [--seed 7]

What dies, in random order: the driver, its JVM, both at once, one Python worker, all Python workers, on a standalone
cluster an executor. A driver that died is started again, with nothing but the tables and, for the topic, Spark's
checkpoint. After every other kill the broker is killed or stopped, and comes back. Each kill is told when it happens,
and the last lines count what died. If something is wrong, the folder with tables and logs is kept.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.clients import Admin, Consumer, Producer
from barnabas.pipelines.tables.opening import FORMATS
from tests.support.brokers import Barnabas
from tests.support.processes import Process, free_port
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_processes import SparkProcesses, kill, kill_session
from tests.support.tables import content
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PARTITIONS: Final = 4
SOURCE: Final = "numbers"
TARGET: Final = "copied"
PER_SECOND: Final = 500
BROKER_EVERY: Final = 2
"""After so many kills the broker's turn comes."""
START_SECONDS: Final = 300
CATCH_UP_SECONDS: Final = 600
KINDS: Final = ("driver", "JVM", "driver and JVM", "worker", "all workers")
LOCAL: Final = "local[2,3]"


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
                    producer.send(SOURCE, value, partition=self.sent % PARTITIONS)
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

    def __init__(self, folder: Path, chance: random.Random, master: str = LOCAL) -> None:
        self._folder = folder
        self._chance = chance
        self._master = master
        self._port = free_port()
        self._broker = Barnabas(folder, port=self._port)
        self._driver: Process | None = None
        self.kills = 0
        self.died: collections.Counter[str] = collections.Counter()
        """How many processes of each sort were killed."""
        with Admin(self._broker.bootstrap) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, PARTITIONS)
        self._numbers = Numbers(self._broker.bootstrap)
        self._numbers.start()

    def close(self) -> None:
        """End what is left."""
        self._end_driver()
        self._broker.kill()

    def run(self, kinds: Iterable[str], seconds: float = math.inf) -> int:
        """Kill this and that, no longer than so many seconds, and check what was written; how many numbers it was."""
        over = time.monotonic() + seconds
        for kind in kinds:
            if time.monotonic() > over:
                break
            self._see_it_work()
            time.sleep(self._chance.uniform(0.2, 2.5))
            self._kill(kind)
            if self.kills % BROKER_EVERY == 0:
                self._restart_broker()
        total = self._numbers.end()
        self._see_it_catch_up()
        self._end_driver()
        self._check(total)
        return total

    def half_written(self) -> int:
        """How many times a batch of the topic was found to be written in part, by a task that was killed later."""
        return (self._folder / "driver.log").read_text(errors="replace").count("was written in part before")

    # The driver

    def _running(self) -> Process:
        """A driver that was at work a moment ago."""
        if self._driver is None or not self._driver.alive:
            self._end_driver()
            words = [sys.executable, "-m", "tests.pipelines.killed_driver"]
            words += [self._broker.bootstrap, SOURCE, TARGET, str(self._folder), self._master]
            self._driver = Process("driver", words, self._folder / "driver.log")
            self._driver.wait_for_output("^running$", START_SECONDS)
        return self._driver

    def _see_it_work(self) -> None:
        """Wait until every target has got something; a driver that did not survive the last kill is replaced."""
        before = self._commits()
        wait_until(
            lambda: self._running() and all(now > before[target] for target, now in self._commits().items()),
            "every target to grow",
            START_SECONDS,
            every=0.1,
        )

    def _see_it_catch_up(self) -> None:
        """Wait until the groups of all targets have no lag."""
        groups = [*(f"load.{kind}" for kind in FORMATS), "copy.topic"]
        with Admin(self._broker.bootstrap) as admin:
            ends = admin.end_offsets(admin.partitions(SOURCE))
            wait_until(
                lambda: self._running() and all(admin.group_offsets(group) == ends for group in groups),
                "every target to have everything",
                CATCH_UP_SECONDS,
                every=0.5,
            )

    def _commits(self) -> dict[str, int]:
        """The last commit of each target, by their files: opening tables would disturb what is tested."""
        logs = {
            "parquet": self._place("parquet").glob("_barnabas/log/*.json"),
            "delta": self._place("delta").glob("_delta_log/*.json"),
            "iceberg": self._place("iceberg").glob("metadata/*.metadata.json"),
            "topic": self._folder.glob("checkpoints/topic/commits/[0-9]*"),
        }
        return {target: max(map(_number, files), default=-1) for target, files in logs.items()}

    def _place(self, kind: str) -> Path:
        return self._folder / f"numbers_{kind}"

    def _end_driver(self) -> None:
        """Kill the driver and all that is left of it on this machine; executors end when they miss it."""
        if self._driver is not None:
            kill_session(self._driver.pid)
            self._driver.kill()
            self._driver = None

    # What dies

    def _kill(self, kind: str) -> None:
        assert self._driver is not None
        found = SparkProcesses.of(self._driver.pid, self._folder)
        driver = {"driver": [found.driver]}
        match kind:
            case "driver":
                victims = driver
            case "JVM":
                victims = {"JVM": found.jvms}
            case "driver and JVM":
                victims = driver | {"JVM": found.jvms}
            case "executor":
                victims = {"executor": self._one_of(found.executors)}
            case "worker":
                victims = {"Python worker": self._one_of(found.workers)}
            case _:
                victims = {"Python worker": found.workers}
        for sort, pids in victims.items() if any(victims.values()) else driver.items():
            for pid in pids:
                kill(pid)
            self.died[sort] += len(pids)
            self._tell(f"kill -9 {sort} {' '.join(map(str, pids))}")
        self.kills += 1

    def _one_of(self, pids: list[int]) -> list[int]:
        return [self._chance.choice(pids)] if pids else []

    def _restart_broker(self) -> None:
        if self._chance.random() < 0.5:
            self._broker.kill()
            self.died["broker"] += 1
            self._tell("kill -9 broker")
        else:
            self._broker.stop()
            self.died["broker, by SIGTERM"] += 1
            self._tell("SIGTERM broker")
        self._broker = Barnabas(self._folder, port=self._port)

    def _tell(self, what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self._numbers.sent} sent; {what}", flush=True)

    # What is left

    def _check(self, total: int) -> None:
        found = {kind: content(kind, self._place(kind)).column("n").to_pylist() for kind in FORMATS}
        servers = self._broker.bootstrap
        with Consumer(servers, TARGET, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            found["topic"] = [json.loads(record.value or b"")["n"] for record in consumer.until_end()]
        for target, numbers in found.items():
            counted = collections.Counter(numbers)
            twice = [number for number, count in counted.items() if count > 1]
            missing = [number for number in range(total) if number not in counted]
            assert not twice and not missing and len(counted) == total, (
                f"{target}: {len(twice)} numbers more than once ({twice[:5]}), {len(missing)} missing ({missing[:5]})"
            )


def _number(file: Path) -> int:
    """The number that a commit's file begins with."""
    digits = re.match(r"\d+", file.name)
    assert digits is not None, file
    return int(digits[0])


def shuffled(chance: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    """All kinds in random order, again and again, so that none is left out."""
    return chain.from_iterable(chance.sample(kinds, len(kinds)) for _ in count())


def main() -> None:
    """Run a trial by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=math.inf, help="kill no longer than this")
    parser.add_argument("--standalone", action="store_true", help="on a Spark cluster of two workers")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    chance = random.Random(given.seed)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    print(f"seed {given.seed}, {folder}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        master, kinds = LOCAL, list(KINDS)
        if given.standalone:
            master = stack.enter_context(SparkCluster(folder)).url
            kinds.append("executor")
        trial = Trial(folder, chance, master)
        stack.callback(trial.close)
        total = trial.run(islice(shuffled(chance, kinds), given.kills), given.minutes * 60)
    died = ", ".join(f"{sort} {count}" for sort, count in sorted(trial.died.items()))
    print(f"{time.monotonic() - began:.0f} s, {trial.kills} kills; processes that died: {died}")
    print(f"batches of the topic that were found half written: {trial.half_written()}")
    print(f"{total} numbers, each once in each table and in the topic")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
