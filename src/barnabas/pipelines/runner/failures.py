"""Which failures of a query pass by themselves, and which need somebody. Pure.

What pipelines themselves refuse needs somebody, and says what to do. Anything else (a broker that is away, a lost
executor, a worker that was killed) is worth another try. Spark gives a failure of Python code as text
(`spark.error_texts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.errors import NoPosition, NotWritten, ReadStalled, ReplayChecked
from barnabas.pipelines.spark.error_texts import bad_value, is_refused, own_error, python_error
from barnabas.pipelines.tables.errors import TableUnreachable

if TYPE_CHECKING:
    from barnabas.model.remedies import Remedy

PASSING: Final = frozenset(
    each.__name__ for each in (ReadStalled, ReplayChecked, NotWritten, TableUnreachable, NoPosition)
)
"""Errors of pipelines that pass, by name, as texts of Spark have it. NoPosition is for people who give positions; a
pipeline gives all of them, except for partitions that are added while it starts."""
LINE_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query ended."""

    text: str
    """One line, for people."""
    passes: bool
    """Whether another try may help."""
    remedy: Remedy | None = None
    """What can be done; Spark's texts have lost it."""


def classify_failure(error: BaseException) -> Failure:
    """What an error of a query means."""
    whole = f"{type(error).__module__}.{type(error).__name__}: {error}"
    if ours := own_error(whole):
        needs_somebody = ours.module.startswith("pipelines") and ours.name not in PASSING
        return Failure(ours.text, not needs_somebody, error.remedy if isinstance(error, BarnabasError) else None)
    if value := bad_value(whole):
        return Failure(value, passes=False)  # it is the same value in the next try
    return Failure(_line(error)[:LINE_LENGTH], not is_refused(whole))


def _line(error: BaseException) -> str:
    """What Python said last, or else what Spark says first."""
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return python_error(text) or first
