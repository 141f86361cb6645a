"""Numbered records into tables of each format and into a topic, with kill -9 at random; then each is there once.

    python -m tests.pipelines.kills --kills 30 [--minutes 20] [--standalone] [--seed 7]

Loads fill a table of each format; some records fit none and have to be dead letters, now and then one brings a new
field, and files are merged and old versions forgotten meanwhile. A pipeline copies the records to a topic, another one
has a table that is kept by offsets and one of windows that is kept by batches, both of which have no place for some
rows (`killed_driver`).

What dies, in random order: the driver, its JVM, both at once, one Python worker, all Python workers, on a standalone
cluster an executor. A driver that died is started again, with nothing but the tables and, for the topic and the
windows, Spark's checkpoints. After every other kill the broker is killed or stopped, and comes back. Each kill is told
when it happens, and the last lines count what died. If something is wrong, the folder with tables and logs is kept.
"""

from __future__ import annotations

import argparse
import collections
import math
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.clients import Admin, Consumer
from barnabas.pipelines.tables.formats import FORMATS
from tests.pipelines.killed_content import check_load, check_numbers, check_once, check_windows, final_windows, windows
from tests.pipelines.killed_driver import GROUPS
from tests.pipelines.killed_numbers import Numbers, number_in
from tests.pipelines.killed_upkeep import Upkeep, compact
from tests.support.brokers import Barnabas
from tests.support.processes import Process, free_port
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_processes import SparkProcesses, kill, kill_session
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

PARTITIONS: Final = 2
SOURCE: Final = "numbers"
TARGET: Final = "copied"
BROKER_EVERY: Final = 2
"""After so many kills the broker's turn comes."""
START_SECONDS: Final = 600
STALL_SECONDS: Final = 600
"""How long a target may get nothing while a driver runs."""
KINDS: Final = ("driver", "JVM", "driver and JVM", "worker", "all workers")
LOCAL: Final = "local[2,3]"


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
        self._numbers = Numbers(self._broker.bootstrap, SOURCE, PARTITIONS)
        self._numbers.start()
        self.upkeep = Upkeep({kind: self._place(kind) for kind in ("delta", "iceberg")}, chance)
        self.upkeep.start()

    def close(self) -> None:
        """End what is left."""
        self.upkeep.stop()
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
        self._see_it_merge()
        total = self._numbers.end()
        self._see_it_catch_up(total)
        self.upkeep.end()
        self._end_driver()
        self._check(total)
        return total

    def half_written(self) -> int:
        """How many times a batch of the topic was found to be written in part, by a task that was killed later."""
        log = (self._folder / "driver.log").read_text(errors="replace")
        return len(re.findall("WARNING query=copy.topic failed.* was written in part before", log))

    # The driver

    def _running(self) -> Process:
        """A driver that was at work a moment ago."""
        if self._driver is None or not self._driver.alive:
            self._end_driver()
            compact("parquet", self._place("parquet"))  # nobody else may hold it then
            words = [sys.executable, "-m", "tests.pipelines.killed_driver"]
            words += [self._broker.bootstrap, SOURCE, TARGET, str(self._folder), self._master]
            self._driver = Process("driver", words, self._folder / "driver.log")
            self._driver.wait_for_output("^running$", START_SECONDS)
        return self._driver

    def _see_it_work(self) -> None:
        """Wait until every target has got something."""
        with Admin(self._broker.bootstrap) as admin:
            before = _shown(admin)
            self._wait_for_targets(admin, lambda group, shown: shown > before[group])

    def _see_it_merge(self) -> None:
        """Wait until files of each table were merged beside its load, which comes first for a while if it is slow."""

        def has_merged() -> bool:
            if self.upkeep.has_merged:
                return True
            self._running()  # without loads there is nothing to merge
            return False

        wait_until(has_merged, "files to merge", STALL_SECONDS, every=0.5)

    def _see_it_catch_up(self, total: int) -> None:
        """Wait until the groups of all targets have no lag, and the windows are there that are closed by then."""
        with Admin(self._broker.bootstrap) as admin:
            ends = admin.end_offsets(admin.partitions(SOURCE))
            self._wait_for_targets(admin, lambda group, _: admin.group_offsets(group) == ends)
        expected = final_windows(total)
        wait_until(
            lambda: self._running() and len(windows("delta", self._folder / "windows")) >= len(expected),
            f"{len(expected)} windows",
            STALL_SECONDS,
            every=0.5,
        )

    def _wait_for_targets(self, admin: Admin, is_there: Callable[[str, int], bool]) -> None:
        """Wait for every target; a driver that did not survive the last kill is replaced.

        On a busy machine Spark takes minutes to start and to get anything done, so what is bounded is the time in which
        a target gets nothing from a driver that runs.
        """
        waiting = dict.fromkeys(GROUPS, -1)
        changed: dict[str, float] = {}
        driver = None
        while waiting:
            if driver is not (driver := self._running()):
                changed = dict.fromkeys(GROUPS, time.monotonic())
            for group, shown in _shown(admin).items():
                if group not in waiting:
                    continue
                if is_there(group, shown):
                    del waiting[group]
                elif shown != waiting[group]:
                    waiting[group], changed[group] = shown, time.monotonic()
                idle = time.monotonic() - changed[group]
                assert group not in waiting or idle < STALL_SECONDS, f"{group} is at {shown} for {idle:.0f} s"
            time.sleep(0.2)

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
        for kind in FORMATS:
            check_load(kind, self._place(kind), total)
        check_numbers("parquet", self._folder / "each", total)
        check_windows("delta", self._folder / "windows", total)
        servers = self._broker.bootstrap
        with Consumer(servers, TARGET, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            copied = [number_in(record.value) for record in consumer.until_end()]
        check_once("the topic", copied, range(total))


def _shown(admin: Admin) -> dict[str, int]:
    """How many records each target has, by its group: opening tables would disturb what is tested."""
    return {group: sum(admin.group_offsets(group).values()) for group in GROUPS}


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
    print(f"files merged beside the loads: {dict(trial.upkeep.merged)}")
    print(f"versions forgotten beside the loads: {dict(trial.upkeep.forgotten)}")
    print(f"{total} numbers, each once in each table or its dead letters, in the topic and in the windows")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
