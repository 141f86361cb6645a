"""What a producer does before a record reaches librdkafka, the same for both kinds of producer.

A record is serialized, given a partition and put into librdkafka's buffer. When the buffer is full, the two kinds wait
in different ways; everything else is here.
"""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias

from barnabas.clients.closed import Closed, left_in_parent, watch_forks
from barnabas.clients.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    log,
    milliseconds,
    open_client,
    properties,
)
from barnabas.clients.delivery import Settlements
from barnabas.clients.errors import (
    BrokerSilent,
    BufferFull,
    InvalidClientConfig,
    ProducerFenced,
    SerializationFailed,
    translated,
)
from barnabas.clients.library import load_kafka
from barnabas.clients.partitioners import NATIVE, key_hash
from barnabas.clients.pump import Pump
from barnabas.clients.records import as_milliseconds
from barnabas.clients.serializers import to_bytes
from barnabas.clients.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from typing_extensions import TypeVar

    from barnabas.clients.consumer import ConsumerBase
    from barnabas.clients.partitioners import Partitioner
    from barnabas.clients.records import Headers
    from barnabas.clients.serializers import Serializer

    K = TypeVar("K", default=bytes | str)
    V = TypeVar("V", default=bytes | str)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Acks: TypeAlias = Literal["all", 0, 1, -1, "0", "1", "-1"]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
WhenFull: TypeAlias = Literal["block", "raise", "discard"]

SERIALIZE: Final = (
    ". Give key_serializer= or value_serializer= for anything but bytes and str, as JSON of "
    "barnabas.clients.serializers"
)
MAX_BLOCK: Final = 60.0
SLICE: Final = 0.2
"""How long a call into librdkafka may keep Ctrl-C waiting, in seconds."""
GIVE_UP_SECONDS: Final = 1.0
"""How long it may take to hear of records that were given up."""
COUNT_AGE: Final = 300.0
"""For how many seconds a topic's number of partitions is believed, as Kafka's metadata.max.age.ms has it."""


class ProducerBase(Generic[K, V]):
    """The constructor and the way of a record into the buffer."""

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS,
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        partitioner: Partitioner = key_hash,
        acks: Acks | None = None,
        retries: int | None = None,
        idempotence: bool | None = None,
        compression: Compression | None = None,
        linger: float | None = None,
        batch_messages: int | None = None,
        batch_bytes: int | None = None,
        buffer_messages: int | None = None,
        buffer_bytes: int | None = None,
        when_full: WhenFull = "block",
        max_block: float | None = None,
        delivery_timeout: float | None = None,
        transactional_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        **kafka_properties: Any,
    ) -> None:
        """Open a producer. Nothing is asked of a broker before the first record.

        - `key_serializer`, `value_serializer`: see `clients.serializers`; without one, bytes and str are taken.
        - `partitioner`: see `clients.partitioners`.
        - `acks` ("all"), `retries`, `idempotence` (on, unless acks or retries forbid it), `compression`.
        - A batch goes out when it has `batch_messages` records or `batch_bytes` bytes, or is `linger` seconds old.
        - At most `buffer_messages` records or `buffer_bytes` bytes wait to be sent. `when_full` says what `send` does
          then: "block" for up to `max_block` seconds (60), "raise" at once, or "discard" the new record.
        - `delivery_timeout`: seconds after which a record that did not arrive is given up (300).
        - `transactional_id` makes `transaction()` usable.
        - `config` and further keywords are Kafka's properties: `config={"client.id": "a"}` or `client_id="a"`.

        Raises InvalidClientConfig for what is not understood, LibraryMissing without confluent-kafka.
        """
        if when_full not in ("block", "raise", "discard"):
            raise InvalidClientConfig(f"when_full is {when_full!r}, and not block, raise or discard")
        chosen = {
            "acks": acks,
            "retries": retries,
            "enable.idempotence": idempotence,
            "compression.type": compression,
            "linger.ms": milliseconds(linger),
            "batch.num.messages": batch_messages,
            "batch.size": batch_bytes,
            "queue.buffering.max.messages": buffer_messages,
            "buffer.memory": buffer_bytes,
            "delivery.timeout.ms": milliseconds(delivery_timeout),
            "transactional.id": transactional_id,
            "max.block.ms": milliseconds(max_block),
        }
        found = properties(bootstrap_servers, config, kafka_properties, chosen)
        self._max_block = float(found.pop("max.block.ms", MAX_BLOCK * 1000)) / 1000
        self._when_full = when_full
        self._serialize_key = to_bytes(key_serializer)
        self._serialize_value = to_bytes(value_serializer)
        self._partitioner = None if partitioner in NATIVE else partitioner
        self._plain = self._serialize_key is None and self._serialize_value is None and self._partitioner is None
        """Whether records are given to librdkafka as they are."""
        if "partitioner" not in found:
            found = {**found, **NATIVE.get(partitioner, {})}
        if "enable.idempotence" not in found:
            found["enable.idempotence"] = _may_be_idempotent(found)
        self._kafka = load_kafka()
        self._client = open_client(self._kafka, "Producer", {"error_cb": _tell, **found})
        self._transactions = Transactions(self._kafka, self._client) if found.get("transactional.id") else None
        self._shared = Settlements()
        self._counts: dict[str, tuple[int, float]] = {}
        self._discarding = False
        self._closed = False
        self._shutting = threading.Lock()
        self._ended = threading.Event()
        self._pump = Pump(self._client, self._shared.failures)
        self._pump.start()
        self._finalizer = weakref.finalize(self, self._pump.abandon)
        self._finalizer.atexit = False  # the pumps see to that, also those whose producers were dropped
        watch_forks(self)

    def __len__(self) -> int:
        """How many records are on their way: not yet delivered, or delivered and not yet told."""
        return len(self._client)

    def __bool__(self) -> bool:
        """A producer is one, even with nothing on its way."""
        return True

    def _arguments(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        headers: Headers | None,
        timestamp: int | datetime | None,
        settle: Callable[[Any, Any], None],
    ) -> tuple[Any, ...]:
        """What confluent-kafka's `produce` takes, in its order. Raises SerializationFailed."""
        data: Any = value
        if self._serialize_value is not None and value is not None:
            data = _serialized(self._serialize_value, value, "value", topic)
        key_data: Any = key
        if self._serialize_key is not None and key is not None:
            key_data = _serialized(self._serialize_key, key, "key", topic)
        if partition is None:
            partition = -1 if self._partitioner is None else self._choose(topic, key_data)
        if headers is not None and not isinstance(headers, (list, dict)):
            headers = list(headers.items() if hasattr(headers, "items") else headers)
        when = 0
        if timestamp is not None:
            when = as_milliseconds(timestamp)
            if when == 0:
                raise InvalidClientConfig(
                    f"record for {topic}: librdkafka takes the timestamp 0 for now; the first is 1"
                )
        return (topic, data, key_data, partition, settle, None, when, headers)

    def _refused(self, arguments: tuple[Any, ...], error: Exception) -> Exception:
        """Why librdkafka did not take a record, in our words."""
        what = f"record for {arguments[0]}"
        if isinstance(error, TypeError):
            return SerializationFailed(f"{what}: {error}{SERIALIZE if 'bytes-like' in str(error) else ''}")
        if isinstance(error, OverflowError):
            partition, timestamp = arguments[3], arguments[6]
            return InvalidClientConfig(
                f"{what}: no broker takes partition {partition} with timestamp {timestamp}: {error}"
            )
        return translated(error.args[0], what)

    def _buffer_full(self, topic: str, waited: float) -> BufferFull:
        after = f" after {waited:g} s" if waited else ""
        return BufferFull(
            f"record for {topic}: the buffer is full{after}, with {len(self._client)} records on their way. "
            "Records are sent faster than the broker takes them, or it is out of reach"
        )

    def _discarded(self, topic: str) -> BufferFull:
        if not self._discarding:
            self._discarding = True
            log.warning("the producer's buffer is full: records are being discarded")
        return self._buffer_full(topic, 0)

    def _check_open(self) -> None:
        if self._closed:
            self._client.flush  # noqa: B018  (which says why not)

    def _choose(self, topic: str, key: bytes | str | None) -> int:
        """Ask the partitioner; the topic's partitions must have been counted."""
        assert self._partitioner is not None
        count, _ = self._counts[topic]
        chosen = self._partitioner(topic, key.encode() if isinstance(key, str) else key, count)
        if not 0 <= chosen < count:
            raise InvalidClientConfig(f"the partitioner chose {chosen} of {topic}, whose last partition is {count - 1}")
        return chosen

    def _counted(self, topic: str) -> bool:
        """Whether the partitioner can be asked, or none is."""
        if self._partitioner is None:
            return True
        known = self._counts.get(topic)
        return known is not None and known[1] > time.monotonic()

    def _count(self, topic: str) -> int:
        """Ask the cluster how many partitions a topic has; waits up to `max_block`."""
        deadline = time.monotonic() + self._max_block
        while True:
            left = deadline - time.monotonic()
            try:
                found = self._client.list_topics(topic, timeout=max(left, 0.001)).topics[topic]
            except self._kafka.KafkaException as error:
                raise translated(error.args[0], f"partitions of {topic}") from error
            if found.partitions:
                self._counts[topic] = (len(found.partitions), time.monotonic() + COUNT_AGE)
                return len(found.partitions)
            if left <= 0:
                raise BrokerSilent(f"{topic} has no partitions after {self._max_block:g} s: {found.error}")
            time.sleep(0.02)

    def _give_up(self, transactions: Transactions, error: BaseException, *, begun: bool) -> None:
        """Abort a transaction after an error. Of a fenced producer's records nothing will ever come.

        `begun`: the block that failed has begun it. What is open otherwise belongs to another block, which goes on.
        """
        fenced = isinstance(error, ProducerFenced)
        try:
            if begun and transactions.open and not fenced:
                transactions.give_up()
        except ProducerFenced:
            fenced = True
            raise
        finally:
            if fenced:
                transactions.open = transactions.undecided = False
                self._shared.failures.all_told()
                self._client.purge()
                self._wait_for_all(1.0)

    def _shut(self) -> Any:
        """Take no more records; gives librdkafka's producer, or None if somebody has done this before."""
        with self._shutting:
            if self._closed:
                return None
            self._closed = True
            client, self._client = self._client, Closed("the producer")
            self._finalizer.detach()
            return client

    def _end(self, client: Any, timeout: float | None) -> None:
        """Wait for what is on its way, give up what is late, and stop the pump.

        librdkafka's producer ends with its last reference, so a thread that is still in a call of it comes to no harm.
        """
        try:
            if self._transactions is not None and self._transactions.open:
                self._transactions.abort(timeout)
            with suppress(TimeoutError):
                self._wait_for_all(timeout, client)
        finally:
            self._give_up_rest(client)
            self._ended.set()
            self._pump.stop()
            self._pump = Pump(self._client, self._shared.failures)
            if self._transactions is not None:
                self._transactions = Transactions(self._kafka, self._client)

    def _give_up_rest(self, client: Any) -> None:
        """Tell of what has not arrived that it was given up: no future is left without an end."""
        if len(client):
            client.purge()
            with suppress(TimeoutError):
                self._wait_for_all(GIVE_UP_SECONDS, client)

    def _await_end(self, client: Any) -> None:
        """A record came into the buffer while another thread closed the producer: that thread waits for it, or we."""
        self._ended.wait()
        self._give_up_rest(client)  # of what came too late for that

    def forked(self) -> None:
        """In a child of this process: what was sent is the parent's, and nothing can be sent here."""
        self._finalizer.detach()
        self._shared.forked()
        self._client = left_in_parent("the producer", self._client)
        self._closed = True
        self._ended.set()
        if self._transactions is not None:
            self._transactions = Transactions(self._kafka, self._client)

    def _wait_for_all(self, timeout: float | None, client: Any = None) -> None:
        if client is None:
            client = self._client
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE if deadline is None else min(SLICE, max(0.0, deadline - time.monotonic()))
            remaining = client.flush(left)
            if not remaining:
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{remaining} records are still on their way after {timeout:g} s")

    def _transactional(self, consumer: ConsumerBase[Any, Any] | None) -> Transactions:
        if self._transactions is None:
            raise InvalidClientConfig("transactions need a name that survives restarts: give transactional_id=")
        if consumer is not None and consumer.commits_by_itself:
            raise InvalidClientConfig(
                "the consumer commits by itself, also what a transaction that fails has read: "
                "give the consumer auto_commit=False, and the transaction commits for it"
            )
        if consumer is not None and not consumer.reads_committed:
            raise InvalidClientConfig(
                "the consumer does not wait for transactions that commit offsets of its group, and would read their "
                'records twice: give it isolation_level="read_committed", or none'
            )
        return self._transactions


def _tell(error: Any) -> None:
    """Log an error that concerns no single record; librdkafka has logged the others itself."""
    if error.fatal():
        log.error("the producer is of no more use: %s", error.str())


def _serialized(serialize: Callable[[Any], bytes | str], value: object, what: str, topic: str) -> bytes | str:
    try:
        return serialize(value)
    except Exception as error:
        raise SerializationFailed(
            f"{what} of a record for {topic}: {type(error).__name__}: {error} ({type(value).__name__} was given)"
        ) from error


def _may_be_idempotent(found: Mapping[str, Any]) -> bool:
    """Whether the other properties allow it: Java's rule for a producer that was not told."""
    return (
        str(found.get("acks", found.get("request.required.acks", "all"))) in ("all", "-1")
        and int(found.get("retries", found.get("message.send.max.retries", 1))) > 0
        and int(found.get("max.in.flight.requests.per.connection", found.get("max.in.flight", 5))) <= 5
    )
