"""Remote markers: those that the transaction coordinators of other brokers ask this broker to write.

A partition whose followers hang must not delay the markers of other partitions in the same request, or in the next
ones. So a marker is waited for only until the reply deadline. One that is not committed by then is answered with
REQUEST_TIMED_OUT, and the coordinator asks again. Then it is not written again and not waited for again: the answer is
what became of it, or another timeout.

What became of a marker is kept for the leadership in which it was written, and for a few seconds only. A broker that
leads the partition again later, or leads a topic that was created again, may be asked for the same marker on behalf of
another transaction, and has to write it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.coordinators.reply_deadline import ReplyDeadline
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.replication.replicas import ReplicaManager
    from barnabas.broker.replication.verification_guards import Marker
    from barnabas.model.errors import ApiError
    from barnabas.model.ids import TopicPartition

    Write = Callable[[TopicPartition, Marker, Callable[[ApiError | None], None]], None]

PER_TURN: Final = 100
"""How many are written in one turn of the event loop: each is appended to a log."""
KEPT_SECONDS: Final = 10.0
"""How long the result of a late marker is kept: the coordinator asks sooner, unless it is gone."""


class _MarkerKey(NamedTuple):
    """A marker in one leadership of a partition; `led` is None if another broker leads it."""

    tp: TopicPartition
    marker: Marker
    led: LeaderPartition | None


class RemoteMarkers:
    """Writes markers for other brokers' coordinators, and remembers those that missed the reply deadline."""

    def __init__(self, write: Write, replicas: ReplicaManager) -> None:
        self._write = write
        self._replicas = replicas
        self._deadline: ReplyDeadline[ErrorCode] = ReplyDeadline()
        self._late: dict[_MarkerKey, asyncio.Future[ErrorCode]] = {}

    async def write(self, markers: Iterable[tuple[TopicPartition, Marker]]) -> list[ErrorCode]:
        """Write markers; returns the error code of each, at the latest after the reply deadline."""
        begun: list[tuple[_MarkerKey, asyncio.Future[ErrorCode]]] = []
        for tp, marker in markers:
            begun.append(self._begin(tp, marker))
            if len(begun) % PER_TURN == 0:
                await asyncio.sleep(0)
        await self._deadline.wait([(key.led, future) for key, future in begun])
        return [self._result(key, future) for key, future in begun]

    def _begin(self, tp: TopicPartition, marker: Marker) -> tuple[_MarkerKey, asyncio.Future[ErrorCode]]:
        key = _MarkerKey(tp, marker, self._replicas.led(*tp))
        if (late := self._late.get(key)) is not None:
            return key, late
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ApiError | None) -> None:
            if not future.done():
                future.set_result(ErrorCode.none if error is None else error.code)

        self._write(tp, marker, done)
        return key, future

    def _result(self, key: _MarkerKey, future: asyncio.Future[ErrorCode]) -> ErrorCode:
        if future.done():
            self._forget(key, future)
            return future.result()
        if key not in self._late:
            self._late[key] = future
            future.add_done_callback(lambda _: self._forget_later(key, future))
        return ErrorCode.request_timed_out

    def _forget_later(self, key: _MarkerKey, future: asyncio.Future[ErrorCode]) -> None:
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget, key, future)

    def _forget(self, key: _MarkerKey, future: asyncio.Future[ErrorCode]) -> None:
        """Forget a late marker, unless the next transaction of an older producer has the same marker by now."""
        if self._late.get(key) is future:
            del self._late[key]
