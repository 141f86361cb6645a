"""The engine of both consumers: what was fetched, what was handed out, and what may be committed.

Records come from librdkafka in batches and are handed out one by one or many at a time. Three rules hold:

- An offset is stored for committing only when its record was handed out *and* the program came back for more (or
  committed, or closed without an error): what was being worked on when a program failed is read again.
- librdkafka is asked for more only when nothing is buffered, and rebalances happen only then. So a partition is never
  taken away while records of it are waiting here.
- Records of a paused partition that were fetched before are held, and come first when it is resumed.

All methods that ask a broker wait for it. One thread at a time.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic

from barnabas.clients.errors import (
    ClientClosed,
    DeserializationFailed,
    InvalidClientConfig,
    RequestRefused,
    translated,
)
from barnabas.clients.limits import MAX_INT64, within
from barnabas.clients.patterns import as_posix
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V
from barnabas.clients.serializers import from_bytes
from barnabas.model.errors import BarnabasError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from barnabas.clients.serializers import Deserializer

    Topics: TypeAlias = "str | re.Pattern[str] | Iterable[str | re.Pattern[str]]"
    RebalanceCallback: TypeAlias = "Callable[[list[TopicPartition]], object]"
    CommitCallback: TypeAlias = "Callable[[Mapping[TopicPartition, int], BarnabasError | None], object]"
    Start: TypeAlias = "Callable[[TopicPartition], int | None]"

logger = logging.getLogger(__name__)

TIMEOUT: Final = 30.0
SLICE: Final = 0.2
"""How long a call into librdkafka may keep Ctrl-C waiting, in seconds."""
POSIX_CLASS: Final = re.compile(r"\[:\^?\w+:\]")
BEGINNING: Final = -2
END: Final = -1
"""Offsets that stand for the ends of a log, as librdkafka and Kafka have them."""


class Reader(Generic[K, V]):
    """Fetches, buffers, hands out and commits."""

    def __init__(
        self,
        kafka: Any,
        client: Any,
        *,
        grouped: bool,
        incremental: bool,
        auto_commit: bool,
        reset: int,
        max_records: int,
        key_deserializer: Deserializer[K] | None,
        value_deserializer: Deserializer[V] | None,
    ) -> None:
        """`grouped`: has a group; `incremental`: rebalances take away only what moves; `reset`: BEGINNING or END."""
        self.closed = False
        self.max_records = max_records
        self._kafka = kafka
        self._client = client
        self.auto_commit = auto_commit
        self.grouped = grouped
        self._incremental = incremental
        self._reset = reset
        self._read_key = from_bytes(key_deserializer)
        self._read_value = from_bytes(value_deserializer)
        self._buffer: deque[Any] = deque()
        self._held: dict[TopicPartition, list[Any]] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._asked: dict[tuple[str, int], int] = {}
        """Offsets that are to be committed, automatically or without anybody waiting: `commit` repeats them."""
        self._reached: dict[tuple[str, int], int] = {}
        self._in_hand: Sequence[ConsumerRecord[K, V]] = ()
        self._chosen = False
        """Whether it was said what to read."""
        self._sought: dict[tuple[str, int], int] = {}
        """Where partitions were moved to of which nothing has come since."""

    # Handing out

    def take(self) -> ConsumerRecord[K, V] | None:
        """The next record that is already here, or None."""
        if not self._buffer:
            return None
        message = self._buffer[0]
        if message.error() is not None:
            raise self._next_error()
        record = self._record(message)
        self._buffer.popleft()
        self._hand_out(record)
        self._in_hand = (record,)
        return record

    def take_many(self, limit: int) -> list[ConsumerRecord[K, V]]:
        """Records that are already here, at most `limit`. One that cannot be read ends the list, or is raised."""
        records: list[ConsumerRecord[K, V]] = []
        while self._buffer and len(records) < limit:
            message = self._buffer[0]
            try:
                if message.error() is not None:
                    if records:
                        break
                    raise self._next_error()
                record = self._record(message)
            except DeserializationFailed:
                if records:
                    break
                raise
            self._buffer.popleft()
            self._hand_out(record)
            records.append(record)
        self._in_hand = records
        return records

    def fetch(self, timeout: float, limit: int | None = None) -> bool:
        """Wait for records, unless some are here; whether there are any.

        Whoever asks is done with everything that was handed out before.
        """
        self.done()
        if self._buffer:
            return True
        if self.closed:
            raise ClientClosed("the consumer is closed")
        if not self._chosen:
            raise InvalidClientConfig("there is nothing to read: give topics, or call subscribe() or assign()")
        wanted = limit or self.max_records
        try:
            found = self._client.consume(wanted, 0)
            if not found and timeout > 0:
                message = self._client.poll(timeout)
                if message is not None:
                    found = [message, *self._client.consume(wanted - 1, 0)] if wanted > 1 else [message]
        except self._kafka.KafkaException as error:
            raise translated(error.args[0], "read") from error
        astray = self._astray(found) if self._sought else {}
        for message in found:
            if astray and (message.topic(), message.partition()) in astray:
                continue
            trouble = message.error()
            if trouble is not None and trouble.code() == trouble._PARTITION_EOF:
                self._reached[message.topic(), message.partition()] = message.offset()
            elif trouble is not None and trouble.code() == trouble._MAX_POLL_EXCEEDED:
                # No error but news, told again by `on_lost`: the group went on without this member, which now rejoins.
                logger.warning("this consumer was too slow for its group: %s", trouble.str())
            else:
                self._buffer.append(message)
        for place, offset in astray.items():  # last: where that fails, what came of other partitions is kept
            self._move(TopicPartition(*place), offset)
            del self._sought[place]
        return bool(self._buffer)

    def _astray(self, messages: Iterable[Any]) -> dict[tuple[str, int], int]:
        """Partitions of which something came that is not from where they were moved to, with that offset.

        librdkafka seldom loses a seek that comes while a partition is just being begun with, and goes on with the place
        at which it began. So a partition of which anything else comes first is moved once more, now that it is being
        read. What comes then counts: the offset may be one that the log does not have.
        """
        astray: dict[tuple[str, int], int] = {}
        for message in messages:
            place = (message.topic(), message.partition())
            offset = self._sought.get(place)
            if offset is None or place in astray:
                continue
            if message.offset() == offset:
                del self._sought[place]
            else:
                astray[place] = offset
        return astray

    def done(self) -> None:
        """Everything that was handed out is processed: store its offsets for the next commit."""
        self._in_hand = ()
        if self.auto_commit and self._next:
            self._store()
            self._first.clear()

    def failed(self) -> None:
        """What is in hand was not processed: it will be read again by whoever comes next."""
        for record in reversed(self._in_hand):
            self._next[record.topic, record.partition] = record.offset
        self._in_hand = ()

    def handed_out(self) -> dict[TopicPartition, int]:
        """The next offset of each partition from which something was handed out and not committed."""
        return {TopicPartition(*partition): offset for partition, offset in self._next.items()}

    def take_back(self) -> None:
        """Go back to before what was handed out and not committed."""
        first = {TopicPartition(*partition): offset for partition, offset in self._first.items()}
        self._forget_handed_out()
        assigned = set(self.assignment())
        for partition, offset in first.items():
            if partition in assigned:
                self.seek(partition, offset)

    def mark_committed(self) -> None:
        """What was handed out is committed, by other means than a commit here."""
        self._asked.clear()
        self._forget_handed_out()

    def _forget_handed_out(self) -> None:
        self._next.clear()
        self._first.clear()
        self._in_hand = ()

    def _next_error(self) -> BarnabasError:
        message = self._buffer.popleft()
        return translated(message.error(), f"read {message.topic()}" if message.topic() else "read")

    def _hand_out(self, record: ConsumerRecord[K, V]) -> None:
        place = (record.topic, record.partition)
        self._next[place] = record.offset + 1
        if place not in self._first:
            self._first[place] = record.offset

    def _record(self, message: Any) -> ConsumerRecord[K, V]:
        key, value = message.key(), message.value()
        if self._read_key is not None and key is not None:
            key = self._deserialized(self._read_key, key, "key", message)
        if self._read_value is not None and value is not None:
            value = self._deserialized(self._read_value, value, "value", message)
        kind, timestamp = message.timestamp()
        headers = message.headers()
        return ConsumerRecord(
            message.topic(),
            message.partition(),
            message.offset(),
            timestamp,
            kind,
            key,
            value,
            tuple(headers) if headers else (),
            message.leader_epoch(),
        )

    def _deserialized(self, read: Callable[[bytes], Any], data: bytes, what: str, message: Any) -> Any:
        try:
            return read(data)
        except Exception as error:
            raise DeserializationFailed(
                f"{what} of {message.topic()}-{message.partition()} at offset {message.offset()}: "
                f"{type(error).__name__}: {error}",
                partition=TopicPartition(message.topic(), message.partition()),
                offset=message.offset(),
                data=data,
            ) from error

    # Committing

    def commit(self, offsets: Mapping[TopicPartition, int] | None, *, wait: bool) -> None:
        """Commit these offsets, or all that was handed out.

        librdkafka is always told the offsets: of those that are stored with it, it leaves out what lies before the
        committed ones, as after a seek backwards.
        """
        self._need_group("commit")
        if offsets is None:
            self._in_hand = ()
            if self.auto_commit:
                self._store()  # or an automatic commit would repeat what was stored before
        wanted = {**self._asked, **self._next} if offsets is None else offsets
        if not wanted:
            return
        places = [self._kafka.TopicPartition(*partition, offset) for partition, offset in wanted.items()]
        try:
            answer = self._client.commit(offsets=places, asynchronous=not wait)
        except self._kafka.KafkaException as error:
            raise translated(error.args[0], "commit") from error
        for partition in answer or ():
            if partition.error is not None:
                raise translated(partition.error, f"commit {partition.topic}-{partition.partition}")
        if offsets is None:
            self._asked = {} if wait else {**self._asked, **self._next}
            self._next.clear()
        self._first.clear()

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition; None where there is none."""
        self._need_group("ask for committed offsets")
        found = self._ask("committed offsets", self._client.committed, self._plain(partitions), TIMEOUT)
        return {TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in found}

    def _store(self) -> None:
        if not self._next:
            return
        offsets = [self._kafka.TopicPartition(*partition, offset) for partition, offset in self._next.items()]
        self._asked |= self._next
        self._next.clear()
        try:
            self._client.store_offsets(offsets=offsets)
        except self._kafka.KafkaException as error:
            # A partition that was taken away meanwhile: whoever has it now reads from the last commit.
            if error.args[0].code() != error.args[0]._STATE:
                raise translated(error.args[0], "store offsets") from error

    def _need_group(self, doing: str) -> None:
        if not self.grouped:
            raise InvalidClientConfig(f"to {doing}, a consumer needs a group: give group_id=")

    # What is read

    def subscribe(
        self,
        topics: Topics,
        *,
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
        start: Start | None,
    ) -> None:
        """Read topics: shared with the group's other members, or all partitions of them if there is no group."""
        wanted = [topics] if isinstance(topics, (str, re.Pattern)) else list(topics)
        if not wanted:
            raise InvalidClientConfig("no topics are given")
        self.done()
        if not self.grouped:
            partitions = self._all_partitions(wanted)
            self.assign({partition: start(partition) if start else None for partition in partitions})
            if on_assign is not None:
                on_assign(partitions)
            return

        def assigned(_: Any, given: list[Any]) -> None:
            partitions = [TopicPartition(p.topic, p.partition) for p in given]
            if start is not None:
                places = [self._place(partition, start(partition)) for partition in partitions]
                (self._client.incremental_assign if self._incremental else self._client.assign)(places)
            if on_assign is not None:
                on_assign(partitions)

        def revoked(_: Any, given: list[Any]) -> None:
            partitions = [TopicPartition(p.topic, p.partition) for p in given]
            if self.auto_commit:
                self._store()
            if on_revoke is not None:
                on_revoke(partitions)
            self._lose(partitions)

        def lost(_: Any, given: list[Any]) -> None:
            partitions = [TopicPartition(p.topic, p.partition) for p in given]
            self._lose(partitions)
            told = on_lost or on_revoke
            if told is not None:
                told(partitions)

        self._forget_all()
        self._chosen = True
        names = [_for_librdkafka(topic) for topic in wanted]
        try:
            self._client.subscribe(names, on_assign=assigned, on_revoke=revoked, on_lost=lost)
        except self._kafka.KafkaException as error:
            raise translated(error.args[0], f"subscribe to {', '.join(names)}") from error

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        self.done()
        if self.grouped:
            self._client.unsubscribe()
        self._client.unassign()
        self._forget_all()
        self._chosen = False

    def assign(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from these offsets; None: from the committed offset, or from where a reset goes."""
        self.done()
        self._forget_all()
        self._chosen = True
        places = [self._place(partition, offset) for partition, offset in offsets.items()]
        self._ask("assign partitions", self._client.assign, places)

    def assignment(self) -> list[TopicPartition]:
        """What is being read now."""
        return sorted(TopicPartition(p.topic, p.partition) for p in self._client.assignment())

    def _place(self, partition: TopicPartition, offset: int | None) -> Any:
        if offset is None:
            offset = self._kafka.OFFSET_INVALID if self.grouped else self._reset
        else:
            within(f"offset of {partition}", offset, BEGINNING, MAX_INT64)
        return self._kafka.TopicPartition(*partition, offset)

    def _all_partitions(self, topics: list[str | re.Pattern[str]]) -> list[TopicPartition]:
        names = {topic for topic in topics if isinstance(topic, str) and not topic.startswith("^")}
        matches = [
            topic.fullmatch if isinstance(topic, re.Pattern) else _compiled(topic).match
            for topic in topics
            if topic not in names
        ]
        if matches:
            known = self._ask("list topics", lambda: self._client.list_topics(timeout=TIMEOUT)).topics
            names |= {name for name in known if any(match(name) for match in matches)}
        return [partition for name in sorted(names) for partition in self.partitions(name)]

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic; waits a moment for one that is just being made."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = self._ask("list topics", lambda: self._client.list_topics(topic, timeout=TIMEOUT)).topics[topic]
            if found.partitions:
                return [TopicPartition(topic, number) for number in sorted(found.partitions)]
            if time.monotonic() > deadline or found.error is None or not self._may_come(found.error):
                raise RequestRefused(ErrorCode.unknown_topic_or_partition, f"topic {topic} does not exist")
            time.sleep(0.05)

    def _may_come(self, error: Any) -> bool:
        return bool(error.code() == self._kafka.KafkaError.LEADER_NOT_AVAILABLE)

    # Where it is read

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset."""
        self._place(partition, offset)
        self._forget([partition])
        self._move(partition, offset)
        if offset >= 0:
            self._sought[partition] = offset

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

    # The rest

    def group_metadata(self) -> Any:
        """What a transaction needs to know of the group."""
        self._need_group("take part in a transaction")
        return self._client.consumer_group_metadata()

    def close(self) -> None:
        """Commit what is done if that is automatic, and leave the group."""
        if self.closed:
            return
        self.closed = True
        if self.auto_commit:
            self._store()
        self._buffer.clear()
        self._client.close()

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

    def _lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that another member may have now: to commit them here could take that one back."""
        gone = list(partitions)
        self._forget(gone)
        for partition in gone:
            self._asked.pop(partition, None)

    def _forget_all(self) -> None:
        self.mark_committed()
        self._reached.clear()
        self._sought.clear()
        self._held.clear()
        self._buffer.clear()

    def _plain(self, partitions: Iterable[TopicPartition]) -> list[Any]:
        return [self._kafka.TopicPartition(*partition) for partition in partitions]

    def _ask(self, doing: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._kafka.KafkaException as error:
            raise translated(error.args[0], doing) from error
        except RuntimeError as error:
            raise ClientClosed("the consumer is closed") from error


def _compiled(topic: str) -> re.Pattern[str]:
    """A string that begins with ^: a pattern that names begin with."""
    if POSIX_CLASS.search(topic):
        raise InvalidClientConfig(
            f"{topic!r} has a class like [[:digit:]], which Python reads as something else: write \\d, or [0-9]"
        )
    try:
        return re.compile(topic)
    except re.error as error:
        raise InvalidClientConfig(f"{topic!r} is not a regular expression: {error}") from error


def _for_librdkafka(topic: str | re.Pattern[str]) -> str:
    """A name, or a pattern in the form that librdkafka and brokers read.

    In the classic protocol librdkafka looks for it anywhere in a name; in the new one the broker matches whole names.
    So each pattern is one for whole names, and one for beginnings says that anything may follow.
    """
    if isinstance(topic, re.Pattern):
        return f"^({as_posix(topic)})$"
    return f"^({as_posix(_compiled(topic))}).*$" if topic.startswith("^") else topic
