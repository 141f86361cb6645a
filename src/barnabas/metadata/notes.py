"""Folders of numbered notes, by which brokers learn what somebody changed in the tree, as in Kafka's ZooKeeper mode.

Whoever changes something leaves a note of it, and removes the oldest notes where there are many. Whoever follows
remembers which notes it has seen, and not the highest number: a node that somebody made by hand may have any number.
It reads what new notes name if it can be certain that it sees all of them, and everything otherwise:

- The folder is the one that it saw. One that was made anew begins again with the same names.
- The note that stood right below the new ones is there yet. The oldest go first, so none above it is missing.
- Of the notes that it saw, one at least is there yet.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metadata.stores.store import NoNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.metadata.stores.store import MetadataStore

_NUMBER: Final = re.compile(r"[0-9]{10}|-[0-9]{9,10}")
_MOST: Final = (1 << 31) - 1
_NO_FOLDER: Final = -1


class Notes(NamedTuple):
    """The notes of a folder at one moment."""

    folder: str
    czxid: int
    """Which folder it was, of all that had this path."""
    numbers: Mapping[str, int]
    """By their names, from the oldest on."""

    def paths(self, names: Iterable[str]) -> list[str]:
        """Of notes in this folder."""
        return [f"{self.folder}/{name}" for name in names]

    def new_since(self, before: Notes | None) -> list[str] | None:
        """The paths of the notes that were not there before; None if there may have been others."""
        if before is None or before.czxid != self.czxid:
            return None
        seen = before.numbers
        if seen and seen.keys().isdisjoint(self.numbers):
            return None
        new = [name for name in self.numbers if name not in seen]
        if new:
            first = self.numbers[new[0]]
            below = [name for name, number in seen.items() if number < first]
            if below[-1] not in self.numbers if below else first != 0:
                return None
        return self.paths(new)


async def look(store: MetadataStore, prefix: str) -> Notes:
    """The notes whose paths begin like this. A node with another kind of name is no note; no folder has none."""
    folder, _, start = prefix.rpartition("/")
    found = await store.find(folder)  # first: notes of a folder that is made anew meanwhile are new the next time
    if found is None:
        return Notes(folder, _NO_FOLDER, {})
    try:
        names = await store.children(folder)
    except NoNode:
        return Notes(folder, _NO_FOLDER, {})
    return Notes(folder, found.czxid, _numbered(names, start))


def _numbered(names: Iterable[str], start: str) -> dict[str, int]:
    """The notes among names of nodes: those with a number of 32 bits in ten digits, as stores give them."""
    numbers: dict[str, int] = {}
    for name in names:
        text = name.removeprefix(start)
        if name.startswith(start) and _NUMBER.fullmatch(text) and -_MOST - 1 <= int(text) <= _MOST:
            numbers[name] = int(text)
    return dict(sorted(numbers.items(), key=lambda each: each[1]))
