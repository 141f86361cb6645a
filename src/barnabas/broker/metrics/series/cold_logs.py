"""Sizes of logs that were not used since the start: not loaded for a scrape, but looked up once, by their files.

A disk that hangs does not answer. So each log directory is looked through by a thread of its own, and not again before
it has answered: one that hangs holds one thread, however often somebody scrapes, and takes no figures from the others.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.daemon_threads import in_daemon_thread
from barnabas.storage.segments.file_names import LOG_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from barnabas.broker.metrics.scrape import Pace
    from barnabas.storage.log.log import Log

LOOK_SECONDS: Final = 1.0
"""How long a scrape looks sizes up; the next one goes on with the others."""
WAIT_SECONDS: Final = 1.5
"""How long it waits for that."""


class LogFiles(NamedTuple):
    """What a log takes on disk."""

    size: int
    segments: int


class ColdLogs:
    """What is known of logs that are not loaded."""

    def __init__(self) -> None:
        self._known: dict[str, LogFiles] = {}
        """By the log's directory."""
        self._asked: dict[Path, asyncio.Future[dict[str, LogFiles]]] = {}
        """What is under way, by log directory."""

    def of(self, log: Log) -> LogFiles | None:
        """What a log takes; None if that is not known yet."""
        return self._known.get(log.path)

    async def look_up(self, logs: Iterable[Log], pace: Pace) -> None:
        """Look up the sizes of logs that are not loaded and are not known yet, as far as time allows."""
        cold: dict[str, Path] = {}
        for log in logs:
            if log.loaded is None and not log.is_failed:
                cold[log.path] = log.log_dir
            if pace.is_over:
                await pace.rest()
        unknown: dict[Path, list[str]] = {}
        for path, directory in cold.items():
            if path not in self._known and directory not in self._asked:
                unknown.setdefault(directory, []).append(path)
        for directory, paths in unknown.items():
            self._asked[directory] = in_daemon_thread(f"sizes of {directory}", _look_up, paths)
        found = await self._answers()
        self._known = {path: files for path, files in (self._known | found).items() if path in cold}
        pace.resume()

    async def _answers(self) -> dict[str, LogFiles]:
        if not self._asked:
            return {}
        done, _ = await asyncio.wait(self._asked.values(), timeout=WAIT_SECONDS)
        found: dict[str, LogFiles] = {}
        for directory, future in list(self._asked.items()):
            if future in done:
                del self._asked[directory]
                found |= future.result()
        return found


def _look_up(paths: Iterable[str]) -> dict[str, LogFiles]:
    """Sizes of logs by their files, as far as time allows. Runs in a thread."""
    found = {}
    deadline = time.monotonic() + LOOK_SECONDS
    for path in paths:
        if time.monotonic() > deadline:
            break
        try:
            with os.scandir(path) as entries:
                sizes = [entry.stat().st_size for entry in entries if entry.name.endswith(LOG_SUFFIX)]
        except OSError:
            continue  # it was set aside meanwhile, or its directory has failed
        found[path] = LogFiles(sum(sizes), len(sizes))
    return found
