"""Producer ids, one at a time, out of blocks that the controller gives.

A block belongs to one broker, so ids are unique in the cluster although each is handed out without asking anyone. What
is left of a block when the broker stops is never used: there are enough (2**63).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.metadata.znodes import ProducerIds


class ProducerIdSource:
    """Hands out producer ids; `allocate` gets the next block."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIds]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody else has or gets."""
        async with self._lock:
            if self._next == self._end:
                block = await self._allocate()
                self._next, self._end = block.first, block.first + block.count
            self._next += 1
            return self._next - 1
