"""Producer ids, from blocks that the controller allocates.

A block belongs to one broker, so ids are unique in the cluster without a request for each. Ids of a block that are left
when the broker stops are never used: there are enough (2**63).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.metadata.znodes import ProducerIds


class ProducerIdSource:
    """Gives producer ids; `allocate` gets the next block from the controller."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIds]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """A producer id that is given once."""
        async with self._lock:
            if self._next == self._end:
                block = await self._allocate()
                self._next, self._end = block.first, block.first + block.count
            self._next += 1
            return self._next - 1
