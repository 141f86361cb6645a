"""A process that runs the same every time: no chance in the hashes of text.

Brokers keep what has an order in dicts and lists, and a test holds worlds of processes with different hashes against
each other. Should a set have slipped in somewhere, its order is the same in every run at least.
"""

from __future__ import annotations

import os
import sys


def same_every_time(module: str) -> None:
    """Start this program again with a seed for hashes, unless it has one."""
    if "PYTHONHASHSEED" not in os.environ:
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], environment)
