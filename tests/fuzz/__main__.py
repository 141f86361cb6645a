"""`python -m tests.fuzz KIND --count N --seed S`: run one kind of fuzzing, and print its figures."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from importlib import import_module
from pathlib import Path

KINDS = {
    "frames": 100_000,
    "sockets": 20_000,
    "batches": 3_000,
    "files": 300,
    "tree": 1_000,
}


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=KINDS, nargs="?", default="frames")
    parser.add_argument("--count", type=int, help="frames, batches or damaged files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="go on with the next seeds")
    chosen = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())  # nothing is printed, and the rules still see every warning
    count = KINDS[chosen.kind] if chosen.count is None else chosen.count
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-") as directory:
            print(import_module(f"tests.fuzz.{chosen.kind}").run(Path(directory), count, seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
