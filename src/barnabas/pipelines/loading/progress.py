"""How far a load has come, and how long it will take. Pure; the clock is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a load."""

    records: int
    """Loaded so far by this run: rows, and dead letters."""
    size: int
    """Their keys and values, in bytes."""
    done: int
    """Offsets that this run has passed."""
    lag: int
    """Offsets that are left."""
    seconds: float
    """Since the first round began."""

    @property
    def rate(self) -> float:
        """Records each second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None before anything is done."""
        return self.lag * self.seconds / self.done if self.done else None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did before it ended."""

    records: int
    dead: int
    """How many of them went to the dead-letter table."""
    size: int
    commits: int
    seconds: float
