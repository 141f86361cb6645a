"""The engine of both consumers: its parts, and the way of the records through them.

    native.py       librdkafka's consumer, with its errors as ours
    receiving.py    how messages come from librdkafka: none is lost, also if a signal handler raises
    fetched.py      what was fetched and waits to be handed out, in order
    handed_out.py   the offsets of what was handed out and is not committed
    committing.py   which offsets go to the group: only of records that the program is done with
    seeking.py      where partitions are read
    subscribing.py  what is read, and what a rebalance changes

Messages come from librdkafka in batches, are made into records some at a time, and are handed out one by one or many at
a time. librdkafka is asked for more when nothing is left, and heard every second or so while records are handed out
(`look`): then what is done with is stored for the next commit, rebalances happen, and librdkafka learns that the
program is alive (max.poll.interval.ms).

All methods that ask a broker wait for it. One thread at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic

from barnabas.clients.consumer.committing import Commits
from barnabas.clients.consumer.fetched import FetchedRecords
from barnabas.clients.consumer.handed_out import HandedOut
from barnabas.clients.consumer.native import NativeConsumer
from barnabas.clients.consumer.receiving import Receiver
from barnabas.clients.consumer.seeking import Positions
from barnabas.clients.consumer.subscribing import Subscription
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.clients.serializers import Deserializer

SLICE: Final = 0.2
"""How long a call into librdkafka may keep Ctrl-C waiting, in seconds."""
AHEAD: Final = 64
"""How many records are made of messages at a time: a deserializer may take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How records are read."""

    group_id: str | None
    """The consumer's group, if it has one."""
    incremental: bool
    """Whether rebalances revoke only partitions that move."""
    auto_commit: bool
    reset: int | None
    """Where to begin without a committed offset: BEGINNING or END; None raises an error."""
    max_records: int
    """How many records are fetched at a time."""
    poll_every: float
    """For how many seconds records may be handed out before librdkafka hears of the program again."""


class RecordReader(Generic[K, V]):
    """Fetches records and hands them out."""

    def __init__(
        self,
        kafka: Any,
        client: Any,
        options: ReadOptions,
        key_deserializer: Deserializer[K] | None,
        value_deserializer: Deserializer[V] | None,
    ) -> None:
        self.max_records = options.max_records
        self.native = native = NativeConsumer(kafka, client, group_id=options.group_id)
        self.fetched = fetched = FetchedRecords[K, V](key_deserializer, value_deserializer, options.group_id)
        self.handed_out = handed_out = HandedOut(fetched, auto_commit=options.auto_commit)
        self.commits = Commits(native, fetched, handed_out, automatic=options.auto_commit)
        self.positions = Positions(native, fetched, handed_out, reset=options.reset)
        self.subscription = Subscription(
            native, fetched, handed_out, self.commits, self.positions, incremental=options.incremental
        )
        self.receiver = Receiver(native, fetched, self.positions, poll_every=options.poll_every)

    @property
    def closed(self) -> bool:
        """Whether it is closed, or left in the parent of this process."""
        return self.native.closed

    def take(self) -> ConsumerRecord[K, V] | None:
        """The next record that is already here, or None."""
        fetched = self.fetched
        if fetched.at >= len(fetched.records) and not self.prepare():
            return None
        record = fetched.records[fetched.at]
        fetched.hand = 1
        fetched.at += 1
        return record

    def take_many(self, limit: int) -> list[ConsumerRecord[K, V]]:
        """Records that are already here, at most `limit`. One that cannot be read ends the list, or is raised."""
        fetched = self.fetched
        fetched.put_back()
        if not self.prepare(limit):
            return []
        records = fetched.records[: fetched.at + limit]
        fetched.hand = fetched.at = len(records)
        return records

    def prepare(self, limit: int = AHEAD) -> bool:
        """Make records of the next messages, unless there are some; whether there are any. Raises what is in the way.

        Whoever asks for this has come back from what was handed out before.
        """
        fetched = self.fetched
        if fetched.at < len(fetched.records):
            return True
        fetched.hand = 0
        self.handed_out.count()
        return fetched.refill(limit)

    def fetch(self, timeout: float, limit: int | None = None) -> bool:
        """Wait for records, unless some are here; whether there are any.

        Whoever asks is done with everything that was handed out before.
        """
        receiver, fetched = self.receiver, self.fetched
        self.commits.done()
        self.subscription.require_ready()
        self._recover()
        self.positions.settle_doubts()
        if fetched:
            if monotonic() >= receiver.due:
                self.look()
            if fetched:
                return True
        wanted = limit or self.max_records
        receiver.receive(wanted)
        receiver.wait(timeout, wanted)
        self._sort()
        return bool(fetched)

    def look(self) -> None:
        """Let librdkafka know in the middle of many records that the program goes on, and hear what it has to say."""
        self.commits.done()
        self._recover()
        self.receiver.receive(1)
        self._sort()

    def at_end(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether everything up to `ends` was handed out, or is somebody else's now; paused partitions do not count.

        Partitions that have come since are added, with where they end now.
        """
        if self.subscription.between_assignments:
            return False
        assigned = self.native.assignment()
        if self.subscription.rebalances is not None and not assigned and not ends:
            return False
        came = [partition for partition in assigned if partition not in ends]
        if came:
            ends |= self.native.last_offsets(came)
        return all(
            self.fetched.is_held(place) or (self.positions.position(place) or 0) >= ends[place] for place in assigned
        )

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until they are resumed."""
        paused = list(partitions)
        self.native.pause(paused)
        self.fetched.hold(paused)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand these partitions out again."""
        resumed = list(partitions)
        self.native.resume(resumed)
        self.fetched.release(resumed)

    def close(self, timeout: float | None = None) -> None:
        """Commit what is done if that is automatic, and leave the group; after `timeout` seconds without its answer."""
        if self.native.closed:
            return
        self.native.closed = True
        try:
            try:
                self.commits.leave_hand()
            finally:
                self.native.close(timeout, subscribed=self.subscription.rebalances is not None)
        finally:
            self.fetched.clear()
        self.subscription.raise_failed_callback()

    def forked(self) -> None:
        """In a child of this process: the group has the parent for a member, not this one."""
        self.native.forked()
        self.fetched.clear()

    def _recover(self) -> None:
        self.receiver.recover()
        self.subscription.raise_failed_callback()

    def _sort(self) -> None:
        self.receiver.sort()
        self.subscription.raise_failed_callback()
