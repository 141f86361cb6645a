"""`python -m tests.interleavings`: run every pair in every order, and print how many there were."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from tests.interleavings.exploring import BrokenRule, Explorer
from tests.interleavings.pairs import PAIRS
from tests.interleavings.stepped import in_steps
from tests.interleavings.turns import Deadlock
from tests.support.memory import parent_in_memory
from tests.support.noted_runs import not_told, note, noted

NOTES: Final = "interleavings"
MOST_WORDS: Final = 1000
"""Characters that are noted of an order that broke a rule."""


def main() -> int:
    """Explore what the command line asks for; 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.interleavings", description=__doc__)
    parser.add_argument("pair", nargs="*", help="names of pairs, such as 'read x retention'; all if none is given")
    parser.add_argument("--switches", type=int, default=1, help="switches that no thread is forced to")
    parser.add_argument("--most", type=int, help="orders of each pair at most")
    parser.add_argument(
        "--note",
        action="store_true",
        help="add each pair to docs/reliability.d; begin with those that were never run whole",
    )
    chosen = parser.parse_args()
    logging.getLogger("barnabas").setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-interleavings-", dir=parent_in_memory()) as directory,
        in_steps(pytest.MonkeyPatch()) as steps,
    ):
        explorer = Explorer(Path(directory), steps)
        total, broken = 0, 0
        names = list(chosen.pair or PAIRS)
        if chosen.note:
            rows = [row for row in noted(NOTES) if row["is_whole"] and row["switches"] == chosen.switches]
            names = not_told(names, [(row["pair"], row["commit"]) for row in rows])
        for name in names:
            begun = time.process_time()
            figures = {"pair": name, "switches": chosen.switches}
            try:
                explored = explorer.explore(PAIRS[name], switches=chosen.switches, most=chosen.most)
            except (BrokenRule, Deadlock) as error:
                broken += 1
                print(f"{name:<32} {error}", flush=True)
                if chosen.note:
                    words = str(error)[:MOST_WORDS]
                    note(NOTES, **figures, orders=explorer.orders, is_whole=False, broken=words, **used(begun))
                continue
            total += explored.orders
            print(
                f"{name:<32} {explored.orders:>8,} orders of up to {explored.longest} steps, "
                f"{time.process_time() - begun:.0f} s of processor time",
                flush=True,
            )
            if chosen.note:
                is_whole = explored.orders != chosen.most
                note(NOTES, **figures, orders=explored.orders, is_whole=is_whole, **used(begun))
    print(f"{total:,} orders, {broken or 'no'} rule broken")
    return 1 if broken else 0


def used(begun: float) -> dict[str, int]:
    """The processor time since then, as it is noted."""
    return {"processor_seconds": round(time.process_time() - begun)}


if __name__ == "__main__":
    sys.exit(main())
