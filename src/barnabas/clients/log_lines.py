"""What librdkafka logs, without its echo: while a broker is away it says so several times a second.

That a producer failed for good is not in it: a line of the producer's own says so, and why.
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
_FATAL: Final = "FATAL"
"""The facility of lines that say that a client failed for good."""
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
        line = _WAITED.sub("", line)
        now = self._clock()
        if now < self._quiet_until.get(line, now):
            return False
        if len(self._quiet_until) >= MOST_LINES:
            self._quiet_until.clear()
        self._quiet_until[line] = now + QUIET_SECONDS
        return True


class ProducerLog:
    """The logger of one producer, as confluent-kafka calls it: keeps the line that says why it failed for good."""

    def __init__(self, logger: logging.Logger, keep: Callable[[str], None]) -> None:
        self._logger = logger
        self._keep = keep

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        """Log a line, but for that one."""
        if facility == _FATAL:
            self._keep(line.partition("]: ")[2] or line)  # without the thread
        else:
            self._logger.log(level, text, facility, client, line)
