"""What was fetched and not handed out yet: messages of librdkafka, and the records that are made of them.

Messages wait in a buffer and are made into records some at a time, because a deserializer may take long. `records[:at]`
were handed out, and the program works on the last `hand` of them. Records of a paused partition are held apart, and
come first when it is resumed.

The promise: messages are handed out once and in their order. A message that cannot be read stays where it is and is
raised again, until a seek steps over it. A signal handler may raise between any two instructions and loses nothing:
what belongs together is assigned together.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic

from barnabas.clients.errors import DeserializationFailed, translated
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V
from barnabas.clients.serializers import from_bytes
from barnabas.model.permissions import read_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.clients.serializers import Deserializer
    from barnabas.model.base_error import BarnabasError

_new: Final = tuple.__new__
"""A record is made of nine values that are all there: without the call of its class it takes half the time."""


class FetchedRecords(Generic[K, V]):
    """The buffer of a consumer."""

    def __init__(
        self,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        group_id: str | None = None,
    ) -> None:
        self._group_id = group_id
        self._read_key = from_bytes(key_deserializer)
        self._read_value = from_bytes(value_deserializer)
        self.arrived: deque[Any] = deque()
        """What librdkafka gave, as it gave it: `Receiver` puts it in order."""
        self._buffer: list[Any] = []
        self._start = 0
        """Messages are in the buffer from here on."""
        self._may_have_errors = False
        self._messages: list[Any] = []
        """The messages that `records` were made of."""
        self._held: dict[TopicPartition, list[Any]] = {}
        """Messages of paused partitions."""
        self.records: list[ConsumerRecord[K, V]] = []
        self.at = 0
        self.hand = 0
        self.counted = 0
        """How many of `records` are counted as handed out (`HandedOut.count`); the others up to `at` are not yet."""

    def __bool__(self) -> bool:
        """Whether there is something to hand out: a record, or an error to raise."""
        return self.at < len(self.records) or self._start < len(self._buffer)

    def add(self, messages: list[Any], *, errors: bool) -> None:
        """Append messages to the buffer, which are all that has arrived; `errors`: some of them are errors."""
        rest = self._buffer[self._start :]
        errors = errors or (self._may_have_errors and bool(rest))
        self._buffer, self._start, self._may_have_errors, self.arrived = rest + messages, 0, errors, deque()

    def refill(self, limit: int) -> bool:
        """Make records of the next messages, once all records are handed out and counted; whether there are any.

        Raises an error that comes first.
        """
        messages = self._buffer[self._start : self._start + limit]
        if self._may_have_errors:
            messages = self._up_to_error(messages)
        records = self._records(messages)
        if len(records) < len(messages):
            messages = messages[: len(records)]
        start = self._start + len(records)
        self._start, self._messages, self.records, self.at, self.counted = start, messages, records, 0, 0
        return bool(records)

    def put_back(self) -> None:
        """Make messages again of the records that are next; the buffer is then just what comes next."""
        at = self.at
        buffer = [*self._messages[at:], *self._buffer[self._start :]]
        self._buffer, self._start, self.records, self._messages = buffer, 0, self.records[:at], self._messages[:at]

    def drop(self, places: Iterable[tuple[str, int]]) -> None:
        """Hand out nothing of what was fetched of these partitions."""
        self.put_back()
        gone = set(places)
        for place in gone:
            held = TopicPartition(*place)
            if held in self._held:
                self._held[held] = []
        if self._buffer:
            self._buffer = [m for m in self._buffer if m.error() or (m.topic(), m.partition()) not in gone]

    def clear(self) -> None:
        """Drop everything, and hold nothing any more."""
        self.put_back()
        self._buffer = []
        self._held.clear()
        self.arrived.clear()

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until they are released."""
        self.put_back()
        for partition in partitions:
            self._held.setdefault(partition, [])
        kept: list[Any] = []
        for message in self._buffer:
            place = TopicPartition(message.topic(), message.partition())
            if message.error() is None and place in self._held:
                self._held[place].append(message)
            else:
                kept.append(message)
        self._buffer = kept

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out these partitions again, first what was held of them."""
        self.put_back()
        for partition in partitions:
            self._buffer = [*self._held.pop(partition, []), *self._buffer]

    def is_held(self, partition: TopicPartition) -> bool:
        """Whether nothing of the partition is handed out for now."""
        return partition in self._held

    def held(self) -> list[TopicPartition]:
        """Partitions of which nothing is handed out for now."""
        return sorted(self._held)

    def first_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the next record of a partition; None if none is here."""
        return next(self._offsets(partition), None)

    def last_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the last record of a partition; None if none is here."""
        last: int | None = None
        for last in self._offsets(partition):  # noqa: B007  (the last one counts)
            pass
        return last

    def _offsets(self, partition: TopicPartition) -> Iterator[int]:
        for message in (*self._held.get(partition, ()), *self._messages[self.at :], *self._buffer[self._start :]):
            if message.error() is None and (message.topic(), message.partition()) == partition:
                yield int(message.offset())

    def _up_to_error(self, messages: list[Any]) -> list[Any]:
        """Messages that are records, up to the first that is an error; that is raised if it is the very first."""
        for number, message in enumerate(messages):
            if message.error() is not None:
                if number:
                    return messages[:number]
                self._start += 1
                raise _message_error(message, self._group_id)
        return messages

    def _records(self, messages: list[Any]) -> list[ConsumerRecord[K, V]]:
        """Records of messages, up to the first that cannot be read; that is raised if it is the very first."""
        keys = _deserialize(self._read_key, [message.key() for message in messages], "key", messages)
        values = _deserialize(self._read_value, [message.value() for message in messages], "value", messages)
        return [
            _new(
                ConsumerRecord,
                (
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    (time := message.timestamp())[1],
                    time[0],
                    key,
                    value,
                    tuple(headers) if (headers := message.headers()) else (),
                    message.leader_epoch(),
                ),
            )
            for message, key, value in zip(messages, keys, values, strict=False)
        ]


def _message_error(message: Any, group_id: str | None) -> BarnabasError:
    where = f" {message.topic()} partition {message.partition()}" if message.topic() else ""
    return translated(message.error(), f"read{where}", read_from(message.topic(), group_id))


def _deserialize(
    read: Callable[[bytes], Any] | None, found: list[bytes | None], what: str, messages: list[Any]
) -> list[Any]:
    """Values up to the first that cannot be read; that is raised if it is the very first."""
    if read is None:
        return found
    values: list[Any] = []
    try:
        for data in found:
            values.append(None if data is None else read(data))  # noqa: PERF401  (those before an error count)
    except Exception as error:
        if not values:
            raise _deserialization_failed(messages[0], what, found[0] or b"", error) from error
    return values


def _deserialization_failed(message: Any, what: str, data: bytes, error: Exception) -> DeserializationFailed:
    place = TopicPartition(message.topic(), message.partition())
    text = f"{what} of {place} at offset {message.offset()}: {type(error).__name__}: {error}"
    return DeserializationFailed(text, partition=place, offset=message.offset(), data=data)
