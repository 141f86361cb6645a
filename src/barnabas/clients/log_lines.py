"""What librdkafka logs, without its echo: while a broker is away it says so several times a second.

That a producer failed for good is not in it: records say why, and so does a line of the producer's own.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

QUIET_SECONDS: Final = 30.0
MOST_LINES: Final = 1000
"""When so many different lines were logged, it is begun anew; they hold names of clients, which come and go."""
_THREAD: Final = " [thrd:"
"""What lines of librdkafka have, and no others."""
_FATAL_OF_PRODUCER: Final = re.compile(r"FATAL \[[^\]]*#producer-")
_WAITED: Final = re.compile(r"\(after \d+ms in state")


class Echo:
    """A filter for loggers: a line of librdkafka that was logged is not logged again for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is to be logged."""
        line = record.getMessage()
        if _THREAD not in line:
            return True
        if _FATAL_OF_PRODUCER.match(line):
            return False
        line = _WAITED.sub("", line)
        now = self._clock()
        if now < self._quiet_until.get(line, now):
            return False
        if len(self._quiet_until) >= MOST_LINES:
            self._quiet_until.clear()
        self._quiet_until[line] = now + QUIET_SECONDS
        return True
