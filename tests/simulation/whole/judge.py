"""Holds what clients of a world saw against the rules of a log (`tests/history/checker`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.history.checker import History, check

if TYPE_CHECKING:
    from tests.simulation.whole.history import Log


def judge(log: Log) -> list[str]:
    """The rules that a world has broken."""
    history = History(list(log.sends.values()), log.reads, log.final)
    return sorted(str(violation) for violation in check(history))
