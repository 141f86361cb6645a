"""Times as messages have them: whole milliseconds."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import Final

from kio.static.primitive import i32Timedelta

NO_TIME: Final = i32Timedelta.parse(timedelta(0))
"""No throttling in most responses; in a ConsumerGroupHeartbeat of an error, no interval either."""
MILLISECOND: Final = timedelta(milliseconds=1)
NOT_GIVEN: Final = i32Timedelta.parse(timedelta(milliseconds=-1))
"""A timeout that a member of a group leaves out."""


@lru_cache(maxsize=256)
def of_milliseconds(number: int) -> i32Timedelta:
    """A time that takes 32 bits on the wire."""
    return timedelta(milliseconds=number)  # type: ignore[return-value]  # a name for timedelta
