"""How often the logs of a directory were synced, and how long that took."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

KEPT: Final = 1000
"""Syncs whose times are remembered."""


class FlushTimes:
    """Counts syncs, from whatever thread; a lock is nothing beside a sync."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.seconds = 0.0
        self._recent: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        """A sync took so long."""
        with self._lock:
            self.count += 1
            self.seconds += seconds
            self._recent.append(seconds)

    def recent(self) -> list[float]:
        """How long the last ones took."""
        with self._lock:
            return list(self._recent)
