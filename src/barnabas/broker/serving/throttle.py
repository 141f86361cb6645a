"""How long a client is asked to wait before its next request."""

from __future__ import annotations

from typing import Final

from barnabas.protocol.wire.durations import NO_TIME

NO_THROTTLE: Final = NO_TIME
"""What handlers say; where a client has to wait, its meter says so instead (`broker/security/quotas`)."""
