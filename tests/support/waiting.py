"""Waiting on a condition, with a deadline and a reason: what the tests use instead of sleeping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], what: str, seconds: float = 60, every: float = 0.02) -> T:
    """Ask `condition` until its answer is true, and return that answer; after the deadline the test fails."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain: {what}")
        time.sleep(every)
