"""What Spark's errors say, recognised by their text: the only place where a program can see it.

Spark hands a failure of Python code over as text: a traceback somewhere in a long message, in which the class is named
with its module. Java's exceptions stand in the same text. Each pattern here has a test against Spark itself
(tests/pipelines/test_error_texts.py). Pure.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

TRACEBACK: Final = "Traceback (most recent call last):"
OWN_ERROR: Final = re.compile(r"\bbarnabas\.(?P<module>[\w.]+)\.(?P<name>[A-Z]\w+): (?P<text>[^\n]+)")
"""An error of ours, as Python names it in a traceback."""
PYTHON_ERROR: Final = re.compile(r"^(?!org\.|java\.|scala\.|py4j\.)(?:\w+\.)*[A-Z]\w*: .*\S", re.MULTILINE)
"""The last line of a Python traceback."""
REFUSED: Final = re.compile(r"\b(AnalysisException|ParseException|requirement failed)\b")
"""What Spark refuses however often it is asked; a failed requirement names no class."""
BAD_VALUE: Final = re.compile(r"[^\n]*\[[A-Z0-9_.]+\] (?P<text>[^\n]+?) SQLSTATE: 22\w{3}\b")
"""A value that SQL cannot compute with, as a text that is no number (SQLSTATE class 22)."""
POSITION: Final = re.compile(r"; line \d+ pos \d+")
"""Where in a query Spark found the mistake, behind its words."""


class OwnError(NamedTuple):
    """An error of ours, as a text of Spark names it."""

    module: str
    """Below `barnabas`."""
    name: str
    text: str


def own_error(text: str) -> OwnError | None:
    """The error of ours that a text names last, if any: the one that ended everything."""
    found = list(OWN_ERROR.finditer(text))
    return OwnError(found[-1]["module"], found[-1]["name"], found[-1]["text"]) if found else None


def python_error(text: str) -> str | None:
    """The line in which the last Python traceback of a text ends; None if it has no traceback."""
    at = text.rfind(TRACEBACK)
    raised = PYTHON_ERROR.search(text, at + len(TRACEBACK)) if at >= 0 else None
    return raised and raised[0]


def java_error(text: str) -> str:
    """The line that says what happened: where Python called Java, the first names the call, the next the exception."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0]).rstrip(".")


def bad_value(text: str) -> str | None:
    """What SQL says of a value that it cannot compute with."""
    found = BAD_VALUE.search(text)
    return found and found["text"]


def is_refused(text: str) -> bool:
    """Whether Spark refuses a query, so that another try would not help."""
    return REFUSED.search(text) is not None


def analysis_error(text: str) -> str:
    """What Spark says of a query that it does not understand, in one line, without the position and the plan."""
    said, *_ = text.split("\n\n", 1)
    return " ".join(POSITION.split(said, maxsplit=1)[0].split())
