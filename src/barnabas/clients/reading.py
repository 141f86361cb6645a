"""The engine of both consumers: what was fetched, and how it is handed out.

Messages come from librdkafka in batches, are made into records some at a time, and are handed out one by one or many at
a time. librdkafka is asked for more when nothing is left, and heard every second or so while records are handed out
(`look`): then what is done with is stored for the next commit, rebalances happen, and librdkafka learns that the
program is alive (max.poll.interval.ms). What was fetched of a partition that is taken away is dropped.

A signal handler may raise between any two of Python's instructions, and loses nothing: what librdkafka gives is kept by
the same call (`_receive`), and a record counts as handed out by the assignment before it is.

A reader is described in four parts, each built on the one before: what may be committed (committing.py), where it is
read (seeking.py), what is read (subscribing.py), and here the way of the records themselves.

All methods that ask a broker wait for it. One thread at a time.
"""

from __future__ import annotations

from collections import deque
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.closed import Closed, left_in_parent
from barnabas.clients.config import log
from barnabas.clients.errors import DeserializationFailed, InvalidClientConfig, translated
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V
from barnabas.clients.subscribing import SubscribingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.model.base_error import BarnabasError

SLICE: Final = 0.2
"""How long a call into librdkafka may keep Ctrl-C waiting, in seconds."""
_new: Final = tuple.__new__
"""A record is made of nine values that are all there: without the call of its class it takes half the time."""
GIVE_BACK_SECONDS: Final = 5.0
"""How long a rebalance callback at the end may be waited for."""
AHEAD: Final = 64
"""How many records are made of messages at a time: a deserializer may take long."""


class Reader(SubscribingReader[K, V]):
    """Fetches, buffers, hands out and commits."""

    def take(self) -> ConsumerRecord[K, V] | None:
        """The next record that is already here, or None."""
        if self.at >= len(self.records) and not self.prepare():
            return None
        record = self.records[self.at]
        self.hand = 1
        self.at += 1
        return record

    def take_many(self, limit: int) -> list[ConsumerRecord[K, V]]:
        """Records that are already here, at most `limit`. One that cannot be read ends the list, or is raised."""
        self._put_back()
        if not self.prepare(limit):
            return []
        records = self.records[: self.at + limit]
        self.hand = self.at = len(records)
        return records

    def prepare(self, limit: int = AHEAD) -> bool:
        """Make records of the next messages, unless there are some; whether there are any. Raises what is in the way.

        Whoever asks for this has come back from what was handed out before.
        """
        if self.at < len(self.records):
            return True
        self.hand = 0
        self._note()
        messages = self._buffer[self._start : self._start + limit]
        if self._faulty:
            messages = self._up_to_error(messages)
        records = self._records(messages)
        if len(records) < len(messages):
            messages = messages[: len(records)]
        start = self._start + len(records)
        self._start, self._messages, self.records, self.at, self._noted = start, messages, records, 0, 0
        return bool(records)

    def fetch(self, timeout: float, limit: int | None = None) -> bool:
        """Wait for records, unless some are here; whether there are any.

        Whoever asks is done with everything that was handed out before.
        """
        self.done()
        self.require_chosen()
        self._raise_failed_callback()
        if self._unstarted is not None:
            raise self._unstarted
        if self._doubtful:
            self._settle_doubts()
        if self._has_some():
            if monotonic() >= self.due:
                self.look()
            if self._has_some():
                return True
        wanted = limit or self.max_records
        self._receive(self._client.consume, wanted, 0)
        if timeout > 0 and not self._has_arrived():
            self._receive(self._client.poll, timeout)
            if wanted > 1 and self._has_arrived():
                self._receive(self._client.consume, wanted - 1, 0)
        self._sort()
        return self._has_some()

    def look(self) -> None:
        """Let librdkafka know in the middle of many records that the program goes on, and hear what it has to say."""
        self.done()
        self._receive(self._client.consume, 1, 0)
        self._sort()

    def require_chosen(self) -> None:
        """Raise InvalidClientConfig if nobody has said what to read."""
        if not self._chosen:
            raise InvalidClientConfig("there is nothing to read: give topics, or call subscribe() or assign()")

    def at_end(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether everything up to `ends` was handed out, or is somebody else's now; paused partitions do not count.

        Partitions that have come since are added, with where they end now.
        """
        if self.between_assignments:
            return False
        assigned = self.assignment()
        if self._subscription is not None and not assigned and not ends:
            return False
        came = [partition for partition in assigned if partition not in ends]
        if came:
            ends |= self.last_offsets(came)
        return all(place in self._held or (self.position(place) or 0) >= ends[place] for place in assigned)

    def close(self, timeout: float | None = None) -> None:
        """Commit what is done if that is automatic, and leave the group; after `timeout` seconds without its answer.

        librdkafka waits for brokers that are away as long as for a session of the group. It does so in a thread that
        may be left behind; partitions are given back before, so that rebalance callbacks run here.
        """
        if self.closed:
            return
        self.closed = True
        try:
            self._leave_hand()
            self._close_client(timeout)
        finally:
            self._client = Closed("the consumer")
            self._put_back()
            self._buffer = []
            self._arrived.clear()
        self._raise_failed_callback()

    def forked(self) -> None:
        """In a child of this process: the group has the parent for a member, not this one."""
        self._client = left_in_parent("the consumer", self._client)
        self.closed = True
        self._put_back()
        self._buffer = []

    def _close_client(self, timeout: float | None) -> None:
        deadline = None if timeout is None else monotonic() + timeout
        if self._subscription is not None:
            self._give_back()
        failed: list[BaseException] = []

        def close(client: Any) -> None:
            try:
                client.close()
            except BaseException as error:
                failed.append(error)

        closing = Thread(target=close, args=(self._client,), name="barnabas-consumer-close", daemon=True)
        closing.start()
        closing.join(None if deadline is None else max(0.0, deadline - monotonic()))
        if closing.is_alive():
            log.warning(
                "The consumer could not leave its group within %g s, and ends without its answer. What was not "
                "committed is read again, by other members once session.timeout.ms is over",
                timeout,
            )
        for error in failed:
            raise translated(error.args[0], "close") if isinstance(error, self._kafka.KafkaException) else error

    def _give_back(self) -> None:
        """Give the partitions back to the group; librdkafka needs no broker for that, but somebody who polls."""
        self._client.unsubscribe()
        deadline = monotonic() + GIVE_BACK_SECONDS
        while self._client.assignment() and monotonic() < deadline:
            self._client.poll(0.01)

    def _has_some(self) -> bool:
        return self.at < len(self.records) or self._start < len(self._buffer)

    def _has_arrived(self) -> bool:
        return any(True for _ in _each(self._arrived))

    def _receive(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Keep what librdkafka gives, without an instruction of Python's in between."""
        try:
            self._arrived.extend(map(call, *((argument,) for argument in arguments)))
        except self._kafka.KafkaException as error:
            raise translated(error.args[0], "read") from error
        finally:
            self.due = monotonic() + self._look_every

    def _sort(self) -> None:
        """Put what has arrived into the buffer: records and errors. Ends of partitions are noted."""
        if self._arrived:
            found = list(_each(self._arrived))
            astray = self._astray(found) if self._sought else {}
            faulty = any([message.error() for message in found])  # noqa: C419  (a generator takes twice as long)
            if faulty or astray or self._doubtful:
                found = [message for message in found if self._is_to_be_read(message, astray)]
            rest = self._buffer[self._start :]
            faulty = faulty or (self._faulty and bool(rest))
            self._buffer, self._start, self._faulty, self._arrived = rest + found, 0, faulty, deque()
            for place, offset in astray.items():  # last: where that fails, what came of other partitions is kept
                self._move(TopicPartition(*place), offset)
                del self._sought[place]
        self._raise_failed_callback()

    def _is_to_be_read(self, message: Any, astray: dict[tuple[str, int], int]) -> bool:
        trouble = message.error()
        if trouble is None and not astray and not self._doubtful:
            return True
        place = (message.topic(), message.partition())
        if place in astray or place in self._doubtful:
            return False
        if trouble is not None and trouble.code() == trouble._PARTITION_EOF:
            self._reached[place] = message.offset()
            return False
        if trouble is not None and trouble.code() == trouble._MAX_POLL_EXCEEDED:
            log.error(
                "The group went on without this consumer, which asked for no records for longer than "
                "max.poll.interval.ms. What it was handed out and has not committed is read again, here or by another "
                "member. Take fewer records at a time (max_poll_records, or max_records of poll), or give "
                "max_poll_interval_ms= more time than the work on them takes. librdkafka says: %s",
                trouble.str(),
            )
            return False
        return True

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

    def _translated(self, message: Any) -> BarnabasError:
        where = f" {message.topic()} partition {message.partition()}" if message.topic() else ""
        return translated(message.error(), f"read{where}")

    def _up_to_error(self, messages: list[Any]) -> list[Any]:
        """Messages that are records, up to the first that is an error; that is raised if it is the very first."""
        for number, message in enumerate(messages):
            if message.error() is not None:
                if number:
                    return messages[:number]
                self._start += 1
                raise self._translated(message)
        return messages

    def _records(self, messages: list[Any]) -> list[ConsumerRecord[K, V]]:
        """Records of messages, up to the first that cannot be read; that is raised if it is the very first."""
        keys = self._deserialized(self._read_key, [message.key() for message in messages], "key", messages)
        values = self._deserialized(self._read_value, [message.value() for message in messages], "value", messages)
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

    def _deserialized(
        self, read: Callable[[bytes], Any] | None, found: list[bytes | None], what: str, messages: list[Any]
    ) -> list[Any]:
        if read is None:
            return found
        values: list[Any] = []
        try:
            for data in found:
                values.append(None if data is None else read(data))  # noqa: PERF401  (those before an error count)
        except Exception as error:
            if not values:
                raise _unreadable(messages[0], what, found[0] or b"", error) from error
        return values


def _unreadable(message: Any, what: str, data: bytes, error: Exception) -> DeserializationFailed:
    place = TopicPartition(message.topic(), message.partition())
    told = f"{what} of {place} at offset {message.offset()}: {type(error).__name__}: {error}"
    return DeserializationFailed(told, partition=place, offset=message.offset(), data=data)


def _each(arrived: Iterable[Any]) -> Iterator[Any]:
    """Messages, from what `consume` (a list) and `poll` (one or None) gave."""
    for found in arrived:
        if isinstance(found, list):
            yield from found
        elif found is not None:
            yield found
