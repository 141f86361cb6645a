"""Queues in simulation: worlds with workers break no rule, the same seed gives the same world, planted bugs are found.

`python -m tests.simulation.whole --queues --seeds 1000` runs more worlds; see `tests/simulation/whole/queues`.
"""

from __future__ import annotations

import pytest

from tests.simulation.test_whole import digests, simulate

WORLDS = 20


def test_no_world_with_a_queue_breaks_a_rule() -> None:
    code, output = simulate("--queues", "--seeds", str(WORLDS))
    assert code == 0, output
    assert int(output.splitlines()[-1].split()[0]) == WORLDS, output


def test_a_seed_gives_the_same_world_with_a_queue() -> None:
    _, first = simulate("--queues", "--start", "3", "--seeds", "1", "--digests", hash_seed=1)
    _, again = simulate("--queues", "--start", "3", "--seeds", "1", "--digests", "--story", hash_seed=2)
    assert len(digests(first)) == 1
    assert digests(first) == digests(again), first


@pytest.mark.parametrize("bug", ["queue-early-answers", "queue-locks-kept", "queue-counts-lost"])
def test_a_planted_bug_of_queues_is_found(bug: str) -> None:
    code, output = simulate("--queues", "--seeds", "30", "--bug", bug, "--stop")
    assert code == 1, output
