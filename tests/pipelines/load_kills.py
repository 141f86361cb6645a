"""`barnabas load` with kill -9 at random moments; it is started again, and each record is in its table once.

    python -m tests.pipelines.load_kills --kills 12 [--seed 7]

Numbered records, some of which fit no table, are loaded by the command into a table of each format, a few hundred with
each commit. It is killed alone or with all that it started, while Spark starts or in the middle of its commits, and the
next load may meet a JVM that has not noticed yet. In the end every load is run to its end. If something is wrong, the
folder with tables and logs is kept.
"""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from barnabas.clients import Admin, Producer
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.testing.broker import Broker
from tests.pipelines.killed_content import check_load
from tests.pipelines.killed_numbers import value_of
from tests.support.processes import Process
from tests.support.spark_processes import kill, kill_session
from tests.support.waiting import wait_until

PARTITIONS: Final = 3
TOTAL: Final = 30_000
PER_COMMIT: Final = 300
START_SECONDS: Final = 600
END_SECONDS: Final = 1800


class Loads:
    """One run."""

    def __init__(self, folder: Path, servers: str, chance: random.Random) -> None:
        self._folder = folder
        self._servers = servers
        self._chance = chance
        self.died: collections.Counter[str] = collections.Counter()
        """How many loads were killed, by when and how."""

    def kill_one(self, kind: str) -> None:
        """Load into a table of this format, and kill that at a random moment."""
        with self._start(kind) as load:
            in_commits = self._chance.random() < 0.7
            if in_commits:
                before = self._loaded(kind)
                wait_until(lambda: not load.alive or self._loaded(kind) > before, "a commit", START_SECONDS, every=0.2)
                time.sleep(self._chance.uniform(0, 3))
            else:
                time.sleep(self._chance.uniform(0, 15))
            when = "over" if not load.alive else "in commits" if in_commits else "at the start"
            if self._chance.random() < 0.5:
                kill(load.pid)
                how = "alone"
            else:
                kill_session(load.pid)
                how = "with its JVM"
            self.died[f"{when}, {how}"] += 1
            print(f"{time.strftime('%H:%M:%S')} {kind} at {self._loaded(kind)}: kill -9 {when}, {how}", flush=True)

    def finish(self, kind: str) -> None:
        """Load what is left, and check all that was loaded."""
        with self._start(kind) as load:
            assert load.wait(END_SECONDS) == 0, load.output()
        check_load(kind, self._place(kind), TOTAL)

    def _start(self, kind: str) -> Process:
        words = ["load", "numbers", "--to", str(self._place(kind)), "--format", kind, "--decode", "json"]
        words += ["--bootstrap-server", self._servers, "--group", kind, "--max-offsets-per-commit", str(PER_COMMIT)]
        return Process(kind, [sys.executable, "-m", "barnabas.cli.main", *words], self._folder / f"{kind}.log")

    def _place(self, kind: str) -> Path:
        return self._folder / f"numbers_{kind}"

    def _loaded(self, kind: str) -> int:
        """How many records the group shows as loaded: opening the table would disturb what is tested."""
        with Admin(self._servers) as admin:
            return sum(admin.group_offsets(kind).values())


def main() -> None:
    """Run a trial by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="load-kills-"))
    print(f"seed {given.seed}, {folder}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Broker({"num.partitions": PARTITIONS}) as broker:
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(TOTAL):
                producer.send("numbers", value_of(number), partition=number % PARTITIONS)
        loads = Loads(folder, broker.bootstrap_servers, random.Random(given.seed))
        for number in range(given.kills):
            loads.kill_one(FORMATS[number % len(FORMATS)])
        for kind in FORMATS:
            loads.finish(kind)
    for what, count in sorted(loads.died.items()):
        print(f"killed {what}: {count}")
    print(f"{TOTAL} numbers, each once in each table or its dead letters")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
