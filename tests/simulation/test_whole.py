"""Whole brokers in simulation: worlds break no rule, a seed gives the same world again, planted bugs are found.

`python -m tests.simulation.whole --seeds 1000` runs more worlds, `--trial` plants every bug; see
`tests/simulation/whole`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

WORLDS = 100
PROCESSOR_SECONDS = 45
"""No world begins after so much work: a slow machine runs fewer. `make simulate` runs more, with other seeds."""
FEWEST = 30


def simulate(*arguments: str, hash_seed: int = 0) -> tuple[int, str]:
    """Run the simulation; its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.whole", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
    )
    return done.returncode, done.stdout


def digests(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith("seed "))


def test_no_world_breaks_a_rule() -> None:
    code, output = simulate("--seeds", str(WORLDS), "--processor-seconds", str(PROCESSOR_SECONDS))
    assert code == 0, output
    assert int(output.splitlines()[-1].split()[0]) >= FEWEST, output


def test_a_seed_gives_the_same_world_whatever_ran_before_it_and_in_every_process() -> None:
    """Other hashes, other addresses, another order, and a story that is told or not."""
    _, first = simulate("--start", "3", "--seeds", "4", "--digests", hash_seed=1)
    _, again = simulate("--start", "3", "--seeds", "4", "--story", "--backwards", hash_seed=2)
    assert len(digests(first)) == 4
    assert digests(first) == digests(again), first


@pytest.mark.parametrize(("bug", "start"), [("early-acks", 0), ("lease", 0), ("clamped", 31), ("divided-batch", 22)])
def test_a_planted_bug_is_found(bug: str, start: int) -> None:
    """The search begins with a seed that found it once, and goes on if that does not any more."""
    code, output = simulate("--start", str(start), "--seeds", "100", "--bug", bug, "--stop")
    assert code == 1, output


def test_a_world_that_breaks_a_rule_is_made_smaller() -> None:
    """And still breaks one."""
    code, output = simulate("--start", "0", "--seeds", "100", "--bug", "own-end", "--stop", "--shrink", "--tries", "12")
    found = re.search(r"has (\d+) faults and clients instead of (\d+), .*\n  (?=\S)", output)
    assert code == 1, output
    assert found is not None, output
    assert int(found[1]) < int(found[2])
