"""Waiting on a condition, with a deadline and a reason: what the tests use instead of sleeping.

A condition may look for what is not there yet (`image.topics["t"]`): while it raises LookupError, it does not hold.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], what: str, seconds: float = 60, every: float = 0.02) -> T:
    """Ask `condition` until its answer is true, and return that answer; after the deadline the test fails."""
    deadline = time.monotonic() + seconds
    while True:
        answer, missing = _ask(condition)
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain: {what}") from missing
        time.sleep(every)


def fastest(measure: Callable[[], float], enough: float, tries: int = 3) -> float:
    """The shortest of a few times, of which none is taken once one is short enough: the machine may be busy."""
    shortest = measure()
    while shortest >= enough and (tries := tries - 1):
        shortest = min(shortest, measure())
    return shortest


async def until(condition: Callable[[], object], seconds: float = 30, every: float = 0.005) -> None:
    """Wait for a condition on the event loop; after the deadline the test fails."""
    deadline = time.monotonic() + seconds
    while True:
        answer, missing = _ask(condition)
        if answer:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain") from missing
        await asyncio.sleep(every)


async def pass_time(seconds: float) -> None:
    """Set the clock of this test's event loop forward, and let what is due by then happen.

    So a time limit can be long, which a busy machine keeps, and is over at once all the same.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]  # of this loop alone
    await asyncio.sleep(0.001)  # its end comes after all that was due before


def _ask(condition: Callable[[], T | None]) -> tuple[T | None, LookupError | None]:
    """The answer, or why there is none yet."""
    try:
        return condition(), None
    except LookupError as error:
        return None, error
