"""Times as messages have them: whole milliseconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kio.static.primitive import i32Timedelta

NO_TIME: Final = i32Timedelta.parse(timedelta(0))
"""No throttling in most responses; in a ConsumerGroupHeartbeat of an error, no interval either."""
MILLISECOND: Final = timedelta(milliseconds=1)
