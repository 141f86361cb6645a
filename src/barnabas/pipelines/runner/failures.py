"""Which failures pass by themselves, and which need somebody. Pure.

Spark gives a failure of Python code as text: a traceback somewhere in a long message, in which the class is named with
its module. What pipelines themselves refuse needs somebody, and says what to do; anything else (a broker that is away,
a lost executor, a worker that was killed) is worth another try.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_OURS: Final = re.compile(r"\bbarnabas\.(?P<module>[\w.]+)\.(?P<name>[A-Z]\w+): (?P<text>[^\n]+)")
_PASSING: Final = frozenset({"ReadStalled", "ReplayChecked", "NotWritten", "TableUnreachable", "NoPosition"})
"""The last one is for people who give positions; a pipeline gives all, but for partitions that come while it starts."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"^(?!org\.|java\.|scala\.|py4j\.)(?:\w+\.)*[A-Z]\w*: .*\S", re.MULTILINE)
"""The last line of a Python traceback; Java's exceptions stand in the same text."""
_REFUSED_BY_SPARK: Final = re.compile(r"\b(AnalysisException|ParseException|requirement failed)\b")
"""What Spark will not do however often it is asked; a failed requirement names no class."""
_BAD_DATA: Final = re.compile(r"[^\n]*\[[A-Z0-9_.]+\] (?P<text>[^\n]+?) SQLSTATE: 22\w{3}\b")
"""A value that SQL cannot compute with, as a text that is no number; it will be the same in the next try."""
_LINE_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query ended."""

    text: str
    """One line, for people."""
    passes: bool
    """Whether another try may help."""


def understood(error: BaseException) -> Failure:
    """What an error of a query means."""
    whole = f"{type(error).__module__}.{type(error).__name__}: {error}"
    ours = list(_OURS.finditer(whole))
    if ours:
        last = ours[-1]
        lasts = last["module"].startswith("pipelines") and last["name"] not in _PASSING
        return Failure(last["text"], not lasts)
    if bad_data := _BAD_DATA.search(whole):
        return Failure(bad_data["text"], passes=False)
    return Failure(_line(error)[:_LINE_LENGTH], not _REFUSED_BY_SPARK.search(whole))


def _line(error: BaseException) -> str:
    """What somebody's Python said last, or else what Spark says first."""
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return said_by_python(text) or first


def said_by_python(text: str) -> str | None:
    """The line of an error in which the last Python traceback ends; None if there is no traceback."""
    at = text.rfind(_TRACEBACK)
    raised = _RAISED.search(text, at + len(_TRACEBACK)) if at >= 0 else None
    return raised and raised[0]
