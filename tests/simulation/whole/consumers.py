"""Readers: each follows all partitions of a topic from their starts, at its own pace.

A reader holds the broker to what it was told: a position that it has read up to exists for ever, and the end of a
partition (ListOffsets) does not go back below it. It asks for two ends by turns: that of committed records, the last
stable offset, and that of all records, the high watermark. It reads committed records; in worlds without transactions,
where all are, some readers ask for all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.control import ControlType, control_type
from barnabas.protocol.records.records import read_records
from tests.history.checker import Poll, Record, Reset
from tests.simulation.whole.client import Client, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.whole.history import Log

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
LATEST: Final = -1
EARLIEST: Final = -2


Found = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


def read_committed(data: bytes, position: int, aborted: Any) -> tuple[list[Found], int]:
    """The committed records of a Fetch response from a position on, and the next position."""
    starts = sorted((each.first_offset, each.producer_id) for each in aborted or ())
    open_aborted: set[int] = set()
    found: list[Found] = []
    at = 0
    while len(data) - at >= HEADER_SIZE:
        header = read_header(data, at)
        if len(data) - at < header.size:
            break
        payload = data[at + HEADER_SIZE : at + header.size]
        at += header.size
        while starts and starts[0][0] <= header.last_offset:
            open_aborted.add(starts.pop(0)[1])
        records = list(read_records(payload, header.record_count))
        if header.is_control:
            if control_type(records[0].key) is ControlType.ABORT:
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            for record in records:
                offset = header.base_offset + record.offset_delta
                if offset >= position:
                    found.append((offset, record.key, record.value))
        position = max(position, header.last_offset + 1)
    return found, position


class Consumer:
    """Reads a topic until it is told to stop, or up to its end."""

    def __init__(
        self, client: Client, log: Log, topic: str, partitions: int, isolation_level: int = READ_COMMITTED
    ) -> None:
        self.client = client
        self._isolation_level = isolation_level
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._positions: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._stable = dict.fromkeys(range(partitions), 0)
        """The furthest last stable offset of each partition."""
        self._high_watermarks = dict.fromkeys(range(partitions), 0)
        """The furthest high watermark of each partition."""
        self._asks_high_watermark = False
        """Which end is asked for next."""

    async def follow(self, running: Callable[[], bool]) -> None:
        """Read what comes."""
        await asyncio.gather(*(self._follow(partition, running) for partition in self._positions))

    async def _follow(self, partition: int, running: Callable[[], bool]) -> None:
        chance = self.client.chance
        while running():
            try:
                records = await self._fetch(partition, 500)
                if records:
                    self._log.reads.append(Poll(f"{self.client.name}/{partition}", tuple(records)))
                    self._log.trace(self.client.name, partition, records[-1].offset)
                if chance.random() < 0.1:
                    self._asks_high_watermark = not self._asks_high_watermark
                    await (self._high_watermark if self._asks_high_watermark else self._latest)(partition)
            except Unanswered:
                await self.client.pause()
            if chance.random() < 0.1:
                await asyncio.sleep(chance.random() * 2)

    async def read_all(self) -> list[Record]:
        """Everything, from the start to the end that the cluster names now."""
        found: list[Record] = []
        for partition in range(self._partitions):
            end: int | None = None
            while end is None or self._positions[partition] < end:
                try:
                    if end is None:
                        start = await self._offset_at(partition, EARLIEST)
                        if start is not None:
                            self._positions[partition] = start
                        end = await self._latest(partition)
                        if end is None:
                            await self.client.pause()
                        continue
                    found += await self._fetch(partition, 500)
                except Unanswered:
                    await self.client.pause()
        return found

    async def _fetch(self, partition: int, wait_ms: int) -> list[Record]:
        position = self._positions[partition]
        answer = await self.client.ask_leader(
            self._topic,
            partition,
            ApiKey.FETCH,
            12,
            replica_id=-1,
            max_wait=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self._isolation_level,
            session_epoch=-1,
            topics=[
                {
                    "topic": self._topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "fetch_offset": position,
                            "current_leader_epoch": self.client.epoch_of(self._topic, partition),
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": 4096,
                        }
                    ],
                }
            ],
        )
        result = answer.responses[0].partitions[0]
        code = ErrorCode(result.error_code.value)
        if code is ErrorCode.offset_out_of_range:
            self._log.reads.append(Reset(self.client.name, f"{partition}@{position} is out of range"))
            leader = self.client.leader_of(self._topic, partition)
            self._log.say(f"{self.client.name}: {partition}@{position} is out of range, says broker {leader}")
        if code is not ErrorCode.none:
            self.client.forget_leader(self._topic, partition)
            raise Unanswered(code.name)
        records, following = read_committed(bytes(result.records or b""), position, result.aborted_transactions)
        self._positions[partition] = following
        texts = ((offset, self._text(key, value)) for offset, key, value in records)
        return [Record(partition, offset, text) for offset, text in texts if text is not None]

    def _text(self, key: bytes | None, value: bytes | None) -> str | None:
        """What a record says; None if it is not looked at."""
        return None if value is None else value.decode()

    async def _latest(self, partition: int) -> int | None:
        """The end of a partition, which is not before what was read of it, or said to be its end."""
        end = await self._offset_at(partition, LATEST)
        if end is None:
            return None
        known = max(self._stable[partition], self._positions[partition])
        if end < known:
            self._log.violate(f"{self.client.name}: partition {partition} ended at {known}, and ends at {end} now")
        self._stable[partition] = max(self._stable[partition], end)
        return end

    async def _high_watermark(self, partition: int) -> None:
        """Ask for the high watermark, which does not go back, nor behind what is stable or was read."""
        known = max(self._high_watermarks[partition], self._stable[partition], self._positions[partition])
        end = await self._offset_at(partition, LATEST, READ_UNCOMMITTED)
        if end is None:
            return
        if end < known:
            self._log.violate(f"{self.client.name}: the high watermark of {partition} was {known}, and is {end} now")
        self._high_watermarks[partition] = max(self._high_watermarks[partition], end)

    async def _offset_at(self, partition: int, timestamp: int, isolation_level: int = READ_COMMITTED) -> int | None:
        """What ListOffsets says; None if the broker that was asked does not lead."""
        answer = await self.client.ask_leader(
            self._topic,
            partition,
            ApiKey.LIST_OFFSETS,
            6,
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[
                {
                    "name": self._topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "current_leader_epoch": self.client.epoch_of(self._topic, partition),
                            "timestamp": timestamp,
                        },
                    ],
                }
            ],
        )
        result = answer.topics[0].partitions[0]
        if result.error_code.value:
            self.client.forget_leader(self._topic, partition)
            return None
        found: int = result.offset
        return found
