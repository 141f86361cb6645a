"""How many records have been read, which all consumers of a measurement look at."""

from __future__ import annotations


class Tally:
    """That of one consumer."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def total(self) -> int:
        """How many were read until now."""
        return self._count

    def add(self, count: int) -> int:
        """More were read; how many that makes."""
        self._count += count
        return self._count
