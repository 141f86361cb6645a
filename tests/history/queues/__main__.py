"""`make queues`: a queue under faults, with workers that are real processes, seed after seed until one breaks a rule.

A cluster serves some seeds and is then made anew, over SQLite and over ZooKeeper by turns. Each seed's faults are drawn
from all that can happen there, and named before it begins; `--seed` repeats a plan. Every run is noted in
docs/reliability.d, and the next goes on after it. What a failed run left stays in its folder, which is printed.
`--planted` gives the brokers a mistake, which has to be found.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.history.faults import Plan, family
from tests.history.queues.events import Fate
from tests.history.queues.run import queues_on_hosts, queues_on_one_host, queues_with_a_mistake, run
from tests.support.noted_runs import next_seed, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.history.faults import Stage
    from tests.history.queues.run import QueueReport

NOTES: Final = "queues"
STORES: Final = {"sqlite": queues_on_one_host, "zookeeper": queues_on_hosts}
SEEDS_OF_A_CLUSTER: Final = 5


def main(words: Sequence[str] | None = None) -> int:
    """Run; the exit code is 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.history.queues", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=6, help="faults of each seed (default: %(default)s)")
    parser.add_argument("--store", choices=sorted(STORES), help="only over this store (default: by turns)")
    parser.add_argument("--seed", type=int, help="begin with this seed, and note nothing")
    parser.add_argument("--planted", action="store_true", help="give brokers a mistake, and note nothing")
    asked = parser.parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that brokers and networks are taken down
    first = asked.seed if asked.seed is not None else next_seed(NOTES)
    runs, stores = Runs(asked), cycle([asked.store] if asked.store else sorted(STORES))
    for begin in range(first, first + asked.seeds, SEEDS_OF_A_CLUSTER):
        seeds = range(begin, min(begin + SEEDS_OF_A_CLUSTER, first + asked.seeds))
        runs.on_a_cluster(next(stores), seeds)
        if runs.failed:
            break
    print(runs, flush=True)
    return 1 if runs.failed else 0


class Runs:
    """The runs so far."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._is_noted = asked.seed is None and not asked.planted
        self._count = self._messages = 0
        self._faults = Counter[str]()
        self.failed: list[int] = []

    def on_a_cluster(self, store: str, seeds: Sequence[int]) -> None:
        """Run some seeds, until one breaks a rule."""
        folder = Path(tempfile.mkdtemp(prefix=f"queues-{store}-{seeds[0]}-"))
        print(f"{store}, in {folder}", flush=True)
        try:
            with (queues_with_a_mistake if self._asked.planted else STORES[store])(folder) as stage:
                for seed in seeds:
                    self._run(stage, folder, store, seed)
                    if self.failed:
                        return
        except Exception:
            traceback.print_exc()
            self.failed.append(seeds[0])
            return
        shutil.rmtree(folder)

    def _run(self, stage: Stage, folder: Path, store: str, seed: int) -> None:
        chance = random.Random(f"faults {seed}")
        possible = ["kill leader"] if self._asked.planted else list(stage.kinds)
        kinds = [chance.choice(possible) for _ in range(self._asked.faults)]
        print(f"seed {seed}, {store}: {', '.join(kinds)}", flush=True)
        began = time.monotonic()
        report = run(stage, folder, store, Plan(seed, kinds=kinds, is_patient=True))
        print(report, flush=True)
        self._count += 1
        self._messages += len(report.history.messages)
        self._faults.update(map(family, report.faults))
        if report.violations:
            self.failed.append(seed)
        if self._is_noted:
            _note(store, seed, time.monotonic() - began, report)

    def __str__(self) -> str:
        faults = ", ".join(f"{number} {name}" for name, number in self._faults.most_common())
        return f"{self._count} runs, {self._messages} messages; {faults}; {self.failed or 'none'} broke a rule"


def _note(store: str, seed: int, seconds: float, report: QueueReport) -> None:
    history = report.history
    told = Counter(said.fate for said in history.acknowledgements)
    note(
        NOTES,
        store=store,
        seed=seed,
        seconds=round(seconds),
        faults=Counter(family(kind) for kind in report.faults),
        messages=len(history.messages),
        deliveries=len(history.deliveries),
        stored=told[Fate.STORED],
        unknown=told[Fate.UNKNOWN],
        dead_letters=len(history.dead_letters or ()),
        drained_in=round(report.drained_in, 1),
        violations=len(report.violations),
    )


if __name__ == "__main__":
    sys.exit(main())
