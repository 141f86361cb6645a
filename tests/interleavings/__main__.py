"""`python -m tests.interleavings`: run every pair in every order, and print how many there were."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.interleavings.exploring import Explorer
from tests.interleavings.pairs import PAIRS
from tests.interleavings.stepped import in_steps
from tests.support.memory import parent_in_memory
from tests.support.noted_runs import note


def main() -> int:
    """Explore what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.interleavings", description=__doc__)
    parser.add_argument("pair", nargs="*", help="names of pairs, such as 'read x retention'; all if none is given")
    parser.add_argument("--switches", type=int, default=1, help="switches that no thread is forced to")
    parser.add_argument("--most", type=int, help="orders of each pair at most")
    parser.add_argument("--note", action="store_true", help="add each pair to docs/reliability.d")
    chosen = parser.parse_args()
    logging.getLogger("barnabas").setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-interleavings-", dir=parent_in_memory()) as directory,
        in_steps(pytest.MonkeyPatch()) as steps,
    ):
        explorer = Explorer(Path(directory), steps)
        total = 0
        for name in chosen.pair or PAIRS:
            begun = time.process_time()
            explored = explorer.explore(PAIRS[name], switches=chosen.switches, most=chosen.most)
            total += explored.orders
            print(
                f"{name:<32} {explored.orders:>8,} orders of up to {explored.longest} steps, "
                f"{time.process_time() - begun:.0f} s of processor time",
                flush=True,
            )
            if chosen.note:
                is_whole = explored.orders != chosen.most
                note("interleavings", pair=name, switches=chosen.switches, orders=explored.orders, is_whole=is_whole)
    print(f"{total:,} orders, no rule broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
