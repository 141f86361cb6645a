"""How the event loop does: how late it runs what is due, and how much of the time it works.

A timer is due ten times a second. How late it comes is how long something else held the loop, and how long a request
that came at that moment had to wait. The processor time of the loop's thread is read beside it: what is left of each
second is the idle share that Kafka's dashboards know of network and request threads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect
from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics.requests import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD: Final = 0.1
"""Seconds between two looks."""
KEPT: Final = 600
"""Looks that are remembered: a minute."""


class EventLoopWatch:
    """Watches the event loop that it is started on."""

    def __init__(self, on_window: Callable[[], None], window_seconds: float) -> None:
        self._on_window = on_window
        self._window_seconds = window_seconds
        self.lags: list[int] = [0] * (len(BOUNDS) + 1)
        """How late the timer came, in buckets."""
        self.lag_seconds = 0.0
        """All of it together."""
        self._recent: deque[float] = deque(maxlen=KEPT)
        self.idle = 1.0
        """The share of the last seconds in which the loop had nothing to do."""
        self._timer: asyncio.TimerHandle | None = None
        self._clock: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = self._next_window = self._measured_at = self._measured_cpu = 0.0

    def start(self) -> None:
        """Begin."""
        self._loop = asyncio.get_running_loop()
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        now = time.monotonic()
        self._measured_at, self._measured_cpu = now, self.cpu_seconds()
        self._next_window = now + self._window_seconds
        self._arm(now)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def cpu_seconds(self) -> float:
        """Processor time of the event loop's thread."""
        return time.process_time() if self._clock is None else time.clock_gettime(self._clock)

    def worst(self, seconds: float) -> float:
        """The longest that the loop was held within the last `seconds`, in seconds."""
        looks = max(int(seconds / PERIOD), 1)
        overdue = time.monotonic() - self._due if self._loop is not None else 0.0
        return max((*list(self._recent)[-looks:], overdue, 0.0))

    def _arm(self, now: float) -> None:
        assert self._loop is not None
        self._due = now + PERIOD
        self._timer = self._loop.call_later(PERIOD, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        lag = max(now - self._due, 0.0)
        self.lags[bisect(BOUNDS, lag)] += 1
        self.lag_seconds += lag
        self._recent.append(lag)
        if now - self._measured_at >= 1.0:
            cpu = self.cpu_seconds()
            self.idle = min(max(1.0 - (cpu - self._measured_cpu) / (now - self._measured_at), 0.0), 1.0)
            self._measured_at, self._measured_cpu = now, cpu
        if now >= self._next_window:
            self._next_window = now + self._window_seconds
            self._on_window()
        self._arm(now)
