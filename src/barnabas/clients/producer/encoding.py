"""A record as librdkafka takes it: serialized, with a partition, and the errors of what it does not take.

librdkafka has the usual partitioners built in. One that is written in Python has to know how many partitions a topic
has: the cluster is asked, and believed for a while.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.errors import BrokerSilent, InvalidClientConfig, SerializationFailed, translated
from barnabas.clients.producer.delivery import delivery_error
from barnabas.clients.records import as_milliseconds
from barnabas.model.permissions import on_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from barnabas.clients.partitioners import Partitioner
    from barnabas.clients.producer.native import NativeProducer
    from barnabas.clients.records import Headers

SERIALIZE: Final = (
    ". Give key_serializer= or value_serializer= for anything but bytes and str, as JSON of "
    "barnabas.clients.serializers"
)
BYTES_LIKE: Final = (bytes, bytearray, memoryview, str)
"""What librdkafka takes as a key or a value."""
COUNT_AGE: Final = 300.0
"""For how many seconds a topic's number of partitions is believed, as Kafka's metadata.max.age.ms has it."""
_RETRY_COUNT_SECONDS: Final = 0.02


class RecordEncoder:
    """Makes of a record what confluent-kafka's `produce` takes."""

    def __init__(
        self,
        serialize_key: Callable[[Any], bytes | str] | None,
        serialize_value: Callable[[Any], bytes | str] | None,
        partitioner: Partitioner | None,
        counts: PartitionCounts,
    ) -> None:
        """`partitioner` is None where librdkafka has it built in."""
        self._serialize_key = serialize_key
        self._serialize_value = serialize_value
        self._partitioner = partitioner
        self._counts = counts
        self.plain = serialize_key is None and serialize_value is None and partitioner is None
        """Whether records are given to librdkafka as they are."""

    def needs_count(self, topic: str) -> bool:
        """Whether the topic's partitions have to be counted before a record is encoded."""
        return self._partitioner is not None and not self._counts.is_known(topic)

    def encode(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp: int | datetime | None,
        settle: Callable[[Any, Any], None],
    ) -> tuple[Any, ...]:
        """The arguments of `produce`, in its order. Raises SerializationFailed."""
        if self._serialize_value is not None and value is not None:
            value = _serialize(self._serialize_value, value, "value", topic)
        if self._serialize_key is not None and key is not None:
            key = _serialize(self._serialize_key, key, "key", topic)
        if partition is None:
            partition = -1 if self._partitioner is None else self._choose(self._partitioner, topic, key)
        if headers is not None and not isinstance(headers, (list, dict)):
            headers = list(headers.items() if hasattr(headers, "items") else headers)
        if headers:
            _check_names(headers, topic)
        when = 0
        if timestamp is not None:
            when = as_milliseconds(timestamp)
            if when == 0:
                raise InvalidClientConfig(
                    f"record for {topic}: librdkafka takes the timestamp 0 for now; the first is 1"
                )
        return (topic, value, key, partition, settle, None, when, headers)

    def _choose(self, partitioner: Partitioner, topic: str, key: bytes | str | None) -> int:
        count = self._counts.last_count(topic)
        chosen = partitioner(topic, key.encode() if isinstance(key, str) else key, count)
        if not 0 <= chosen < count:
            raise InvalidClientConfig(f"the partitioner chose {chosen} of {topic}, whose last partition is {count - 1}")
        return chosen


class PartitionCounts:
    """How many partitions topics have."""

    def __init__(self, native: NativeProducer, max_block: float) -> None:
        self._native = native
        self._max_block = max_block
        self._counts: dict[str, tuple[int, float]] = {}

    def is_known(self, topic: str) -> bool:
        """Whether a topic was counted, not too long ago."""
        found = self._counts.get(topic)
        return found is not None and found[1] > time.monotonic()

    def last_count(self, topic: str) -> int:
        """The number of a topic that was counted."""
        return self._counts[topic][0]

    def count(self, topic: str) -> int:
        """Ask the cluster how many partitions a topic has; waits up to `max_block`."""
        deadline = time.monotonic() + self._max_block
        while True:
            left = deadline - time.monotonic()
            try:
                found = self._native.client.list_topics(topic, timeout=max(left, 0.001)).topics[topic]
            except self._native.kafka.KafkaException as error:
                raise translated(error.args[0], f"partitions of {topic}") from error
            if found.partitions:
                self._counts[topic] = (len(found.partitions), time.monotonic() + COUNT_AGE)
                return len(found.partitions)
            if found.error is not None and found.error.code() == found.error.TOPIC_AUTHORIZATION_FAILED:
                raise translated(found.error, f"partitions of {topic}", on_topic("see", "Describe", topic))
            if left <= 0:
                raise BrokerSilent(f"{topic} has no partitions after {self._max_block:g} s: {found.error}")
            time.sleep(_RETRY_COUNT_SECONDS)


def refusal(arguments: tuple[Any, ...], error: Exception, fatal: Any = None) -> Exception:
    """Why librdkafka did not take a record, as one of our errors; `fatal` as in `delivery_error`."""
    what = f"record for {arguments[0]}"
    if isinstance(error, TypeError):
        fits = all(part is None or isinstance(part, BYTES_LIKE) for part in arguments[1:3])
        return SerializationFailed(f"{what}: {error}{'' if fits else SERIALIZE}")
    if isinstance(error, OverflowError):
        partition, timestamp = arguments[3], arguments[6]
        return InvalidClientConfig(f"{what}: no broker takes partition {partition} with timestamp {timestamp}: {error}")
    return delivery_error(error.args[0], str(arguments[0]), fatal)


def _check_names(headers: Any, topic: str) -> None:
    """Refuse a header's name that is not Unicode: confluent-kafka ends the process over it."""
    for each in headers:
        name = each if isinstance(headers, dict) else each[0] if isinstance(each, tuple) and each else None
        if isinstance(name, str) and not name.isascii():
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise SerializationFailed(
                    f"record for {topic}: the name of a header is not Unicode: {error}"
                ) from error


def _serialize(serialize: Callable[[Any], bytes | str], value: object, what: str, topic: str) -> bytes | str:
    try:
        return serialize(value)
    except Exception as error:
        raise SerializationFailed(
            f"{what} of a record for {topic}: {type(error).__name__}: {error} ({type(value).__name__} was given)"
        ) from error
