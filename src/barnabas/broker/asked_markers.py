"""Markers that another broker's coordinator asks for: each is waited for a while, and not for as long as it takes.

A partition whose followers hang must not hold back the markers of the others, which came in the same request, or come
in the next ones (`patience`). What is not committed in time is answered as timed out, and the coordinator asks again.
By then it is neither written once more nor waited for again: what has become of it, or that nothing has yet, is told at
once.

What became of a marker is kept for the leadership in which it was written, and not for long. Whoever leads again later,
or leads a topic that was made anew, may be asked for the same marker on behalf of another transaction: it writes it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.patience import Patience
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.broker.partition import Marker, Partition
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.model.errors import ApiError
    from barnabas.model.ids import TopicPartition

    Write = Callable[[TopicPartition, Marker, Callable[[ApiError | None], None]], None]

KEPT_SECONDS: Final = 10.0
"""How long it is known what became of one that was late: the coordinator asks sooner, unless it is gone."""


class _Asked(NamedTuple):
    """A marker of one leadership, None if another broker leads the partition."""

    tp: TopicPartition
    marker: Marker
    led: Partition | None


class AskedMarkers:
    """Writes markers for others, and knows those of which they were told that they are late."""

    def __init__(self, write: Write, replicas: ReplicaManager) -> None:
        self._write = write
        self._replicas = replicas
        self._patience = Patience()
        self._late: dict[_Asked, asyncio.Future[ErrorCode]] = {}

    async def write(self, wanted: Iterable[tuple[TopicPartition, Marker]]) -> list[ErrorCode]:
        """What has become of each marker when those that are new had their time."""
        begun = [self._begin(tp, marker) for tp, marker in wanted]
        await self._patience.wait([(asked.led, future) for asked, future in begun])
        return [self._told(asked, future) for asked, future in begun]

    def _begin(self, tp: TopicPartition, marker: Marker) -> tuple[_Asked, asyncio.Future[ErrorCode]]:
        asked = _Asked(tp, marker, self._replicas.led(*tp))
        if (late := self._late.get(asked)) is not None:
            return asked, late
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ApiError | None) -> None:
            if not future.done():
                future.set_result(ErrorCode.none if error is None else error.code)

        self._write(tp, marker, done)
        return asked, future

    def _told(self, asked: _Asked, future: asyncio.Future[ErrorCode]) -> ErrorCode:
        if future.done():
            self._forget(asked, future)
            return future.result()
        if asked not in self._late:
            self._late[asked] = future
            future.add_done_callback(lambda _: self._forget_later(asked, future))
        return ErrorCode.request_timed_out

    def _forget_later(self, asked: _Asked, future: asyncio.Future[ErrorCode]) -> None:
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, asked, future)

    def _forget(self, asked: _Asked, future: asyncio.Future[ErrorCode]) -> None:
        """Unless it is another one by now: an older producer ends its next transaction with the same marker."""
        if self._late.get(asked) is future:
            del self._late[asked]
