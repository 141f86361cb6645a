"""When a segment is full: by its bytes, its age, the offsets that it can hold, and the entries of its indexes.

Age counts by timestamps: that of the first batch and that of the new one. Without timestamps, by the clock.

A segment is ending in the last part of its bytes or of its time: then the file of the next one is made ahead of time.
So that an append compares with two numbers only, the limits are set lower until the segment is known to be ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.storage.segments.indexes import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from barnabas.model.log_config import LogConfig

_LAST_PART: Final = 8
_LAST_MS: Final = 60_000
"""A segment is ending in the last eighth of its bytes and of its time, and at most so long before that is over."""
_BY_CLOCK: Final = -2
"""Less than any timestamp: when the first batch has none, the clock says when to roll."""


class RollLimits:
    """The limits of one segment. `filled` is how many bytes it has."""

    __slots__ = (
        "_age_limit",
        "_created_ms",
        "_full_at",
        "_is_ending",
        "_last_possible",
        "_max_ms",
        "_roll_after",
        "_size_limit",
        "entries_left",
    )

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self._created_ms = created_ms
        self._last_possible = base_offset + MAX_RELATIVE_OFFSET
        self._is_ending = False
        self._size_limit = 0
        self._age_limit = _BY_CLOCK
        """In bytes and as a timestamp: what would go past them belongs into the next segment."""
        self._full_at = 0
        self._roll_after = _BY_CLOCK
        """What `has_room` looks at: the limits, and while the segment is not known to be ending, something less."""
        self._max_ms = 0
        self.entries_left = 0
        """How many entries the indexes may still get."""

    def apply(self, config: LogConfig, jitter_ms: int, entries_left: int) -> None:
        """Take the limits of `config`."""
        self._is_ending = False
        self._size_limit = config.segment_bytes
        self._full_at = config.segment_bytes - config.segment_bytes // _LAST_PART
        self._max_ms = config.roll_ms - jitter_ms
        self.entries_left = entries_left
        if entries_left <= 0:
            self.block()

    def block(self) -> None:
        """Have room for nothing, until `apply` is called again."""
        self._full_at = self._size_limit = 0

    def count_age_from(self, timestamp: int) -> None:
        """The first batch of the segment has this timestamp, or none (-1)."""
        self._roll_after = self._age_limit = timestamp + self._max_ms if timestamp >= 0 else _BY_CLOCK
        if timestamp >= 0 and not self._is_ending:
            self._roll_after -= min(self._max_ms // _LAST_PART, _LAST_MS)

    def use_entry(self) -> None:
        """The indexes have got an entry."""
        self.entries_left -= 1
        if self.entries_left <= 0:
            self.block()

    def has_room(self, filled: int, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether a batch, or several that are so large together, belongs here for sure; if not, `roll_due` knows."""
        return (
            0 < filled <= self._full_at - size
            and last_offset <= self._last_possible
            and max_timestamp <= self._roll_after
        )

    def roll_due(self, filled: int, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch of `size` bytes, up to `last_offset` and `max_timestamp`, belongs into a new segment."""
        if last_offset > self._last_possible:
            return True
        if filled == 0:
            return False
        if filled + size > self._size_limit:
            return True
        if self._age_limit == _BY_CLOCK:
            return now_ms - self._created_ms > self._max_ms
        return max_timestamp > self._age_limit

    def begins_to_end(self, filled: int, size: int, max_timestamp: int) -> bool:
        """Whether such a batch, which still belongs here, is the first in the segment's last part. True once."""
        is_late = self._roll_after != _BY_CLOCK and max_timestamp > self._roll_after
        if self._is_ending or not (is_late or filled + size > self._full_at):
            return False
        self._is_ending = True
        self._full_at, self._roll_after = self._size_limit, self._age_limit
        return True
