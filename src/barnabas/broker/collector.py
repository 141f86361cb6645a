"""Tuning of Python's garbage collector and thread switching, so that neither holds up the event loop.

A full collection looks at every object there is, and nothing else runs meanwhile: with a hundred thousand groups and
twenty thousand topics that is most of a second. So objects that have outlived one are frozen: reference counts still
free them, as they free nearly everything, and no collection looks at them again. Then the next one looks at what came
after it, and it comes before that is much.

What is frozen and becomes garbage in a cycle is never freed. So what lives long has no cycles when it ends: connections
and what they wait for (`net/reply`), groups, topics, logs (`storage/log/part`).

A large load (`loading`) is frozen without a collection, which would take too long. With it is frozen what is garbage at
that moment, so only large loads are worth it.

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

THRESHOLDS: Final = (10_000, 5, 1)
"""New objects, and collections of the younger generation, after which a generation is looked at.

The middle one is looked at after 60,000 objects, which takes some 20 ms if all of them stay, as when many topics are
made; the oldest after 150,000, which takes twice as long.
"""
MANY_OBJECTS: Final = 100_000
"""A load that makes fewer is left to the collector, which looks at them in milliseconds."""
SWITCH_SECONDS: Final = 0.0005
OLDEST: Final = 2
"""The generation that a full collection looks at."""


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
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)
    if not _State.loads:
        gc.enable()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    """Called by the collector when a collection begins and when it ends."""
    if phase == "stop" and info["generation"] == OLDEST:
        gc.freeze()


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
