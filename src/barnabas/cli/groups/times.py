"""Times and durations in the forms that kafka-consumer-groups takes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?:(?P<time>T)(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


def parse_datetime(text: str) -> int:
    """ISO 8601 with a T in it, as milliseconds since 1970; UTC unless it says otherwise."""
    try:
        if "T" not in text:
            raise ValueError("there is no T between date and time")
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--to-datetime {text} is not of the form 2025-01-31T06:00:00.000: {error}.") from error
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def parse_duration(text: str) -> timedelta:
    """ISO 8601's PnDTnHnMnS."""
    match = DURATION.fullmatch(text)
    units = ("days", "hours", "minutes", "seconds")
    values = {unit: match[unit] for unit in units if match[unit] is not None} if match else {}
    if match is None or not values or (match["time"] and not values.keys() - {"days"}):
        raise click.UsageError(f"--by-duration {text} is not of the form PnDTnHnMnS, as in P1DT6H or PT30M.")
    duration = timedelta(**{unit: float(value.replace(",", ".")) for unit, value in values.items()})
    return -duration if match["sign"] == "-" else duration
