"""Ctrl-C and SIGTERM wait for the end of what should not be left half done.

Nothing would be lost without it: the next start makes good what a crash left. But until then a folder of plain Parquet
may show a part of a commit, and a dead letter may only be promised.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

HELD_BACK: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold the first signal back until the block has ended; a second one is let through, for those who cannot wait.

    A block within another is a part of it. Signals reach the main thread only, so elsewhere there is nothing to hold
    back.
    """
    if threading.current_thread() is not threading.main_thread() or _is_held_back():
        yield
        return
    waiting = _Waiting()
    try:
        yield
    finally:
        waiting.over()


def _is_held_back() -> bool:
    return any(isinstance(signal.getsignal(number), _Waiting) for number in HELD_BACK)


class _Waiting:
    """What handles signals during a block."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._before = {number: handler for number in HELD_BACK if (handler := signal.getsignal(number)) is not None}
        for number in self._before:
            signal.signal(number, self)

    def __call__(self, number: int, _: FrameType | None) -> None:
        if self._first is None:
            self._first = number
            return
        self._first = None
        self._give_back()
        signal.raise_signal(number)

    def over(self) -> None:
        """Let the signal through that came during the block, if one did."""
        self._give_back()
        if self._first is not None:
            signal.raise_signal(self._first)

    def _give_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
