"""How far a load is: a line now and then, or a bar where a person is watching."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.common.output import remark
from barnabas.cli.common.values.sizes import counted, size_text

if TYPE_CHECKING:
    from barnabas.pipelines.loading.progress import LoadProgress

LINE_SECONDS: Final = 10.0
"""How often a line tells of progress where no bar can be drawn."""


class Lines:
    """Progress as a line now and then."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._step: str | None = None
        self._over = threading.Event()
        self._reminder = threading.Thread(target=self._remind, daemon=True)

    def __enter__(self) -> Lines:
        self._reminder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._reminder.join()

    def wait(self, step: str) -> None:
        """Say what is waited for."""
        self._step, self._began = step, time.monotonic()
        remark(f"{step[0].upper()}{step[1:]}.")

    def _remind(self) -> None:
        while not self._over.wait(LINE_SECONDS):
            if (step := self._step) is not None and time.monotonic() - self._began > LINE_SECONDS / 2:
                remark(f"Still {step} ({time.monotonic() - self._began:.0f} s).")

    def show(self, progress: LoadProgress) -> None:
        """Say how far it is, if that was long ago."""
        if progress.records:
            self._step = None
        if self._step is None and time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            remark(progress_text(progress))


class Bar:
    """Progress as a bar: rows, bytes, lag and the time that is left.

    rich's own column for the time is not among them: it goes by the last moments, and would show another time beside.
    """

    def __init__(self, topic: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(topic, total=None, text="asking the broker")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def wait(self, step: str) -> None:
        """Say what is waited for."""
        self._bar.update(self._task, text=step)

    def show(self, progress: LoadProgress) -> None:
        """Draw it anew, once there is something to show."""
        if progress.records:
            total = progress.done + progress.lag
            self._bar.update(self._task, total=total, completed=progress.done, text=progress_text(progress))


def progress_text(progress: LoadProgress) -> str:
    """Progress in words."""
    left = "" if progress.seconds_left is None else f", about {progress.seconds_left:.0f} s left"
    size = size_text(progress.size, 1000)
    return f"{counted(progress.records, 'record')}, {size}, {progress.rate:,.0f}/s, lag {progress.lag:,}{left}"
