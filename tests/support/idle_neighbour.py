"""A neighbour of a benchmark that says how it is scheduled."""

from __future__ import annotations

import os

if __name__ == "__main__":
    print("ready", flush=True)
    print(os.sched_getscheduler(0), flush=True)
