"""Pairs of operations on one log, in some of the orders with one switch that no thread is forced to.

`make interleave` runs all of them, and with more switches.

The tool itself is on trial, too: defects that were found in this code before are put back, and it finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interleavings.bugs import BUGS, Bug
from tests.interleavings.exploring import BrokenRule, Explorer
from tests.interleavings.pairs import PAIRS
from tests.interleavings.stepped import Steps, in_steps
from tests.interleavings.turns import Deadlock, SteppedLock, Turns, explore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interleavings.turns import Run


@pytest.fixture
def explorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    with in_steps(monkeypatch) as steps:
        yield Explorer(tmp_path, steps)


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_in_many_orders(explorer: Explorer, name: str) -> None:
    assert explorer.explore(PAIRS[name], switches=1, most=50).orders > 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.name}, {bug.pair}")
def test_a_defect_is_found(explorer: Explorer, monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    bug.plant(monkeypatch)
    with pytest.raises((BrokenRule, Deadlock)):
        explorer.explore(PAIRS[bug.pair], switches=bug.switches)


def test_every_order_is_run_once() -> None:
    seen: list[str] = []

    def play(turns: Turns) -> Run:
        told: list[str] = []

        def tell(who: str) -> None:
            for _ in range(2):
                turns.point("tells")
                told.append(who)

        run = turns.play(lambda: tell("a"), lambda: tell("b"))
        seen.append("".join(told))
        return run

    orders = list(explore(play, switches=9))
    assert set(seen) == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}
    assert len({tuple(run.steps) for run in orders}) == len(orders)
    assert len(list(explore(play, switches=0))) == 2


def test_two_that_wait_for_each_other_are_noticed() -> None:
    steps = Steps()
    one, other = SteppedLock(steps.now), SteppedLock(steps.now)

    def take(first: SteppedLock, second: SteppedLock) -> None:
        with first, second:
            pass

    def play(turns: Turns) -> Run:
        steps.turns = turns
        return turns.play(lambda: take(one, other), lambda: take(other, one))

    with pytest.raises(Deadlock, match="takes a lock"):
        list(explore(play, switches=1))
