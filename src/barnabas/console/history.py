"""A day of figures in a small SQLite file, so that a page opened in the morning shows the night.

A series is a name and points in time. A point is stored when the value has changed, or is the first after a while: a
topic at rest takes one row in five minutes. Between two points the value is that of the first; a longer gap is a time
in which no console ran. What cannot be stored is lost, and the console goes on: it only shows less.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

log = logging.getLogger(__name__)

KEPT_SECONDS: Final = 24 * 3600
REPEAT_SECONDS: Final = 300
"""How often a value is stored that has not changed."""
GAP_SECONDS: Final = REPEAT_SECONDS + 60
MOST_SERIES: Final = 5_000
"""Beyond these, new series of topics and groups are not stored: the file stays below some hundred megabytes."""
MOST_RESTING: Final = MOST_SERIES // 2
"""Beyond these, topics and groups at which nothing has happened get no series: those at work need the places."""
PRUNE_SECONDS: Final = 600
FORMAT: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS points (
    series INTEGER NOT NULL, at INTEGER NOT NULL, value REAL NOT NULL, PRIMARY KEY (series, at)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS points_by_time ON points (at);
"""


class Point(NamedTuple):
    """A value from a moment on (seconds since 1970); None where nobody looked."""

    at: float
    value: float | None


class History:
    """The figures of one cluster. All SQL runs in one thread."""

    def __init__(self, folder: Path) -> None:
        """The file is opened when it is first used; one that cannot be read is set aside."""
        self._folder = folder
        self._file: Path | None = None
        self._thread = ThreadPoolExecutor(1, "console-history")
        self._connection: sqlite3.Connection | None = None
        self._ids: dict[str, int] = {}
        self._last: dict[str, Point] = {}
        self._pruned = 0.0
        self._failed = False

    async def add(self, cluster_id: str, at: float, values: Mapping[str, float]) -> None:
        """Store the values of a moment; each cluster has a file of its own."""
        await self._run(lambda: self.add_here(cluster_id, at, values), None)

    async def read(self, name: str, since: float, until: float, most: int) -> list[Point]:
        """The points of a series, thinned out to `most`."""
        return await self._run(lambda: self.read_here(name, since, until, most), [])

    async def _run(self, work: Callable[[], T], otherwise: T) -> T:
        def guarded() -> T:
            try:
                result = work()
            except (sqlite3.Error, OSError) as error:
                if not self._failed:
                    log.warning("The history of figures in %s cannot be used: %s", self._file or self._folder, error)
                self._failed = True
                self._forget()
                return otherwise
            self._failed = False
            return result

        return await anyio.to_thread.run_sync(lambda: self._thread.submit(guarded).result(), abandon_on_cancel=True)

    def close(self) -> None:
        """Finish what was begun, and close the file."""
        self._thread.submit(self._forget)
        self._thread.shutdown()

    def add_here(self, cluster_id: str, at: float, values: Mapping[str, float]) -> None:
        """As `add`, in the history's own thread."""
        file = self._folder / f"history-{re.sub('[^A-Za-z0-9_-]', '_', cluster_id)[:64]}.sqlite"
        if file != self._file:
            self._forget()
            self._file, self._last, self._pruned = file, {}, 0.0
        connection = self._open(file)
        rows = []
        for name, value in values.items():
            last = self._last.get(name)
            if last is not None and last.value == value and at - last.at < REPEAT_SECONDS:
                continue
            number = self._number(connection, name, value)
            if number is not None:
                rows.append((number, round(at), value))
                self._last[name] = Point(at, value)
        with connection:
            connection.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", rows)
        if at - self._pruned > PRUNE_SECONDS:
            self._prune(connection, at)

    def read_here(self, name: str, since: float, until: float, most: int) -> list[Point]:
        """As `read`, in the history's own thread."""
        if self._file is None:
            return []
        connection = self._open(self._file)
        query = (
            "SELECT at, value FROM points WHERE series = (SELECT id FROM series WHERE name = ?) AND at BETWEEN ? AND ? "
            "ORDER BY at"
        )
        rows = connection.execute(query, (name, round(since) - GAP_SECONDS, round(until))).fetchall()
        return thinned([Point(at, value) for at, value in rows], since, until, most)

    def _number(self, connection: sqlite3.Connection, name: str, value: float) -> int | None:
        """The number of a series; totals of the cluster have one in any case."""
        if name not in self._ids:
            if ":" in name and len(self._ids) >= (MOST_SERIES if value else MOST_RESTING):
                return None
            with connection:
                connection.execute("INSERT OR IGNORE INTO series (name) VALUES (?)", (name,))
            (self._ids[name],) = connection.execute("SELECT id FROM series WHERE name = ?", (name,)).fetchone()
        return self._ids[name]

    def _prune(self, connection: sqlite3.Connection, at: float) -> None:
        with connection:
            connection.execute("DELETE FROM points WHERE at < ?", (at - KEPT_SECONDS,))
            if len(self._ids) > MOST_RESTING:
                connection.execute(
                    "DELETE FROM points WHERE series IN (SELECT id FROM series WHERE name LIKE '%:%' "
                    "AND NOT EXISTS (SELECT 1 FROM points WHERE series = id AND value != 0))"
                )
            connection.execute("DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM points WHERE series = id)")
        self._pruned = at
        self._ids = dict(connection.execute("SELECT name, id FROM series"))
        self._last = {name: point for name, point in self._last.items() if name in self._ids}

    def _open(self, file: Path) -> sqlite3.Connection:
        if self._connection is None:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                self._connection = _connect(file)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # it is locked, or cannot be opened
                    raise
                aside = file.with_name(f"{file.name}.damaged-{time.time_ns()}")
                file.rename(aside)
                log.warning("The history of figures was damaged and begins anew. The file is %s: %s", aside, error)
                self._connection = _connect(file)
            self._ids = dict(self._connection.execute("SELECT name, id FROM series"))
        return self._connection

    def _forget(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=1.0, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            connection.executescript("DROP TABLE IF EXISTS points; DROP TABLE IF EXISTS series;")
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA user_version={FORMAT}")
    except BaseException:
        connection.close()
        raise
    return connection


def thinned(points: Sequence[Point], since: float, until: float, most: int) -> list[Point]:
    """One point for each of `most` equal steps of time: the largest value in it, or the one that still holds."""
    step = (until - since) / most
    found: list[Point] = []
    index, holds = 0, Point(float("-inf"), None)
    for number in range(most):
        begin, end = since + number * step, since + (number + 1) * step
        best: float | None = holds.value if begin - holds.at < GAP_SECONDS else None
        while index < len(points) and points[index].at < end:
            holds = points[index]
            if holds.at >= begin and holds.value is not None:
                best = holds.value if best is None else max(best, holds.value)
            elif holds.at < begin:
                best = holds.value
            index += 1
        found.append(Point(end, best))
    return found
