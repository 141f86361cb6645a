"""`python -m tests.fuzz KIND --count N --seed S`: run one kind of fuzzing, and print its figures."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from barnabas.broker import collector
from tests.fuzz.bugs import BUGS, plant, try_tool
from tests.support.memory import parent_in_memory
from tests.support.noted_runs import next_seed, note

MOST_WORDS = 300
"""Characters of a text that are noted."""
KINDS = {
    "frames": 100_000,
    "sockets": 20_000,
    "batches": 3_000,
    "files": 300,
    "tree": 1_000,
    "queues": 2_000,
}


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=KINDS, nargs="?", default="frames")
    parser.add_argument("--count", type=int, help="frames, batches or damaged files")
    parser.add_argument("--seed", type=int, help="the first seed (default: 1, or with --note the next)")
    parser.add_argument("--runs", type=int, default=1, help="go on with the next seeds")
    parser.add_argument("--note", action="store_true", help="add each run to docs/reliability.d")
    parser.add_argument("--bug", choices=BUGS, help="plant this defect first")
    parser.add_argument("--trial", nargs="*", choices=BUGS, help="plant defects, all if none is named, and find them")
    chosen = parser.parse_args()
    if chosen.trial is not None:
        return try_tool(chosen.trial or list(BUGS))
    if chosen.bug is not None:
        plant(chosen.bug)
    logging.getLogger().addHandler(logging.NullHandler())  # nothing is printed, and the rules still see every warning
    collector.tune_process()  # as `barnabas start` does: else its pauses are taken for a request's
    count = KINDS[chosen.kind] if chosen.count is None else chosen.count
    first = next_seed("fuzz", kind=chosen.kind) if chosen.note else 1
    broken = 0
    for seed in range(chosen.seed or first, (chosen.seed or first) + chosen.runs):
        with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-", dir=parent_in_memory()) as directory:
            try:
                figures = import_module(f"tests.fuzz.{chosen.kind}").run(Path(directory), count, seed)
            except Exception as error:
                if not chosen.note:
                    raise
                broken += 1
                traceback.print_exc()
                note("fuzz", kind=chosen.kind, seed=seed, asked=count, outcomes={}, broken=str(error)[:MOST_WORDS])
                continue
        print(figures, flush=True)
        if chosen.note:
            note("fuzz", kind=chosen.kind, seed=seed, asked=count, **_figures_of(figures))
    return 1 if broken else 0


def _figures_of(figures: Any) -> dict[str, Any]:
    """What is worth keeping: the name of the longest step may have thousands of bytes in it."""
    kept = {name: value for name, value in vars(figures).items() if name != "seed"}
    return {name: _shortened(value) for name, value in kept.items()}


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MOST_WORDS]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
