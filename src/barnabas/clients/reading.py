"""The engine of both consumers: what was fetched, and how it is handed out.

Records come from librdkafka in batches and are handed out one by one or many at a time. librdkafka is asked for more
only when nothing is buffered, and rebalances happen only then. So a partition is never taken away while records of it
are waiting here.

A reader is described in four parts, each built on the one before: what may be committed (committing.py), where it is
read (seeking.py), what is read (subscribing.py), and here the way of the records themselves.

All methods that ask a broker wait for it. One thread at a time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.errors import ClientClosed, DeserializationFailed, InvalidClientConfig, translated
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V
from barnabas.clients.subscribing import SubscribingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.model.base_error import BarnabasError

logger = logging.getLogger(__name__)

SLICE: Final = 0.2
"""How long a call into librdkafka may keep Ctrl-C waiting, in seconds."""


class Reader(SubscribingReader[K, V]):
    """Fetches, buffers, hands out and commits."""

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

    def close(self) -> None:
        """Commit what is done if that is automatic, and leave the group."""
        if self.closed:
            return
        self.closed = True
        if self.auto_commit:
            self._store()
        self._buffer.clear()
        self._client.close()

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
