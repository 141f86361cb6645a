"""The simulation on trial: each planted bug, how many worlds it takes to find it, and how long that takes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.simulation.whole.plan import plan_of
from tests.simulation.whole.planted import BUGS_OF_QUEUES
from tests.simulation.whole.runner import processor_seconds, run_plan, run_plans

if TYPE_CHECKING:
    from collections.abc import Iterable


def run_trial(bugs: Iterable[str], most_seconds: float) -> int:
    """Run worlds from seed 0 on with each bug until one breaks a rule; 1 if a bug was not found."""
    missed = 0
    print("| Bug | Worlds | Processor time | Rule |\n|---|---|---|---|", flush=True)
    for bug in bugs:
        used, queues = processor_seconds(), bug in BUGS_OF_QUEUES
        worlds, rule = 0, ""
        for result in run_plans((plan_of(seed, queues=queues) for seed in itertools.count()), bug=bug):
            worlds += 1
            seconds = processor_seconds() - used
            if (
                result.violations and not run_plan(plan_of(result.seed, queues=queues)).violations
            ):  # without the bug it breaks none
                rule = result.violations[0]
            if rule or seconds > most_seconds:
                break
        missed += not rule
        print(f"| {bug} | {worlds} | {seconds:.0f} s | {rule or 'not found'} |", flush=True)
    return 1 if missed else 0
