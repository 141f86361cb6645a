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

    Signals reach the main thread only, so elsewhere there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: handler for number in HELD_BACK if (handler := signal.getsignal(number)) is not None}
    waiting: list[int] = []

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def hold_back(number: int, _: FrameType | None) -> None:
        if not waiting:
            waiting.append(number)
            return
        waiting.clear()
        give_back()
        signal.raise_signal(number)

    for number in before:
        signal.signal(number, hold_back)
    try:
        yield
    finally:
        give_back()
        for held in waiting:
            signal.raise_signal(held)
