"""The reply deadline: how long a request for many partitions waits for those that have to be replicated first.

Requests of one broker to another are batched (`request_batching`), and each part may wait for the followers of another
partition. If those hang, that takes up to one and a half times replica.lag.time.max.ms. So all parts of a request are
waited for until a deadline, and those that are not done then are answered as late. From then on no request waits for
anything that depends on the same partition, until the late part is done: otherwise every new request would wait for it
again, and with it all its other parts.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

COMMIT_SECONDS: Final = 2.0
"""How long a request waits for records that were just written."""

Result = TypeVar("Result")


class ReplyDeadline(Generic[Result]):
    """Waits for results that depend on partitions, and remembers the partitions that are late."""

    def __init__(self) -> None:
        self._late: dict[Hashable, asyncio.Future[Result]] = {}
        """The result that each late partition has not given yet."""

    async def wait(self, awaited: Collection[tuple[Hashable, asyncio.Future[Result]]]) -> None:
        """Wait until these are done, each with the partition that it depends on, but not longer than the deadline."""
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

    def _forget(self, partition: Hashable, future: asyncio.Future[Result]) -> None:
        if self._late.get(partition) is future:
            del self._late[partition]
