"""A bound on bytes per second, kept by waiting."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_SHORTEST_WAIT: Final = 0.05
"""Seconds; what is owed below that is carried on."""


class Throttle:
    """Lets through so many bytes per second; more make the caller wait."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._paid_until = clock()

    def spend(self, size: int) -> None:
        """Count `size` bytes, and wait while they are too many for the time that has passed."""
        now = self._clock()
        self._paid_until = max(self._paid_until, now) + size / self._rate
        if self._paid_until - now >= _SHORTEST_WAIT:
            self._wait(self._paid_until - now)
