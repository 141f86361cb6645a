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
from tests.support.noted_runs import commit, note, noted

NOTES: Final = "interleavings"


def main() -> int:
    """Explore what the command line asks for; 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.interleavings", description=__doc__)
    parser.add_argument("pair", nargs="*", help="names of pairs, such as 'read x retention'; all if none is given")
    parser.add_argument("--switches", type=int, default=1, help="switches that no thread is forced to")
    parser.add_argument("--most", type=int, help="orders of each pair at most")
    parser.add_argument(
        "--note", action="store_true", help="add each pair to docs/reliability.d, and leave out what is there"
    )
    chosen = parser.parse_args()
    logging.getLogger("barnabas").setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-interleavings-", dir=parent_in_memory()) as directory,
        in_steps(pytest.MonkeyPatch()) as steps,
    ):
        explorer = Explorer(Path(directory), steps)
        total, broken = 0, 0
        for name in chosen.pair or PAIRS:
            if chosen.note and was_explored(name, chosen.switches):
                continue
            begun = time.process_time()
            try:
                explored = explorer.explore(PAIRS[name], switches=chosen.switches, most=chosen.most)
            except (BrokenRule, Deadlock) as error:
                broken += 1
                print(f"{name:<32} {error}", flush=True)
                continue
            total += explored.orders
            print(
                f"{name:<32} {explored.orders:>8,} orders of up to {explored.longest} steps, "
                f"{time.process_time() - begun:.0f} s of processor time",
                flush=True,
            )
            if chosen.note:
                is_whole = explored.orders != chosen.most
                note(NOTES, pair=name, switches=chosen.switches, orders=explored.orders, is_whole=is_whole)
    print(f"{total:,} orders, {broken or 'no'} rule broken")
    return 1 if broken else 0


def was_explored(pair: str, switches: int) -> bool:
    """Whether all orders of this pair were run, in this state of the code."""
    return any(
        (row["pair"], row["switches"], row["is_whole"], row["commit"]) == (pair, switches, True, commit())
        for row in noted(NOTES)
    )


if __name__ == "__main__":
    sys.exit(main())
