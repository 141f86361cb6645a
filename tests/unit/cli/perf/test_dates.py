from __future__ import annotations

from datetime import datetime

import click
import pytest

from barnabas.cli.perf.dates import JavaDate

MOMENT = datetime(2026, 3, 7, 15, 4, 5, 67_800)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-03-07 15:04:05:067"),
        ("d.M.yy h:mm a", "7.3.26 3:04 PM"),
        ("EEE, d MMM yyyy", "Sat, 7 Mar 2026"),
        ("EEEE MMMM", "Saturday March"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2026-03-07T15:04:05.067"),
        ("h 'o''clock'", "3 o'clock"),
        ("''yy''", "'26'"),
        ("HH%d", "15%7"),
        ("DDD", "066"),
        ("", ""),
    ],
)
def test_java_letters(pattern: str, expected: str) -> None:
    assert JavaDate(pattern).format(MOMENT) == expected


@pytest.mark.parametrize("hour", range(24))
def test_hours_of_a_clock_with_hands(hour: int) -> None:
    assert JavaDate("h a").format(MOMENT.replace(hour=hour)) == f"{hour % 12 or 12} {'AM' if hour < 12 else 'PM'}"


@pytest.mark.parametrize(
    ("pattern", "complaint"), [("yyyy 'at", "a quote that is not closed"), ("yyyy Q", "the letter Q is not known")]
)
def test_other_patterns_are_wrong_usage(pattern: str, complaint: str) -> None:
    with pytest.raises(click.UsageError, match=complaint):
        JavaDate(pattern)
