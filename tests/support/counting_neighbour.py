"""A neighbour of a benchmark that counts, and does nothing else."""

from __future__ import annotations

from bench.clients.neighbours import Tally

if __name__ == "__main__":
    tally = Tally.of_this_process()
    print("ready", flush=True)
    while True:
        tally.add()
