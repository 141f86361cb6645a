"""`make soak`: run after run with one seed after the other, for hours, until one fails or the time is up.

A step of an event loop that took too long does not end it, and makes it fail in the end.

Each run's seed is printed before it begins; `--seed` repeats a plan. Every run is noted in docs/reliability.d, and the
next soak goes on after it. What a failed run left (logs of brokers, their data) stays in its folder, which is printed.
"""

from __future__ import annotations

import argparse
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

from tests.history.checker import Fate
from tests.history.faults import Plan, family
from tests.history.run import over_secured_zookeeper, over_sqlite, over_zookeeper
from tests.history.tampering import TOO_LONG
from tests.support.noted_runs import next_seed, note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.history.run import Report

CHECKOUT: Final = Path(__file__).parents[2]
STORES: Final[dict[str, Callable[[Path, Plan], Report]]] = {
    "sqlite": over_sqlite,
    "zookeeper": over_zookeeper,
    "secured": over_secured_zookeeper,
}
OUTAGE: Final = 60.0
"""Seconds that ZooKeeper is lost, once in every round of faults."""

SHARES: Final = {
    "sqlite": {"kill -9": 8, "SIGSTOP": 4, "disk": 4, "move": 4, "other": 2},
    "zookeeper": {"kill -9": 8, "SIGSTOP": 4, "partition": 8, "disk": 4, "move": 4, "other": 2},
    "secured": {"kill -9": 8, "SIGSTOP": 6, "other": 3},
}
"""Faults of each family in a round; there is no network to cut between brokers that share a file.

In a secured cluster certificates and passwords are replaced all the time, and ZooKeeper is for its brokers alone.
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run; the exit code is 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.history.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=240, help="how long to go on (default: %(default)s)")
    parser.add_argument("--each", type=float, default=300, help="seconds of faults in each run (default: %(default)s)")
    parser.add_argument("--store", choices=sorted(STORES), help="only over this store (default: by turns)")
    parser.add_argument("--seed", type=int, help="one run with this seed")
    asked = parser.parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that brokers and networks are taken down
    deadline = time.monotonic() + asked.minutes * 60
    runs, faults, records, violations, late = 0, 0, 0, 0, 0
    for store in cycle([asked.store] if asked.store else sorted(STORES)):
        seed = next_seed("soak") if asked.seed is None else asked.seed
        began = time.monotonic()
        report = _once(store, seed, asked.each)
        _note(store, seed, time.monotonic() - began, report)
        runs += 1
        if report is not None:
            faults += len(report.faults)
            records += sum(send.fate is Fate.ACKNOWLEDGED for send in report.history.sends)
            violations += len(report.violations)
            late += report.longest_step.seconds > TOO_LONG
        if report is None or not report.passed or asked.seed is not None or time.monotonic() > deadline:
            break
    print(
        f"{runs} runs: {faults} faults, {records} records acknowledged, {violations} violations; {late} runs with "
        f"a step of an event loop above {TOO_LONG} s",
        flush=True,
    )
    return 0 if report is not None and report.passed and not late else 1


def _note(store: str, seed: int, seconds: float, report: Report | None) -> None:
    """Add a run to what all runs found, also one that could not be brought to its end."""
    if report is None:
        note("soak", store=store, seed=seed, seconds=round(seconds), faults={}, acknowledged=0, failed=True)
        return
    if report.longest_step.seconds > TOO_LONG:
        print(f"  that is more than {TOO_LONG} s", flush=True)
    note(
        "soak",
        store=store,
        seed=seed,
        seconds=round(seconds),
        faults=Counter(map(family, report.faults)) - Counter(map(family, report.missed)),
        acknowledged=sum(send.fate is Fate.ACKNOWLEDGED for send in report.history.sends),
        violations=len(report.violations),
        longest_step=report.longest_step.seconds,
        longest_name=report.longest_step.what.replace(f"{CHECKOUT}/", ""),
        failed=not report.passed,
    )


def _once(store: str, seed: int, seconds: float) -> Report | None:
    """One run, or None if it could not be brought to its end."""
    folder = Path(tempfile.mkdtemp(prefix=f"history-{store}-{seed}-"))
    print(f"seed {seed}, {store}, in {folder}", flush=True)
    try:
        report = STORES[store](folder, Plan(seed, seconds, shares=SHARES[store], is_patient=True, outage=OUTAGE))
    except Exception:
        traceback.print_exc()
        return None
    print(report, flush=True)
    if report.passed:
        shutil.rmtree(folder)
    return report


if __name__ == "__main__":
    sys.exit(main())
