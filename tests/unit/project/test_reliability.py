"""The figures of long runs in docs/reliability.md are those that were noted."""

from __future__ import annotations

from scripts import reliability


def test_the_page_says_what_was_noted() -> None:
    assert reliability.BEGIN in reliability.PAGE.read_text("utf-8")
    assert reliability.PAGE.read_text("utf-8") == reliability.page(), "run: python scripts/reliability.py"
