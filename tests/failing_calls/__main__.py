"""`python -m tests.failing_calls`; see `command`."""

from __future__ import annotations

import sys

from tests.simulation.whole.sameness import same_every_time


def run() -> int:
    """Become a process that runs the same every time, and only then import the rest."""
    same_every_time("tests.failing_calls")
    from tests.failing_calls.command import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
