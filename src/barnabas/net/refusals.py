"""Connections that are refused, in the log.

Whoever is refused comes again, often at once and without end. So the same is said of an address once in LOG_SECONDS,
and the next line says how many it stands for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

LOG_SECONDS: Final = 10.0
REMEMBERED: Final = 1000
"""Refusals whose repetitions are left out; those of more addresses at once are logged again."""


class Refusal(NamedTuple):
    """Who was refused, where and why."""

    ip: str
    listener: str
    reason: str


class RefusalLog:
    """The refusals of one server. `now` gives seconds that never go back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._logged: dict[Refusal, float] = {}
        """When each was logged last, the longest ago first."""
        self._left_out: dict[Refusal, int] = {}
        """How many were not logged since."""

    def log(self, level: int, refusal: Refusal) -> None:
        """Log that a connection was refused, unless the same was logged a moment ago."""
        now = self._now()
        last = self._logged.get(refusal)
        if last is not None and now - last < LOG_SECONDS:
            self._left_out[refusal] = self._left_out.get(refusal, 0) + 1
            return
        left_out = self._left_out.pop(refusal, 0)
        self._logged.pop(refusal, None)
        self._logged[refusal] = now
        if len(self._logged) > REMEMBERED:
            oldest = next(iter(self._logged))
            del self._logged[oldest]
            self._left_out.pop(oldest, None)
        more = f" ({left_out} more like this were not logged)" if left_out else ""
        logger.log(level, "Refused a connection of %s on listener %s: %s%s", *refusal, more)
