"""Let every call of every story fail once, in every way, with every ending."""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.failing_calls import broker_stories, log_stories
from tests.failing_calls.all_stories import tellers
from tests.failing_calls.bugs import BUGS, find
from tests.failing_calls.files import Fault
from tests.failing_calls.story import tell_all
from tests.support.memory import parent_in_memory
from tests.support.noted_runs import not_told, note, noted

if TYPE_CHECKING:
    from tests.failing_calls.story import BrokenRule, Teller

NOTES: Final = "failing-calls"
MISSES: Final = 50
"""Tellings of whole brokers in a row without the call that was to fail, after which there are no more such calls."""
STORIES: Final = (*log_stories.STORIES, *broker_stories.STORIES)


def main() -> int:
    """Tell what the command line asks for; 1 if a rule was broken."""
    chosen = _options()
    logging.disable(logging.CRITICAL)
    if chosen.trial:
        return try_tool()
    total, broken = 0, 0
    with tempfile.TemporaryDirectory(dir=parent_in_memory(), prefix="barnabas-calls-") as directory:
        known = tellers(Path(directory))
        pairs = [
            (name, fault)
            for name in chosen.story or STORIES
            for fault in ([Fault[chosen.fault]] if chosen.fault else Fault)
        ]
        if chosen.note:
            rows = [row for row in noted(NOTES) if row["step"] == 1 and row.get("luck", 0) == chosen.luck]
            pairs = not_told(pairs, [((row["story"], Fault[row["fault"]]), row["commit"]) for row in rows])
        for name, fault in pairs:
            telling = tell(known[name], fault, chosen, MISSES if name in broker_stories.STORIES else 1)
            print(f"{name:<28} {fault.name:<14} {telling}", flush=True)
            if chosen.note:
                figures = telling._asdict() | ({"luck": chosen.luck} if chosen.luck else {})
                note(NOTES, story=name, fault=fault.name, step=chosen.step, **figures)
            total += telling.tellings
            broken += len(telling.broken)
    print(f"{total:,} tellings, {broken} broke a rule")
    return 1 if broken else 0


class Telling(NamedTuple):
    """A story with a fault in all calls that were asked for."""

    tellings: int
    broken: list[str]
    processor_seconds: int

    def __str__(self) -> str:
        return f"{self.tellings:>6,} tellings, {self.processor_seconds} s of processor time"


def tell(teller: Teller, fault: Fault, chosen: argparse.Namespace, misses: int) -> Telling:
    """Tell a story; what breaks a rule is printed, and it goes on."""
    broken: list[str] = []

    def tell_of(error: BrokenRule) -> None:
        broken.append(str(error))
        print(f"  {error}", flush=True)

    begun = processor_seconds()
    count = tell_all(
        teller,
        fault,
        step=chosen.step,
        first=chosen.first,
        most=chosen.most,
        luck=chosen.luck,
        misses=misses,
        on_broken=tell_of,
    )
    return Telling(count, broken, round(processor_seconds() - begun))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.failing_calls", description=__doc__)
    parser.add_argument("story", nargs="*", help=f"of {', '.join(STORIES)}; all if none is given")
    parser.add_argument("--fault", choices=[fault.name for fault in Fault], help="only this one")
    parser.add_argument("--first", type=int, default=0, help="begin with the call of this number")
    parser.add_argument("--most", type=int, help="tellings of a story with a fault at most")
    parser.add_argument("--step", type=int, default=1, help="try every so manyth call, with one ending each")
    parser.add_argument("--luck", type=int, default=0, help="other worlds of the stories of whole brokers")
    parser.add_argument("--trial", action="store_true", help="put earlier defects back, and see how soon each is found")
    parser.add_argument(
        "--note",
        action="store_true",
        help="add what was told to docs/reliability.d; begin with what was never told whole",
    )
    chosen = parser.parse_args()
    if chosen.note and (chosen.first or chosen.most):
        parser.error("only stories that are told whole can be noted")
    return chosen


def try_tool() -> int:
    """Put each defect back; 1 if one is not found."""
    missed = 0
    with tempfile.TemporaryDirectory(prefix="barnabas-calls-") as directory:
        known = tellers(Path(directory))
        for bug in BUGS:
            with pytest.MonkeyPatch.context() as patch:
                bug.plant(patch)
                begun = processor_seconds()
                found = find(known[bug.story], bug)
            missed += found is None
            seconds = processor_seconds() - begun
            how = f"found in telling {found.tellings}: {found.error}" if found else "not found"
            print(f"{bug.name}, {bug.fault.name}, {seconds:.1f} s: {how}", flush=True)
    return 1 if missed else 0


def processor_seconds() -> float:
    """What this process has used, with the processes of brokers."""
    return sum(os.times()[:4])
