"""What a broker's log looks like: one line for each thing that happened, whatever clients send.

A client chooses its id, its topics' names and much of what is said about them. Control characters in a message are
written as escapes, so nobody can begin a line of their own; the lines of a traceback stay what they are.

A client can also send nonsense as fast as it likes. Of what clients cause, each kind of line (its text before the
names are filled in) is written at most `MOST` times in `WINDOW` seconds, and the next line says how many were left out.
What a broker says of its own accord, as that a log was cut, is never left out.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

CAUSED_BY_CLIENTS: Final = (
    "barnabas.net.",
    "barnabas.broker.serving.login",
    "barnabas.broker.serving.dispatch",
    "barnabas.broker.handlers.",
    "barnabas.broker.coordinators.",
    "barnabas.broker.security.",
    "barnabas.machines.groups.",
    "barnabas.machines.transactions",
)
"""Where loggers' names begin whose lines clients can cause at will."""
MOST: Final = 50
WINDOW: Final = 10.0
KINDS: Final = 1000
"""Kinds of lines that are counted; there are as many as places in the code."""
_CONTROL: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


def escaped(text: str) -> str:
    """Text on one line: control characters as Python writes them."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class OneLine(logging.Formatter):
    """Formats a message on one line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        """The line without what follows it, as a traceback does."""
        record.message = escaped(record.message)
        return super().formatMessage(record)


class Kind:
    """One kind of line in its present window."""

    __slots__ = ("left_out", "since", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 0
        self.left_out = 0


class Limit(logging.Filter):
    """Leaves out what clients cause too often, and says how much."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, object], Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        if not record.name.startswith(CAUSED_BY_CLIENTS):
            return True
        now = self._clock()
        key = record.name, record.msg
        kind = self._kinds.get(key)
        if kind is None or now - kind.since >= WINDOW:
            if kind is None and len(self._kinds) >= KINDS:
                self._kinds.clear()
            left_out = kind.left_out if kind is not None else 0
            kind = self._kinds[key] = Kind(now)
            if left_out:
                record.msg = f"{escaped(record.getMessage())} ({left_out} more lines like this one were left out)"
                record.args = ()
        kind.written += 1
        if kind.written < MOST:
            return True
        if kind.written == MOST:
            record.msg = f"{escaped(record.getMessage())} (more of these within {WINDOW:.0f} s are left out)"
            record.args = ()
            return True
        kind.left_out += 1
        return False


def write_to_stderr(form: str, *filters: logging.Filter) -> None:
    """Have this process's log written to its standard error, in lines of this form, each changed by the filters."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(form))
    for each in (Limit(), *filters):
        handler.addFilter(each)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
