"""Timers of a coordinator: many of them, set again and again, of which few ever fire.

Every heartbeat moves its member's timer. So a timer is an entry in a dictionary, and a queue holds at most one entry
per key: it is looked at when its time comes, and goes back into the queue if the timer was moved meanwhile. Setting a
timer that is already queued costs one assignment.

Times are given as wall time and kept on the clock that never goes back: a clock that jumps makes no timer fire early or
late. A process that stood still for a while finds all its timers due, and what was sent to it meanwhile still unread:
then the timers wait a moment, so that nobody is taken for dead whose heartbeat lies there.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.model.clock import Clock


LATE_MS: Final = 500
GRACE_SECONDS: Final = 0.1


class Timers:
    """The timers of one coordinator; `fire` is called on the event loop with the key of each that is due."""

    def __init__(self, clock: Clock, fire: Callable[[Hashable], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._due: dict[Hashable, int] = {}
        self._queue: list[tuple[int, int, Hashable]] = []
        self._queued: dict[Hashable, int] = {}
        """When each key is next looked at."""
        self._count = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0
        self._excused = False
        """Whether the timers have waited for what was sent while the process stood still."""

    def set(self, key: Hashable, at_ms: int) -> None:
        """Fire at this time, and at no other that was set for the key."""
        at_ms = self._now() + at_ms - self._clock.now_ms()
        self._due[key] = at_ms
        if self._queued.get(key, at_ms + 1) > at_ms:
            self._enqueue(key, at_ms)
            self._wind()

    def cancel(self, key: Hashable) -> None:
        """Do not fire."""
        self._due.pop(key, None)

    def clear(self) -> None:
        """Fire nothing that was set."""
        self._due.clear()
        self._queue.clear()
        self._queued.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def run_due(self) -> None:
        """Fire everything whose time has come."""
        now = self._now()
        try:
            while self._queue and self._queue[0][0] <= now:
                looked_at, _, key = heappop(self._queue)
                if self._queued.get(key) == looked_at:
                    del self._queued[key]
                due = self._due.get(key)
                if due is None:
                    continue
                if due <= now:
                    del self._due[key]
                    self._fire(key)
                elif self._queued.get(key, due + 1) > due:
                    self._enqueue(key, due)
        finally:
            self._wind()

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _enqueue(self, key: Hashable, at_ms: int) -> None:
        self._queued[key] = at_ms
        self._count += 1
        heappush(self._queue, (at_ms, self._count, key))

    def _wind(self) -> None:
        """See to it that somebody looks when the first entry's time comes."""
        if not self._queue:
            return
        first = self._queue[0][0]
        if self._alarm is not None:
            if self._alarm_at <= first:
                return
            self._alarm.cancel()
        self._alarm_at = first
        seconds = max(0, first - self._now()) / 1000
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._now() - self._alarm_at > LATE_MS and not self._excused:
            self._excused = True
            self._alarm = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._ring)
            return
        self._excused = False
        self.run_due()
