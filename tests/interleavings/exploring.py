"""Exploring one pair: a fresh copy of the log for every order, and the rules held against what came of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

from tests.interleavings.stepped import SteppedFiles, Steps
from tests.interleavings.turns import Deadlock, Run, Turns, explore
from tests.interleavings.world import Template, World, Written, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interleavings.pairs import Pair


class BrokenRule(AssertionError):
    """An order of two operations that must not be."""


class Explored(NamedTuple):
    """How many orders of a pair there were."""

    orders: int
    longest: int
    """Steps of the longest order."""


class Explorer:
    """Runs pairs; all are made below one directory."""

    def __init__(self, root: Path, steps: Steps) -> None:
        self._root = root
        self._steps = steps
        self._written: Written = write(root / "template")
        self._template = Template(root / "template")
        self._judged: set[bytes] = set()
        self.orders = 0
        """How many orders of the last pair were run, also if one broke a rule."""

    def explore(self, pair: Pair, *, switches: int, most: int | None = None) -> Explored:
        """Run a pair in all orders; raises BrokenRule with the first that breaks a rule."""
        self.orders = longest = 0
        for run in explore(lambda turns: self._play(pair, turns), switches=switches, most=most):
            self.orders += 1
            longest = max(longest, len(run.steps))
        return Explored(self.orders, longest)

    def _play(self, pair: Pair, turns: Turns) -> Run:
        home = self._root / "run"
        world = World(home, self._template, self._written, SteppedFiles(self._steps), self._judged)
        pair.before(world)
        self._steps.turns = turns
        try:
            run = turns.play(lambda: pair.first(world), lambda: pair.second(world))
            self._steps.turns = None
            for result in run.results:
                if isinstance(result, Exception):
                    raise result
            world.judge()
        except Deadlock:
            raise
        except Exception as error:
            raise BrokenRule(f"{pair.name}: {error!r}\n{turns.run}") from error
        finally:
            self._steps.turns = None
            shutil.rmtree(home)
        return run
