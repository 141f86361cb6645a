"""Timers of a coordinator: many, moved again and again, of which few ever fire.

Every heartbeat moves its member's timer. So a timer is an entry in a dictionary, and a queue holds at most one entry
per key. When the time of the queue's entry comes, it goes back into the queue if the timer was moved meanwhile. Moving
a timer that is queued already costs one assignment.

Work that is done in parts sets its timer for now, again and again: each part has a turn of the event loop of its own.

Times are given on any clock, with the time that it is there, and kept on a monotonic one: no timer fires early or late
because a clock was set. When the process was suspended, all its timers are due, and requests that arrived meanwhile are
still unread. Then the timers wait a moment, so that no member is removed whose heartbeat has arrived.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.model.clock import Clock


LATE_MS: Final = 500
"""When the timers fire this much too late, the process was suspended."""
GRACE_SECONDS: Final = 0.1
"""How long they wait then for unread requests."""
AT_ONCE: Final = 100
"""Timers that fire in one turn of the event loop: some milliseconds of work."""


class Timers:
    """The timers of one coordinator; `fire` is called on the event loop with the key of each timer that is due."""

    def __init__(self, clock: Clock, fire: Callable[[Hashable], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._due: dict[Hashable, int] = {}
        self._queue: list[tuple[int, int, Hashable]] = []
        self._queued: dict[Hashable, int] = {}
        """The time of each key's entry in the queue."""
        self._count = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0
        self._has_waited = False
        """Whether the timers have waited for unread requests after the process was suspended."""

    def set(self, key: Hashable, at_ms: int, now_ms: int) -> None:
        """Fire at this time, instead of at any other that was set for the key; `now_ms` is on the clock of `at_ms`."""
        at_ms = self._now() + at_ms - now_ms
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
        """Fire what is due, some of it if that is much; the rest, and what firing makes due, in another turn."""
        now, newest, fired = self._now(), self._count, 0
        try:
            while self._queue and self._queue[0][0] <= now and self._queue[0][1] <= newest and fired < AT_ONCE:
                looked_at, _, key = heappop(self._queue)
                if self._queued.get(key) == looked_at:
                    del self._queued[key]
                due = self._due.get(key)
                if due is None:
                    continue
                if due <= now:
                    del self._due[key]
                    fired += 1
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
        """Set the alarm of the event loop to the time of the queue's first entry."""
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
        if self._now() - self._alarm_at > LATE_MS and not self._has_waited:
            self._has_waited = True
            self._alarm = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._ring)
            return
        self._has_waited = False
        self.run_due()
