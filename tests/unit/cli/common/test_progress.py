from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from barnabas.cli.common import progress as module
from barnabas.cli.common.progress import progress

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    """What a person sees."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In place of standard error; called in the test itself, since pytest puts its own there before each phase."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(module, "FIRST_SECONDS", 0)
    monkeypatch.setattr(module, "REDRAW_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return shown


def test_a_bar_shows_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with progress("Checking ./data", 4_000_000, of_bytes=True) as watched:
        watched(1_000_000)
        watched(1_000_000)
    shown = screen.getvalue()
    assert "Checking ./data" in shown
    assert "1.0/4.0 MB" in shown
    assert "2.0/4.0 MB" in shown
    assert shown.endswith("\x1b[2K"), "the bar is gone in the end"


def test_a_bar_without_an_end_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with progress("Reading", None) as watched:
        for more in (1, 33, 200, 1000):
            watched(more)
    assert "1,234" in screen.getvalue()


def test_short_work_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    monkeypatch.setattr(module, "FIRST_SECONDS", 60)
    with progress("Reading", 10) as watched:
        watched(10)
    assert screen.getvalue() == ""


def test_no_bar_where_the_results_themselves_go_by(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with progress("Reading", 10, wanted=False) as watched:
        watched(10)
    assert screen.getvalue() == ""


def test_nobody_watches_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(module, "FIRST_SECONDS", 0)
    with progress("Reading", 10) as watched:
        watched(10)
    assert pipe.getvalue() == ""
