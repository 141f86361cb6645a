"""The part of a reader that moves in partitions: to offsets, in time, and not at all while they are paused.

Records of a paused partition that were fetched before are held, and come first when it is resumed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.committing import TIMEOUT, CommittingReader
from barnabas.clients.errors import InvalidClientConfig, translated
from barnabas.clients.limits import MAX_INT64, within
from barnabas.clients.records import K, TopicPartition, V

if TYPE_CHECKING:
    from collections.abc import Iterable

BEGINNING: Final = -2
END: Final = -1
"""Offsets that stand for the ends of a log, as librdkafka and Kafka have them."""
TAKEN_AWAY: Final = "it went to another member, or came anew"


class SeekingReader(CommittingReader[K, V]):
    """The part of a reader that says where it is read."""

    def assignment(self) -> list[TopicPartition]:
        """What is being read now."""
        return sorted(TopicPartition(p.topic, p.partition) for p in self._client.assignment())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset. What was handed out of records before it is committed as if nothing had happened."""
        self._place(partition, offset)
        self._note()
        following = self._next.get(partition)
        if following is not None and not (offset == END or offset >= following):
            self._drop([partition], "it was moved back by a seek")
        self._doubtful.pop(partition, None)
        self._go_to(partition, offset)

    def take_back(self) -> None:
        """Go back to before what was handed out and not committed."""
        self._note()
        first = {TopicPartition(*partition): offset for partition, offset in self._first.items()}
        if self.in_transaction:
            self._drop(first, "it was taken back")
        else:
            self._forget_handed_out()
        assigned = set(self.assignment())
        for partition, offset in first.items():
            if partition in assigned:
                self._go_to(partition, offset)

    def _go_to(self, partition: TopicPartition, offset: int) -> None:
        self._drop_messages([partition])
        self._move(partition, offset)
        if offset >= 0:
            self._sought[partition] = offset

    def _settle_doubts(self) -> None:
        """Go on where the group is, in partitions of which it is not known whether a transaction was committed.

        Where the group is not beyond what was handed out last, that was not committed.
        """
        assigned = set(self.assignment())
        doubtful = {TopicPartition(*place): first for place, first in self._doubtful.items()}
        places = [place for place in doubtful if place in assigned]
        if places:
            for place, offset in self.committed(places).items():
                self._go_to(place, max(doubtful[place], -1 if offset is None else offset))
                del self._doubtful[place]
        self._doubtful.clear()

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
            offset = self._kafka.OFFSET_INVALID if self.grouped else self.reset_offset(partition)
        else:
            within(f"offset of {partition}", offset, BEGINNING, MAX_INT64)
        return self._kafka.TopicPartition(*partition, offset)

    def reset_offset(self, partition: TopicPartition) -> int:
        """Where a partition is begun with of which no offset is known. Raises InvalidClientConfig if nobody said so."""
        if self._reset is None:
            raise InvalidClientConfig(
                f"no offset is known for {partition}, and auto_offset_reset is none: say where to begin with it"
            )
        return self._reset

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that will be handed out; None if that is not known yet."""
        if partition in self._doubtful:
            return None
        for message in (*self._held.get(partition, ()), *self._messages[self.at :], *self._buffer[self._start :]):
            if message.error() is None and (message.topic(), message.partition()) == partition:
                return int(message.offset())
        (found,) = self._ask("position", self._client.position, self._plain([partition]))
        known = max(found.offset, self._reached.get(partition, -1))
        return int(known) if known >= 0 else None

    def offsets_at(self, timestamp: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset at or after a time (milliseconds) in each partition; its end where nothing is that young."""
        found = self._list_offsets(timestamp, partitions)
        return {partition: offset if offset >= 0 else self.ends(partition)[1] for partition, offset in found.items()}

    def last_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record that may be read of each partition, asked for all together."""
        return self._list_offsets(END, partitions)

    def _list_offsets(self, timestamp: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        places = [self._kafka.TopicPartition(*partition, timestamp) for partition in partitions]
        found = self._ask("offsets by time", self._client.offsets_for_times, places, TIMEOUT)
        for place in found:
            if place.error is not None:
                raise translated(place.error, f"offsets by time of {place.topic}-{place.partition}")
        return {TopicPartition(place.topic, place.partition): place.offset for place in found}

    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        """Where the partition's log begins, and the offset after its last record that may be read."""
        (place,) = self._plain([partition])
        low, high = self._ask(f"ends of {partition}", self._client.get_watermark_offsets, place, TIMEOUT)
        return low, high

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until they are resumed."""
        paused = list(partitions)
        self._ask("pause", self._client.pause, self._plain(paused))
        self._put_back()
        for partition in paused:
            self._held.setdefault(partition, [])
        kept: list[Any] = []
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
        self._put_back()
        for partition in resumed:
            self._buffer = [*self._held.pop(partition, []), *self._buffer]

    def paused(self) -> list[TopicPartition]:
        """Partitions that are paused."""
        return sorted(self._held)

    def _drop(self, partitions: Iterable[TopicPartition], why: str) -> None:
        """Forget the offsets of what was handed out of these partitions and is not committed.

        A transaction that was begun still goes back to where it began, unless the partition is not ours any more.
        """
        self._note()
        for partition in partitions:
            if why == TAKEN_AWAY or not self.in_transaction:
                self._first.pop(partition, None)
            if self._next.pop(partition, None) is not None and self._counts_as_dropped(why):
                self._dropped[partition] = why

    def _counts_as_dropped(self, why: str) -> bool:
        """Whether a transaction has to know: rebalances also come before its block, with records that it writes."""
        return not self.auto_commit and (self.in_transaction or why == TAKEN_AWAY)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget everything of partitions that are not ours any more."""
        gone = list(partitions)
        self._drop(gone, TAKEN_AWAY)
        self._drop_messages(gone)
        for partition in gone:
            self._doubtful.pop(partition, None)
