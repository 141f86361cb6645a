"""One ShareFetch while it reads: it waits until there is enough to acquire, then acquires it.

It looks at its partitions and begins to wait in one callback, so it misses no append and no record that is released.
Nothing is acquired before the answer is due: a lock runs from there. Nothing is acquired after its session has ended,
as with the connection of a worker that died: messages would be locked for nobody, and count as delivered.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.machines.shares.coordinator import ShareKey
from barnabas.machines.shares.records import AcquireLimits, LogBatch
from barnabas.model.errors import ApiError, OffsetOutOfRange
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.storage.files import ColdRead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.shares.hosted import HostedSharePartition
    from barnabas.machines.shares.records import Acquired
    from barnabas.machines.shares.sessions import ShareSession, TopicIdPartition
    from barnabas.storage.segments.segments import ReadResult

SMALLEST_STEP: Final = 16 * 1024
"""Bytes of a partition that are read at once are a multiple of this; each step is twice as long as the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetchLimits:
    """What a request allows."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    strict: bool


@dataclass(slots=True)
class ShareFetched:
    """What a partition has for a member."""

    error: ApiError | None = None
    records: bytes = b""
    acquired: list[Acquired] = field(default_factory=list)


class _Readable(NamedTuple):
    """What a partition could give now."""

    hosted: HostedSharePartition
    offset: int
    read: Callable[[bool], ReadResult]
    size: int
    """Bytes that it has, as far as that matters."""


class _Read(NamedTuple):
    """Bytes of the log that begin with whole batches, what these are, and where each of them ends."""

    data: bytes
    batches: list[LogBatch]
    ends: list[int]

    def cut(self, first: int, last: int) -> bytes:
        """The batches that have records of these offsets; there are some."""
        begin = bisect_left(self.batches, first, key=_last_offset)
        end = bisect_right(self.batches, last, key=_first_offset)
        return self.data[self.ends[begin - 1] if begin else 0 : self.ends[end - 1]]


def _first_offset(batch: LogBatch) -> int:
    return batch.first_offset


def _last_offset(batch: LogBatch) -> int:
    return batch.last_offset


class ShareFetchGate(Protocol):
    """Who fetches. It is asked when records are delivered: rules and quotas may change while a fetch waits."""

    def refusal(self, place: TopicIdPartition) -> ApiError | None:
        """Why the caller may not read the partition now."""

    def is_throttled(self) -> bool:
        """Whether the caller has had as much as its quota allows."""

    def count(self, size: int) -> None:
        """So many bytes are delivered."""


class ShareFetching:
    """One fetch; a watcher of its partitions while it waits."""

    def __init__(
        self, broker: BrokerContext, session: ShareSession, limits: ShareFetchLimits, gate: ShareFetchGate
    ) -> None:
        self._broker = broker
        self._session = session
        self._limits = limits
        self._gate = gate
        self._committed = broker.shares.reads_committed(session.group_id)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look again."""
        self._woken.set()

    async def run(self, places: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, ShareFetched]:
        """What each partition has, as soon as there is enough or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.max_wait_ms / 1000
        while True:
            await self._open_logs(places)
            if self._session.is_over:
                return {}
            self._woken.clear()
            watched: list[HostedSharePartition | LeaderPartition] = []
            try:
                results, readable = self._look(places, watched)
                due = loop.time() >= deadline or not places
                failed = any(result.error is not None for result in results.values())
                if due or failed or sum(each.size for each in readable.values()) >= max(1, self._limits.min_bytes):
                    moved = await self._acquire(readable, results)
                    if due or failed or any(result.acquired or result.error for result in results.values()):
                        return results
                    if moved:
                        continue
                await self._wait(deadline - loop.time())
            finally:
                self._unwatch(watched)

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), max(seconds, 0))
        except TimeoutError:
            return

    def _unwatch(self, watched: Sequence[HostedSharePartition | LeaderPartition]) -> None:
        for each in watched:
            each.remove_watcher(self)

    async def _open_logs(self, places: Sequence[TopicIdPartition]) -> None:
        for topic_id, index in places:
            partition = self._broker.replicas.led(topic_id.bytes, index)
            if partition is not None and not partition.log.is_open:
                await asyncio.get_running_loop().run_in_executor(self._broker.executor, partition.log.open)

    def _look(
        self, places: Sequence[TopicIdPartition], watched: list[HostedSharePartition | LeaderPartition]
    ) -> tuple[dict[TopicIdPartition, ShareFetched], dict[TopicIdPartition, _Readable]]:
        """What could be acquired now, and the errors of partitions; begins to watch all of them."""
        results = {place: ShareFetched() for place in places}
        readable: dict[TopicIdPartition, _Readable] = {}
        share = max(1, self._limits.max_bytes // max(1, len(places)))
        for place in places:
            try:
                hosted = self._broker.shares.find(ShareKey(self._session.group_id, *place))
                if hosted.failure is not None:
                    results[place].error = hosted.failure
                    continue
                watched += (hosted, hosted.partition)
                hosted.add_watcher(self)
                hosted.partition.add_watcher(self)
                found = self._readable(hosted, share)
            except ApiError as error:
                results[place].error = error
                continue
            if found is not None:
                readable[place] = found
        return results, readable

    def _readable(self, hosted: HostedSharePartition, max_bytes: int) -> _Readable | None:
        machine, partition = hosted.machine, hosted.partition
        if machine is None or self._limits.max_records <= 0:
            return None
        log, end = partition.log, partition.leader.high_watermark
        if self._committed:
            end = log.last_stable_offset(end)
        if log.log_start_offset > machine.start_offset:
            machine.log_start_moved(log.log_start_offset)
            hosted.wake()  # others that wait for room have it now
        if not hosted.can_acquire(machine):
            return None
        offset = machine.next_fetch_offset()
        if offset >= end:
            return None

        def read(may_block: bool) -> ReadResult:
            return log.read(offset, max_bytes, end, True, may_block=may_block, committed=self._committed)

        if self._limits.min_bytes <= 1:
            return _Readable(hosted, offset, read, 1)  # a record is enough, and here is one
        try:
            size = read(False).size
        except ColdRead:
            size = max_bytes
        except OffsetOutOfRange:
            return None
        return _Readable(hosted, offset, read, size) if size else None

    async def _acquire(
        self, readable: dict[TopicIdPartition, _Readable], results: dict[TopicIdPartition, ShareFetched]
    ) -> bool:
        """Read and acquire; returns whether a fetch that got nothing should look again at once."""
        left = self._limits.max_records
        moved = False
        for place, found in readable.items():
            if left <= 0:
                break
            try:
                read = await self._read(found, left)
            except OffsetOutOfRange:  # retention may have been faster; otherwise the log ends before the offset
                moved = moved or found.offset < found.hosted.partition.log.log_start_offset
                continue
            except ApiError as error:
                results[place].error = error
                continue
            machine = found.hosted.machine
            if machine is None or self._session.is_over:
                moved = True
                continue
            if (refusal := self._gate.refusal(place)) is not None:
                results[place].error = refusal
                continue
            if self._gate.is_throttled():
                break
            limits = AcquireLimits(left, max(1, self._limits.batch_size), self._limits.strict)
            acquired = found.hosted.acquire(self._session.member_id, read.batches, limits, found.offset)
            moved = moved or machine.next_fetch_offset() != found.offset
            if acquired:
                left -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
                results[place].acquired = acquired
                records = results[place].records = read.cut(acquired[0].first_offset, acquired[-1].last_offset)
                found.hosted.read_size = _next_size(len(records))
                self._gate.count(len(records))
                found.hosted.partition.traffic.bytes_out += len(records)
        return moved

    async def _read(self, found: _Readable, most: int) -> _Read:
        """The bytes of whole batches, and what they are: at once if they are in memory.

        That is all from which up to `most` records may be acquired: those that are in flight, and so many after them.
        """
        machine = found.hosted.machine
        end = found.offset if machine is None else max(machine.end_offset, found.offset)

        def read(may_block: bool) -> _Read:
            return _batches(found.read(may_block), end + most - 1, found.hosted.read_size, may_block=may_block)

        try:
            return read(False)
        except ColdRead:
            return await asyncio.get_running_loop().run_in_executor(self._broker.executor, read, True)


def _batches(result: ReadResult, last: int, size: int, *, may_block: bool) -> _Read:
    """The whole batches at the beginning of what was found, up to the one that has the offset `last`."""
    data = b""
    batches: list[LogBatch] = []
    ends: list[int] = []
    position = 0
    for piece in _steps(result, size, may_block=may_block):
        data = data + piece if data else piece
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if position + header.size > len(data):
                break
            batches.append(LogBatch(header.base_offset, header.last_offset, result.is_aborted(header)))
            position += header.size
            ends.append(position)
            if header.last_offset >= last:
                return _Read(data, batches, ends)
    return _Read(data, batches, ends)


def _steps(result: ReadResult, size: int, *, may_block: bool) -> Iterator[bytes]:
    """The bytes that were found, little by little: a member that wants ten records needs few of those of a backlog."""
    for piece in result.slices:
        at, end = piece.position, piece.position + piece.length
        while at < end:
            step = min(size, end - at)
            data = (piece.file.read if may_block else piece.file.read_cached)(step, at)
            yield data
            if len(data) < step:
                return  # the file was cut meanwhile
            at += step
            size *= 2


def _next_size(size: int) -> int:
    """The bytes that are read first when the last member got so many: a little more, so that one read is enough."""
    return -(-size * 5 // 4 // SMALLEST_STEP) * SMALLEST_STEP
