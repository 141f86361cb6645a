"""`python -m tests.failing_calls`: let every call of every story fail once, in every way, with every ending."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.failing_calls import broker_stories, log_stories
from tests.failing_calls.all_stories import tellers
from tests.failing_calls.bugs import BUGS, find
from tests.failing_calls.files import Fault
from tests.failing_calls.story import tell_all

if TYPE_CHECKING:
    from tests.failing_calls.story import BrokenRule


STORIES: Final = (*log_stories.STORIES, *broker_stories.STORIES)


def main() -> int:
    """Tell what the command line asks for; 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.failing_calls", description=__doc__)
    parser.add_argument("story", nargs="*", help=f"of {', '.join(STORIES)}; all if none is given")
    parser.add_argument("--fault", choices=[fault.name for fault in Fault], help="only this one")
    parser.add_argument("--first", type=int, default=0, help="begin with the call of this number")
    parser.add_argument("--most", type=int, help="tellings of a story with a fault at most")
    parser.add_argument("--step", type=int, default=1, help="try every so manyth call, with one ending each")
    parser.add_argument("--trial", action="store_true", help="put earlier defects back, and see how soon each is found")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if chosen.trial:
        return try_tool()
    total, broken = 0, 0

    def tell_of(error: BrokenRule) -> None:
        nonlocal broken
        broken += 1
        print(f"  {error}", flush=True)

    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="barnabas-calls-") as directory:
        known = tellers(Path(directory))
        for name in chosen.story or STORIES:
            for fault in [Fault[chosen.fault]] if chosen.fault else Fault:
                begun = processor_seconds()
                count = tell_all(
                    known[name], fault, step=chosen.step, first=chosen.first, most=chosen.most, on_broken=tell_of
                )
                total += count
                seconds = processor_seconds() - begun
                print(
                    f"{name:<28} {fault.name:<14} {count:>6,} tellings, {seconds:.0f} s of processor time", flush=True
                )
    print(f"{total:,} tellings, {broken} broke a rule")
    return 1 if broken else 0


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


if __name__ == "__main__":
    sys.exit(main())
