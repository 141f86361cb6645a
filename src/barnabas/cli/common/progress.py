"""A bar for work that takes long, where a person is watching: on standard error, and gone when the work is done.

It is drawn only after a moment, so that short work does not flicker, and only by the thread that works, between its
steps.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST_SECONDS: Final = 0.5
"""How long work goes on before a bar appears."""
REDRAW_SECONDS: Final = 0.1


@contextmanager
def progress(
    what: str, total: int | None, *, of_bytes: bool = False, wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Watch work; gives the function that is told of each step how much more is done.

    Without a `total` the bar only shows that something happens, and how much did. It is not `wanted` where the results
    themselves go by.
    """
    if not wanted or not sys.stderr.isatty() or find_spec("rich") is None:
        yield _ignore
        return
    bar = _Bar(what, total, of_bytes)
    try:
        yield bar.advance
    finally:
        bar.close()


def _ignore(done: int) -> None:
    """Nobody watches."""


class _Bar:
    """Counts, and draws now and then."""

    def __init__(self, what: str, total: int | None, of_bytes: bool) -> None:
        self._what = what
        self._total = total
        self._of_bytes = of_bytes
        self._done = 0
        self._due = time.monotonic() + FIRST_SECONDS
        self._drawn: Any = None
        self._task: Any = None

    def advance(self, done: int) -> None:
        self._done += done
        if time.monotonic() < self._due:
            return
        if self._drawn is None:
            self._begin()
        self._due = time.monotonic() + REDRAW_SECONDS
        self._drawn.update(self._task, completed=self._done, refresh=True)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        self._drawn = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn() if self._of_bytes else TextColumn("{task.completed:,}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._drawn.add_task(self._what, total=self._total)
        self._drawn.start()

    def close(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()
