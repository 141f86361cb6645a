"""Tuning of Python's garbage collector and thread switching, so that neither holds up the event loop.

A full collection looks at every object there is, and nothing else runs meanwhile: with a hundred thousand groups that
is a third of a second. So objects that were loaded and stay (`loading`) are frozen: reference counts still free them,
as they free nearly everything, and no collection looks at them again. Collections are rare, because cycles are. With
them is frozen what is garbage at that moment and waits for a collection, for good; so only large loads are worth it.

A thread that works on Python objects gives way only when it is asked for as long as the switch interval, and the event
loop asks after each of its calls to the system. Python's own interval, 5 ms, makes a turn with a hundred such calls
half a second long.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

THRESHOLDS: Final = (20_000, 20, 20)
"""New objects, and collections of the younger generation, after which a generation is looked at."""
MANY_OBJECTS: Final = 100_000
"""A load that makes fewer is left to the collector, which looks at them in milliseconds."""
SWITCH_SECONDS: Final = 0.0005


class _State:
    """Whether this process's collector is ours to steer, and how many loads are under way."""

    is_ours = False
    loads = 0


def tune_process() -> None:
    """Steer the collector and the threads of this process, which is a broker's alone; everything loaded stays."""
    _State.is_ours = True
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()
    if not _State.loads:
        gc.enable()


@contextmanager
def loading() -> Iterator[None]:
    """While something is made that stays, there are no collections; if it is much, it is not looked at afterwards."""
    _State.loads += 1
    if _State.is_ours:
        gc.disable()
    try:
        yield
    finally:
        _State.loads -= 1
        if _State.is_ours and not _State.loads:
            if gc.get_count()[0] > MANY_OBJECTS:
                gc.freeze()
            gc.enable()
