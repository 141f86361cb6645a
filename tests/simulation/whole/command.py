"""Run whole brokers in simulation, and tell what broke and how fast it went."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Final

from tests.simulation.whole.plan import plan_of
from tests.simulation.whole.planted import BUGS
from tests.simulation.whole.runner import processor_seconds, run_plan, run_plans, warm_up
from tests.simulation.whole.shrinking import MOST_TRIES, shrink, size
from tests.simulation.whole.trial import run_trial
from tests.support.noted_runs import next_seed, note

if TYPE_CHECKING:
    from tests.simulation.whole.plan import Plan
    from tests.simulation.whole.world import Result

NOTES: Final = "simulation"
QUEUE_NOTES: Final = "queues-simulation"
NOTED_AT_ONCE: Final = 200
TRIAL_SECONDS: Final = 20 * 60.0
"""Of processor time, in which a planted bug has to be found."""


def main() -> int:
    """Run the worlds that the command line asks for; 1 if one broke a rule."""
    options = _options()
    began, used = time.monotonic(), processor_seconds()
    warm_up()
    if options.trial:
        return run_trial([options.bug] if options.bug else list(BUGS), options.processor_seconds or TRIAL_SECONDS)
    notes = QUEUE_NOTES if options.queues else NOTES
    first = next_seed(notes) if options.note and options.start is None else options.start or 0
    seeds = range(first, first + options.seeds)
    if options.backwards:
        seeds = seeds[::-1]
    progress = Progress(options, began, used)
    plans = (plan_of(seed, queues=options.queues) for seed in seeds)
    for result in run_plans(plans, options.jobs, tell=options.story, bug=options.bug):
        progress.add(result)
        plan = plan_of(result.seed, queues=options.queues)
        _tell(result, plan, always=options.story or options.digests)
        if result.violations:
            if options.shrink:
                _tell_smallest(plan, options.bug, options.tries)
            if options.stop:
                break
        if options.processor_seconds is not None and processor_seconds() - used > options.processor_seconds:
            break
    progress.note()
    print(progress)
    return 1 if progress.broken else 0


class Progress:
    """How many worlds there were, how fast that went and what became of them."""

    def __init__(self, options: argparse.Namespace, began: float, used: float) -> None:
        self._every = options.progress
        self._notes = Notes(QUEUE_NOTES if options.queues else NOTES) if options.note else None
        self._began, self._used, self._told = began, used, began
        self._count = self._records = 0
        self.broken: list[int] = []

    def add(self, result: Result) -> None:
        """A world has ended; say now and then how far it is."""
        self._count += 1
        self._records += result.acknowledged
        if self._notes is not None:
            self._notes.add(result)
        if result.violations:
            self.broken.append(result.seed)
        if time.monotonic() - self._told > self._every:
            self._told = time.monotonic()
            print(self, flush=True)

    def note(self) -> None:
        """Everything has ended."""
        if self._notes is not None:
            self._notes.write()

    def __str__(self) -> str:
        count, seconds, used = self._count, time.monotonic() - self._began, processor_seconds() - self._used
        return (
            f"{count} worlds in {seconds:.1f} s: {count * 60 / seconds:.0f} a minute, {count * 60 / used:.0f} a minute "
            f"of processor time; {self._records} records were acknowledged; {len(self.broken)} worlds broke a rule: "
            f"{self.broken[:50]}"
        )


class Notes:
    """Adds worlds to docs/reliability.d, so many at a time: a run that is broken off loses few."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._results: list[Result] = []
        self._used = processor_seconds()

    def add(self, result: Result) -> None:
        """A world has ended; those that come together have seeds without a gap."""
        self._results.append(result)
        if len(self._results) == NOTED_AT_ONCE:
            self.write()

    def write(self) -> None:
        """Note what is not noted yet."""
        if not self._results:
            return
        seeds = [result.seed for result in self._results]
        note(
            self._tool,
            seed=min(seeds),
            last=max(seeds),
            worlds=len(seeds),
            records=sum(result.acknowledged for result in self._results),
            broken=[result.seed for result in self._results if result.violations],
            processor_seconds=round(processor_seconds() - self._used),
        )
        self._results, self._used = [], processor_seconds()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.whole", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many worlds at most")
    parser.add_argument("--start", type=int, help="the first seed (default: 0, or with --note the next)")
    parser.add_argument("--note", action="store_true", help="add the worlds to docs/reliability.d")
    parser.add_argument(
        "--processor-seconds",
        type=float,
        help=f"begin no world after so much work (with --trial: for each bug, {TRIAL_SECONDS:.0f} if not given)",
    )
    parser.add_argument("--queues", action="store_true", help="worlds with workers of a queue")
    parser.add_argument("--jobs", type=int, default=1, help="how many worlds run at the same time")
    parser.add_argument("--progress", type=float, default=60.0, help="seconds after which to say how far it is")
    parser.add_argument("--backwards", action="store_true", help="run the last seed first")
    parser.add_argument("--trial", action="store_true", help="plant each bug and tell how soon it is found")
    parser.add_argument("--story", action="store_true", help="tell the story of each world, whatever became of it")
    parser.add_argument("--digests", action="store_true", help="tell the digest of each world's events")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest plan that breaks a rule")
    parser.add_argument("--tries", type=int, default=MOST_TRIES, help="how many worlds to run for that")
    parser.add_argument("--stop", action="store_true", help="stop at the first world that breaks a rule")
    parser.add_argument("--bug", choices=BUGS, help="plant this bug in every broker")
    return parser.parse_args()


def _tell(result: Result, plan: Plan, *, always: bool) -> None:
    if not (always or result.violations):
        return
    for line in result.story:
        print(line)
    print(f"seed {result.seed}: {result.digest}, {result.events} events, {result.acknowledged} records", flush=True)
    if result.violations:
        print(f"  {plan}")
        print(*(f"  {violation}" for violation in result.violations[:10]), sep="\n", flush=True)


def _tell_smallest(plan: Plan, bug: str | None, tries: int) -> None:
    before = size(plan)
    plan = shrink(plan, bug, tries)
    result = run_plan(plan, tell=True, bug=bug)
    print(*result.story, sep="\n")
    after = size(plan)
    print(
        f"  the smallest plan found has {after[0]} faults and clients instead of {before[0]}, and lasts "
        f"{after[1]:.1f} s instead of {before[1]:.1f} s: {plan}"
    )
    print(*(f"  {violation}" for violation in result.violations[:10]), sep="\n", flush=True)
