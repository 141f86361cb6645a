"""Merges the small files of tables, and forgets their old versions, while a trial fills them."""

from __future__ import annotations

import collections
import random
import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.tables.errors import Overtaken
from barnabas.pipelines.tables.opening import open_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE_BYTES: Final = 1 << 20
PAUSE_SECONDS: Final = (3.0, 8.0)
OLD: Final = timedelta(seconds=20)
"""How old the versions are that are forgotten."""


class Upkeep(threading.Thread):
    """Compacts tables now and then, and expires their versions, beside their loads, until it is told to end."""

    def __init__(self, places: Mapping[str, Path], chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._places = places
        self._chance = random.Random(chance.random())  # a thread of its own would disturb the order of the kills
        self._over = threading.Event()
        self._failure: Exception | None = None
        self.merged: collections.Counter[str] = collections.Counter()
        """How many files, by the format of their table."""
        self.forgotten: collections.Counter[str] = collections.Counter()
        """How many versions, by format."""

    def run(self) -> None:
        try:
            while not self._over.wait(self._chance.uniform(*PAUSE_SECONDS)):
                for kind, place in self._places.items():
                    self._merge(kind, place)
                    self._forget(kind, place)
        except Exception as error:  # whoever waits for the end is told
            self._failure = error

    def _merge(self, kind: str, place: Path) -> None:
        with suppress(Overtaken):  # the load came first each time, as it may if the machine is slow
            self.merged[kind] += compact(kind, place)

    def _forget(self, kind: str, place: Path) -> None:
        with suppress(Overtaken), open_table(str(place), kind) as table:
            self.forgotten[kind] += 0 if table.last_note() is None else table.expire(OLD)

    @property
    def has_merged(self) -> bool:
        """Whether there were files to merge in each table. Raises what it failed with."""
        if self._failure is not None:
            raise self._failure
        return all(self.merged[kind] for kind in self._places)

    def stop(self) -> None:
        """Let no other one begin."""
        self._over.set()

    def end(self) -> None:
        """Wait for the last one. Raises what one failed with."""
        self.stop()
        self.join(120)
        assert not self.is_alive()
        if self._failure is not None:
            raise self._failure


def compact(kind: str, place: Path) -> int:
    """Merge small files, if there is a table; how many they were."""
    with open_table(str(place), kind) as table:
        return 0 if table.last_note() is None else table.compact(FILE_BYTES).merged
