"""The part of a reader that moves in partitions: to offsets, in time, and not at all while they are paused.

Records of a paused partition that were fetched before are held, and come first when it is resumed.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.committing import TIMEOUT, CommittingReader
from barnabas.clients.errors import translated
from barnabas.clients.limits import MAX_INT64, within
from barnabas.clients.records import K, TopicPartition, V

if TYPE_CHECKING:
    from collections.abc import Iterable

BEGINNING: Final = -2
END: Final = -1
"""Offsets that stand for the ends of a log, as librdkafka and Kafka have them."""


class SeekingReader(CommittingReader[K, V]):
    """The part of a reader that says where it is read."""

    def assignment(self) -> list[TopicPartition]:
        """What is being read now."""
        return sorted(TopicPartition(p.topic, p.partition) for p in self._client.assignment())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset."""
        self._place(partition, offset)
        self._forget([partition])
        self._move(partition, offset)
        if offset >= 0:
            self._sought[partition] = offset

    def take_back(self) -> None:
        """Go back to before what was handed out and not committed."""
        first = {TopicPartition(*partition): offset for partition, offset in self._first.items()}
        self._forget_handed_out()
        assigned = set(self.assignment())
        for partition, offset in first.items():
            if partition in assigned:
                self.seek(partition, offset)

    def _move(self, partition: TopicPartition, offset: int) -> None:
        place = self._place(partition, offset)
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self._client.seek(place)
            except self._kafka.KafkaException as failure:
                error = failure.args[0]
                # For a moment after an assignment the partition is not read yet, and cannot be moved.
                starting = error.code() == error._STATE and partition in self.assignment()
                if not starting or time.monotonic() > deadline:
                    raise translated(error, f"seek {partition} to {offset}") from failure
                time.sleep(0.005)
            else:
                return

    def _place(self, partition: TopicPartition, offset: int | None) -> Any:
        if offset is None:
            offset = self._kafka.OFFSET_INVALID if self.grouped else self._reset
        else:
            within(f"offset of {partition}", offset, BEGINNING, MAX_INT64)
        return self._kafka.TopicPartition(*partition, offset)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that will be handed out; None if that is not known yet."""
        for message in (*self._held.get(partition, ()), *self._buffer):
            if message.error() is None and (message.topic(), message.partition()) == partition:
                return int(message.offset())
        (found,) = self._ask("position", self._client.position, self._plain([partition]))
        known = max(found.offset, self._reached.get(partition, -1))
        return int(known) if known >= 0 else None

    def offsets_at(self, timestamp: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset at or after a time (milliseconds) in each partition; its end where nothing is that young."""
        places = [self._kafka.TopicPartition(*partition, timestamp) for partition in partitions]
        found = self._ask("offsets by time", self._client.offsets_for_times, places, TIMEOUT)
        for place in found:
            if place.error is not None:
                raise translated(place.error, f"offsets by time of {place.topic}-{place.partition}")
        return {
            (partition := TopicPartition(place.topic, place.partition)): place.offset
            if place.offset >= 0
            else self.ends(partition)[1]
            for place in found
        }

    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        """Where the partition's log begins, and the offset after its last record that may be read."""
        (place,) = self._plain([partition])
        low, high = self._ask(f"ends of {partition}", self._client.get_watermark_offsets, place, TIMEOUT)
        return low, high

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until they are resumed."""
        paused = list(partitions)
        self._ask("pause", self._client.pause, self._plain(paused))
        for partition in paused:
            self._held.setdefault(partition, [])
        kept = deque[Any]()
        for message in self._buffer:
            place = TopicPartition(message.topic(), message.partition())
            if message.error() is None and place in self._held:
                self._held[place].append(message)
            else:
                kept.append(message)
        self._buffer = kept

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand these partitions out again."""
        resumed = list(partitions)
        self._ask("resume", self._client.resume, self._plain(resumed))
        for partition in resumed:
            self._buffer.extendleft(reversed(self._held.pop(partition, [])))

    def paused(self) -> list[TopicPartition]:
        """Partitions that are paused."""
        return sorted(self._held)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        for partition in gone:
            self._next.pop(partition, None)
            self._first.pop(partition, None)
            self._reached.pop(partition, None)
            self._sought.pop(partition, None)
            if partition in self._held:
                self._held[partition] = []
        if self._buffer:
            self._buffer = deque(m for m in self._buffer if m.error() or (m.topic(), m.partition()) not in gone)
