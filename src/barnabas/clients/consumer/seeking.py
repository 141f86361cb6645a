"""Where partitions are read: seeks, the way back after a failed transaction, and positions after a signal.

The promise: after a seek, the next record that is handed out is the one at its offset. librdkafka may lose a seek, and
confluent-kafka may lose messages; so a partition that was moved is watched until its first message has come
(`find_misplaced`), and after an interrupted call librdkafka's positions are compared with ours (`find_lost`). Once a
transaction was asked to commit, only the group knows how far it came (`doubt`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.consumer.handed_out import REVOKED
from barnabas.clients.consumer.native import BEGINNING, END
from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.clients.consumer.fetched import FetchedRecords
    from barnabas.clients.consumer.handed_out import HandedOut
    from barnabas.clients.consumer.native import NativeConsumer

__all__ = ["BEGINNING", "END", "Positions"]

SEEK_SECONDS: Final = 0.5
"""How long a seek may take before it counts as lost."""


class Positions:
    """Moves in partitions, and knows where they are read."""

    def __init__(
        self, native: NativeConsumer, fetched: FetchedRecords[Any, Any], handed_out: HandedOut, *, reset: int | None
    ) -> None:
        """`reset`: where partitions without an offset begin, BEGINNING or END; None if nobody said so."""
        self._native = native
        self._fetched = fetched
        self._handed_out = handed_out
        self._reset = reset
        self._reached: dict[tuple[str, int], int] = {}
        """Ends of partitions that librdkafka has reached."""
        self._sought: dict[tuple[str, int], int] = {}
        """Where partitions were moved to of which nothing has come since."""
        self._doubtful: dict[tuple[str, int], int] = {}
        """Partitions of which it is not known whether what was handed out is committed, and where that began."""
        self._suspects: dict[TopicPartition, float] = {}
        """Partitions of which messages may be lost, and when a seek of them counts as lost; 0 if none was made."""
        self._answers: dict[TopicPartition, tuple[list[Any], list[Any]]] = {}
        """What brokers have said of those: their committed offsets, and where they begin and end."""

    # Seeks

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset. What was handed out of records before it is committed as if nothing had happened."""
        self._native.place(partition, offset)  # which refuses an offset that no log has
        self._handed_out.count()
        following = self._handed_out.next.get(partition)
        if following is not None and not (offset == END or offset >= following):
            self._handed_out.drop([partition], "a seek moved the partition back")
        self._doubtful.pop(partition, None)
        self._go_to(partition, offset)

    def take_back(self) -> None:
        """Go back to before what was handed out and not committed."""
        handed_out = self._handed_out
        handed_out.count()
        first = {TopicPartition(*partition): offset for partition, offset in handed_out.first.items()}
        if handed_out.in_transaction:
            handed_out.drop(first, "its records were taken back")
        else:
            handed_out.forget()
        assigned = set(self._native.assignment())
        for partition, offset in first.items():
            if partition in assigned:
                self._go_to(partition, offset)

    def doubt(self) -> None:
        """Only the group knows whether what was handed out is committed: it is asked before more is read."""
        self._handed_out.count()
        first = self._handed_out.first
        self._doubtful |= first
        self._drop_messages(first)
        self._handed_out.forget()

    def settle_doubts(self) -> None:
        """Go on where the group is, in partitions of which it is not known whether a transaction was committed.

        Where the group is not beyond what was handed out last, that was not committed.
        """
        if not self._doubtful:
            return
        assigned = set(self._native.assignment())
        doubtful = {TopicPartition(*place): first for place, first in self._doubtful.items()}
        places = [place for place in doubtful if place in assigned]
        if places:
            for place, offset in self._native.committed(places).items():
                self._go_to(place, max(doubtful[place], -1 if offset is None else offset))
                del self._doubtful[place]
        self._doubtful.clear()

    def _go_to(self, partition: TopicPartition, offset: int) -> None:
        self._drop_messages([partition])
        self._handed_out.following[partition] = offset
        self._native.seek(partition, offset)
        if offset >= 0:
            self._sought[partition] = offset

    # Starts

    def reset_offset(self, partition: TopicPartition) -> int:
        """Where a partition without an offset begins. Raises InvalidClientConfig if nobody said so."""
        if self._reset is None:
            raise InvalidClientConfig(
                f"no offset is known for {partition}, and auto_offset_reset is none: say where to begin with it"
            )
        return self._reset

    def start_place(self, partition: TopicPartition, offset: int | None) -> Any:
        """Where to begin with a partition, as librdkafka takes it; None: where the group left off, or at a reset."""
        if offset is not None:
            return self._native.place(partition, offset)
        kafka = self._native.kafka
        offset = kafka.OFFSET_INVALID if self._native.group_id is not None else self.reset_offset(partition)
        return kafka.TopicPartition(*partition, offset)

    def start_at(self, places: Iterable[Any]) -> None:
        """Keep where partitions are begun with, if not where the group left off."""
        chosen = [place for place in places if place.offset != self._native.kafka.OFFSET_INVALID]
        self._handed_out.following |= {(place.topic, place.partition): place.offset for place in chosen}

    # Positions

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that will be handed out; None if that is not known yet."""
        if partition in self._doubtful:
            return None
        first = self._fetched.first_offset(partition)
        if first is not None:
            return first
        (offset,) = self._native.positions([partition]).values()
        known = max(offset, self._reached.get(partition, -1))
        return int(known) if known >= 0 else None

    def reach_end(self, place: tuple[str, int], offset: int) -> None:
        """librdkafka has given everything up to this offset, where the partition ends."""
        self._reached[place] = offset

    def is_doubtful(self, place: tuple[str, int]) -> bool:
        """Whether nothing of the partition counts before the group was asked where it is."""
        return place in self._doubtful

    def has_doubts(self) -> bool:
        """Whether any partition is doubtful."""
        return bool(self._doubtful)

    def find_misplaced(self, messages: Iterable[Any]) -> dict[tuple[str, int], int]:
        """Partitions of which something came that is not from where they were moved to, with that offset.

        librdkafka seldom loses a seek that comes while a partition is just being begun with, and goes on with the place
        at which it began. So a partition of which anything else comes first is moved once more, now that it is being
        read. What comes then counts: the offset may be one that the log does not have.
        """
        found: dict[tuple[str, int], int] = {}
        if not self._sought:
            return found
        for message in messages:
            place = (message.topic(), message.partition())
            offset = self._sought.get(place)
            if offset is None or place in found:
                continue
            if message.offset() == offset:
                del self._sought[place]
                self._suspects.pop(TopicPartition(*place), None)
            else:
                found[place] = offset
        return found

    def seek_again(self, misplaced: dict[tuple[str, int], int]) -> None:
        """Move partitions to where they should be; what comes of them next counts."""
        for place, offset in misplaced.items():
            partition = TopicPartition(*place)
            self._native.seek(partition, offset)
            del self._sought[place]
            self._suspects.pop(partition, None)

    # Messages that were lost

    def abandon_interrupted(self) -> None:
        """A call was interrupted in which confluent-kafka may have dropped messages, and the group may have rebalanced.

        What was handed out may be somebody else's now, and no transaction may commit it.
        """
        self._handed_out.refuse_transaction("a signal interrupted a call that may rebalance")
        assigned = set(self._native.assignment())
        self.forget([TopicPartition(*place) for place in self._handed_out.following if place not in assigned])
        self._suspects = {partition: self._suspects.get(partition, 0.0) for partition in assigned}

    def has_suspects(self) -> bool:
        """Whether messages may be lost."""
        return bool(self._suspects)

    def find_lost(self) -> None:
        """Go back to messages that librdkafka gave and that never arrived here.

        Of each partition it is known after which record reading goes on; where librdkafka is elsewhere, it is moved
        there. There are messages, so one has to come: if none does, librdkafka has lost the seek, and it is made again.
        librdkafka has no position from a seek to the first message that it gives.
        """
        for partition, reached in self._native.positions(self._suspects).items():
            sought = self._sought.get(partition)
            if reached < 0 and sought is not None:
                if self._is_under_way(partition):
                    continue
                offset: int | None = sought
            else:
                offset = self._expected_position(partition) if reached >= 0 else None
            if offset is None or offset == reached:
                del self._suspects[partition]
                self._answers.pop(partition, None)
                continue
            self._native.seek(partition, offset)
            self._sought[partition] = offset
            self._answers.pop(partition, None)
            self._suspects[partition] = time.monotonic() + SEEK_SECONDS

    def _is_under_way(self, partition: TopicPartition) -> bool:
        """Whether a seek still has time: to make it again would begin the fetch anew."""
        now = time.monotonic()
        if not self._suspects[partition]:
            self._suspects[partition] = now + SEEK_SECONDS
        return now < self._suspects[partition]

    def _expected_position(self, partition: TopicPartition) -> int | None:
        """Where the messages follow that have not arrived yet; None if that is just where librdkafka is."""
        last = self._fetched.last_offset(partition)
        offset = self._handed_out.following.get(partition) if last is None else last + 1
        committed, ends = self._answers.setdefault(partition, ([], []))
        if offset is None and self._native.group_id is not None:
            offset = self._native.committed([partition], committed)[partition]
        if offset is None:
            offset = self._reset
        if offset == BEGINNING:
            offset, _ = self._native.ends(partition, ends)  # so that it can be seen whether librdkafka goes there
        return None if offset == END else offset

    # Partitions that go

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget everything of partitions that are not ours any more."""
        gone = list(partitions)
        self._handed_out.drop(gone, REVOKED)
        self._drop_messages(gone)
        for partition in gone:
            self._answers.pop(partition, None)
            self._doubtful.pop(partition, None)
            self._handed_out.following.pop(partition, None)

    def forget_all(self) -> None:
        """Forget everything: something else is read from here on."""
        self._doubtful.clear()
        self._reached.clear()
        self._sought.clear()
        self._suspects.clear()
        self._answers.clear()
        self._handed_out.following.clear()

    def _drop_messages(self, places: Iterable[tuple[str, int]]) -> None:
        gone = list(places)
        self._fetched.drop(gone)
        for place in gone:
            self._reached.pop(place, None)
            self._sought.pop(place, None)
            self._suspects.pop(TopicPartition(*place), None)
