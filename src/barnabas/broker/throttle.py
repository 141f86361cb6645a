"""How long a client is asked to wait before its next request."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kio.static.primitive import i32Timedelta

NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))
"""Nobody is slowed down: there are no quotas yet."""
