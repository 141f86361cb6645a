"""Which record of each key is the last one, within a bound of memory.

A dictionary from keys to offsets. Keys of up to 30 bytes stand for themselves; longer ones for a digest of 31 bytes, so
that the two kinds cannot be taken for each other. Kafka hashes every key and spends 24 bytes on it; here an entry is
Python objects, and costs more: ENTRY_BYTES, a bound that a test holds against the interpreter. The memory that is asked
for is kept to; a log with more keys is cleaned in more passes.

The value of a key is its last offset, doubled, plus one if that record is a tombstone: so the rewriting of dirty
batches needs neither their keys nor their values again.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 200
"""A bytes object (up to 64), an int (32), its share of the dictionary at its emptiest, while it grows (90), and of the
array of survivors (8)."""
LONGEST_KEY: Final = 30
_DIGEST: Final = LONGEST_KEY + 1


def digest(key: bytes) -> bytes:
    """What stands for a key of more than LONGEST_KEY bytes."""
    return blake2b(key, digest_size=_DIGEST).digest()


class KeyMap:
    """The last offsets of keys in the dirty part of a log, up to `end_offset`."""

    __slots__ = ("_limit", "end_offset", "last")

    def __init__(self, memory: int, load_factor: float, first_dirty: int) -> None:
        self._limit = int(memory * load_factor) // ENTRY_BYTES
        self.end_offset = first_dirty
        """All dirty records before this offset are in the map."""
        self.last: dict[bytes, int] = {}

    def has_room(self, records: int) -> bool:
        """Whether so many more keys can come in. An empty map takes any batch, so that there is always progress."""
        return not self.last or len(self.last) + records <= self._limit

    def survivors(self) -> array[int]:
        """The values, sorted: the dirty records that are the last of their keys."""
        return array("q", sorted(self.last.values()))
