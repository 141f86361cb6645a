"""How long a client is asked to wait before its next request."""

from __future__ import annotations

from typing import Final

from barnabas.protocol.wire.durations import NO_TIME

NO_THROTTLE: Final = NO_TIME
"""Nobody is slowed down: there are no quotas yet."""
