"""The real clock."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_IMPORTED: Final = time.monotonic()


class SystemClock:
    """The machine's time."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall time in milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


def seconds_since_start() -> float:
    """How long this process has been running, from its exec where the system tells (Linux), else from this import."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return time.monotonic() - _IMPORTED
