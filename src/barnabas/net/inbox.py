"""What arrived on one connection and is not a whole frame yet.

All connections receive into one shared buffer, and most frames are served out of it. Only a frame that did not arrive
whole, or that must wait, gets a buffer of its own, which grows with what really arrives: announcing a hundred megabytes
costs nothing. All private buffers together are bounded by the `Budget`.
"""

from __future__ import annotations

from typing import Final

from barnabas.model.errors import InvalidFrame

SHARED_SIZE: Final = 256 * 1024
SMALLEST: Final = 4096
AT_ONCE: Final = 2 * 1024 * 1024
"""A frame up to this size gets its whole buffer at once."""


class Budget:
    """Bytes that all private buffers of a server may take together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, size: int) -> None:
        """Reserve `size` more bytes, or refuse."""
        if self.used + size > self.limit:
            raise InvalidFrame(
                f"unfinished requests of all connections would take {self.used + size} bytes, "
                f"more than queued.max.request.bytes={self.limit}"
            )
        self.used += size

    def give(self, size: int) -> None:
        """Return what was taken."""
        self.used -= size


class Inbox:
    """The private buffer of one connection."""

    __slots__ = ("_budget", "_buffer", "filled")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._buffer = bytearray()
        self.filled = 0

    def __bool__(self) -> bool:
        return self.filled > 0

    def keep(self, data: memoryview, wanted: int) -> None:
        """Keep what is left of the shared buffer; `wanted` is the size of the unfinished frame, as far as known."""
        size = max(len(data), min(wanted, AT_ONCE), SMALLEST)
        self._budget.take(size)
        self._buffer = bytearray(size)
        self._buffer[: len(data)] = data
        self.filled = len(data)

    def room(self, wanted: int) -> memoryview:
        """Where the next bytes go; there is always room for at least one."""
        size = len(self._buffer)
        if self.filled == size or (size < wanted <= AT_ONCE):
            grown = max(min(wanted, 2 * size), size + SMALLEST) if wanted > AT_ONCE else max(wanted, size + SMALLEST)
            self._budget.take(grown - size)
            larger = bytearray(grown)  # a new one: someone may still hold views of the old
            larger[: self.filled] = memoryview(self._buffer)[: self.filled]
            self._buffer = larger
        return memoryview(self._buffer)[self.filled :]

    def data(self) -> memoryview:
        """Everything that arrived."""
        return memoryview(self._buffer)[: self.filled]

    def drop(self, count: int) -> None:
        """Forget the first `count` bytes; the buffer goes when nothing is left."""
        rest = self.filled - count
        if rest:
            self._buffer[:rest] = self._buffer[count : self.filled]
            self.filled = rest
        else:
            self.clear()

    def clear(self) -> None:
        """Give the buffer back."""
        self._budget.give(len(self._buffer))
        self._buffer = bytearray()
        self.filled = 0
