from __future__ import annotations

from datetime import timedelta

import click
import pytest

from barnabas.cli.groups.times import parse_datetime, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("2025-01-31T06:00:00.001", 1_738_303_200_001),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_datetime(text) == expected


@pytest.mark.parametrize("text", ["2025-01-31", "2025-01-31 06:00:00", "2025-13-31T06:00:00.000", "noon"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.UsageError, match=f"--to-datetime {text} is not of the form"):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1.5S", 1.5),
        ("PT30M", 1800),
        ("P1DT1H1M1S", 90061),
        ("P2D", 172800),
        ("-PT1H", -3600),
        ("PT-1H", -3600),
        ("pt10m", 600),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["P", "PT", "P1DT", "1H", "PT1D", "P1W", "an hour"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.UsageError, match=f"--by-duration {text} is not of the form"):
        parse_duration(text)
