"""Connections that are refused, and those that are closed for what came on them, in the log.

Whoever is refused comes again, often at once and without end. So the same is said of an address once in LOG_SECONDS,
and the next line says how many it stands for. What differs in a number or a quoted text is the same: whoever sends
garbage would have a line for each size that it can be taken for.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import OtherProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.net.connection import Connection

logger = logging.getLogger(__name__)

LOG_SECONDS: Final = 10.0
REMEMBERED: Final = 1000
"""Refusals whose repetitions are left out; those of more addresses at once are logged again."""
_VARYING: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|0x[0-9a-f]+|-?\d+")


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
        more = self._admit(refusal)
        if more is not None:
            logger.log(level, "Refused a connection of %s on listener %s: %s%s", *refusal, more)

    def log_closed(self, connection: Connection, reason: object) -> None:
        """Log likewise that a connection is closed. Clients of other protocols are set up wrongly, and no alarm."""
        ip, port = connection.address[:2]
        more = self._admit(Refusal(ip, connection.listener, str(reason)))
        if more is not None:
            level = logging.INFO if isinstance(reason, OtherProtocol) else logging.WARNING
            logger.log(level, "Closed the connection of %s:%d on %s: %s%s", ip, port, connection.listener, reason, more)

    def _admit(self, refusal: Refusal) -> str | None:
        """What is added to the line of a refusal that is to be logged; None for one that is left out."""
        refusal = refusal._replace(reason=_VARYING.sub("#", refusal.reason))
        now = self._now()
        last = self._logged.get(refusal)
        if last is not None and now - last < LOG_SECONDS:
            self._left_out[refusal] = self._left_out.get(refusal, 0) + 1
            return None
        left_out = self._left_out.pop(refusal, 0)
        self._logged.pop(refusal, None)
        self._logged[refusal] = now
        if len(self._logged) > REMEMBERED:
            oldest = next(iter(self._logged))
            del self._logged[oldest]
            self._left_out.pop(oldest, None)
        return f" ({left_out} more like this were not logged)" if left_out else ""
