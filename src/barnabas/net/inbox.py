"""What arrived on one connection and is not a whole frame yet.

All connections receive into one shared buffer, and most frames are served out of it. Only a frame that did not arrive
whole, or that must wait, gets a buffer of its own, which grows with what really arrives: announcing a hundred megabytes
costs nothing. All private buffers together are bounded by the `Budget`; where it is used up, frames that have not come
to their end for long make room for those that are on their way.

A few large buffers are kept for the next frames. New memory of such a size comes from the system page by page, and
goes back when it is free: for each megabyte of a producer that took longer than to receive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.errors import InvalidFrame

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED_SIZE: Final = 256 * 1024
SMALLEST: Final = 16 * 1024
GROWTH: Final = 4
"""A buffer is at most so many times as large as what has arrived, or as SMALLEST."""
LARGE: Final = 128 * 1024
"""Bytes of a buffer that is worth keeping: the C library has smaller ones at hand."""
SPARE: Final = 4 * 1024 * 1024
"""Bytes of all buffers that are kept."""
STALLED: Final = 2.0
"""Seconds after which an unfinished frame has to make room for others, where there is none left."""


class Budget:
    """Bytes that all private buffers of a server may take together."""

    __slots__ = ("_holders", "_spare", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._holders: dict[Inbox, Callable[[], None]] = {}
        """Those with a buffer, the one whose first frame is oldest first, and how they are made to give it back."""
        self._spare: list[bytearray] = []

    def take(self, size: int, inbox: Inbox, now: float) -> None:
        """Reserve `size` more bytes, or refuse."""
        if self.used + size > self.limit:
            self._make_room(size, inbox, now)
        if self.used + size > self.limit:
            raise InvalidFrame(
                f"unfinished requests of all connections would take {self.used + size} bytes, "
                f"more than queued.max.request.bytes={self.limit}"
            )
        self.used += size

    def has_room(self, size: int) -> bool:
        """Whether so much could be taken without asking others for theirs."""
        return self.used + size <= self.limit

    def give(self, size: int) -> None:
        """Return what was taken."""
        self.used -= size

    def new_buffer(self, size: int, arrived: int) -> bytearray:
        """A buffer of `size` bytes, or a larger one that was kept: no more than GROWTH times what has arrived."""
        most = min(GROWTH * arrived, self.limit - self.used)
        for index, spare in enumerate(self._spare):
            if size <= len(spare) <= most:
                return self._spare.pop(index)
        return bytearray(size)

    def keep_buffer(self, buffer: bytearray) -> None:
        """Keep a buffer that was given back for the next frame, unless it is small or someone holds views of it."""
        most = min(SPARE, self.limit // 4)
        if not LARGE <= len(buffer) <= most:
            return
        try:
            buffer.append(buffer.pop())
        except BufferError:  # its size cannot be changed while there are views
            return
        self._spare.append(buffer)
        while sum(map(len, self._spare)) > most:
            del self._spare[0]  # the oldest: frames are of other sizes now

    def begin(self, inbox: Inbox, evict: Callable[[], None]) -> None:
        """The first frame of `inbox` is the newest of all; `evict` ends its connection, unless that is at work."""
        self._holders[inbox] = evict

    def begin_again(self, inbox: Inbox) -> None:
        """Its first frame was served, and the next is the newest of all."""
        self._holders[inbox] = self._holders.pop(inbox)

    def end(self, inbox: Inbox) -> None:
        """The inbox has no frame any more."""
        self._holders.pop(inbox, None)

    def _make_room(self, size: int, inbox: Inbox, now: float) -> None:
        for holder, evict in list(self._holders.items()):
            if now - holder.since < STALLED or self.used + size <= self.limit:
                return
            if holder is not inbox:
                evict()


class Inbox:
    """The private buffer of one connection."""

    __slots__ = ("_budget", "_buffer", "filled", "since")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._buffer = bytearray()
        self.filled = 0
        self.since = 0.0
        """When the first frame began to arrive, on the event loop's clock."""

    def __bool__(self) -> bool:
        return self.filled > 0

    def keep(self, data: memoryview, wanted: int, now: float, evict: Callable[[], None]) -> None:
        """Keep what is left of the shared buffer; `wanted` is the size of the unfinished frame, as far as known.

        `evict` is called when others need the memory.
        """
        buffer = self._budget.new_buffer(max(len(data), min(wanted, GROWTH * len(data)), SMALLEST), len(data))
        self._budget.take(len(buffer), self, now)
        self._budget.begin(self, evict)
        self.since = now
        self._buffer = buffer
        buffer[: len(data)] = data
        self.filled = len(data)

    def room(self, wanted: int, now: float) -> memoryview:
        """Where the next bytes go; there is always room for at least one."""
        size = len(self._buffer)
        if self.filled == size:
            larger = self._budget.new_buffer(max(min(wanted, GROWTH * size), size + SMALLEST), size)
            self._budget.take(len(larger) - size, self, now)
            larger[: self.filled] = self._buffer  # another one: someone may still hold views of the old
            self._budget.keep_buffer(self._buffer)
            self._buffer = larger
        return memoryview(self._buffer)[self.filled :]

    def charge(self, budget: Budget, now: float, evict: Callable[[], None]) -> None:
        """Count what it takes against another budget from now on. Raises InvalidFrame if that is used up."""
        if budget is self._budget:  # as when a client logs in again
            return
        if self.filled:
            budget.take(len(self._buffer), self, now)
            budget.begin(self, evict)
            self._budget.give(len(self._buffer))
            self._budget.end(self)
        self._budget = budget

    def data(self) -> memoryview:
        """Everything that arrived."""
        return memoryview(self._buffer)[: self.filled]

    def drop(self, count: int, now: float) -> None:
        """Forget the first `count` bytes, which were served; the buffer goes when nothing is left.

        What is left moves to the front, so views of what was served are worth nothing any more.
        """
        rest = self.filled - count
        if rest:
            self._buffer[:rest] = self._buffer[count : self.filled]
            self.filled = rest
            self.since = now
            self._budget.begin_again(self)
        else:
            self.clear()

    def clear(self) -> None:
        """Give the buffer back."""
        self._budget.give(len(self._buffer))
        self._budget.end(self)
        self._budget.keep_buffer(self._buffer)
        self._buffer = bytearray()
        self.filled = 0
