"""Time, as something handed in: code that asks a Clock can be tested without waiting.

Two scales, never mixed: wall time (what records and files carry; it may jump) and monotonic time (what timeouts use).
The real clock lives with the broker, since this layer does no I/O.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now_ms(self) -> int:
        """Wall time, in milliseconds since 1970 (UTC)."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""
        ...


class ManualClock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        """Wall time, as set."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass on both scales."""
        self._now_ms += ms
        self._monotonic += ms / 1000
