"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's time."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall time in milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()
