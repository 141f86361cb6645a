"""How long the answer to a bundle of questions waits for what must be replicated first.

Questions to the same broker come in bundles (`bundles`), and each may wait for another partition's followers. One whose
followers hang takes up to replica.lag.time.max.ms and a half. So all of a bundle are waited for a while, and whatever
is not done then is answered as late. From then on nothing that depends on the same partition is waited for, until what
was late is done: each new bundle would have to wait for it again, and with it everything else that it asks for.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

COMMIT_SECONDS: Final = 2.0
"""How long something that was just written is waited for."""


class Patience:
    """Waits for partitions, and knows those that are late."""

    def __init__(self) -> None:
        self._late: dict[Hashable, asyncio.Future[Any]] = {}
        """What each of them is late with."""

    async def wait(self, awaited: Collection[tuple[Hashable, asyncio.Future[Any]]]) -> None:
        """Wait a while until these are done, each with the partition that it depends on."""
        pending = {future for partition, future in awaited if not future.done() and not self._is_late(partition)}
        if pending:
            await asyncio.wait(pending, timeout=COMMIT_SECONDS)
        for partition, future in awaited:
            if not future.done() and not self._is_late(partition):
                self._late[partition] = future
                future.add_done_callback(partial(self._forget, partition))

    def _is_late(self, partition: Hashable) -> bool:
        late = self._late.get(partition)
        return late is not None and not late.done()

    def _forget(self, partition: Hashable, future: asyncio.Future[Any]) -> None:
        if self._late.get(partition) is future:
            del self._late[partition]
