"""What both kinds of producer have in common: the constructor, and the parts that it makes.

    native.py             librdkafka's producer from its opening to its end, and the thread that polls it (poller.py)
    serving.py            the calls in which callbacks run, and the fatal errors that come out of them
    encoding.py           a record as librdkafka takes it
    full_buffer.py        what happens when the buffer is full
    delivery.py           the future of a record, and the failures that nobody has looked at
    transactions.py       librdkafka's transactions, and transaction_block.py one block of them

The two kinds wait in different ways; everything else is in these parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias

from barnabas.clients.closed import watch_forks
from barnabas.clients.config import DEFAULT_BOOTSTRAP_SERVERS, log, milliseconds, open_client, properties
from barnabas.clients.library import load_kafka
from barnabas.clients.log_lines import ProducerLog
from barnabas.clients.partitioners import NATIVE, key_hash
from barnabas.clients.producer.delivery import Settlements
from barnabas.clients.producer.encoding import PartitionCounts, RecordEncoder
from barnabas.clients.producer.full_buffer import FullBuffer, WhenFull, require_policy
from barnabas.clients.producer.native import NativeProducer
from barnabas.clients.producer.transactions import ProducerTransactions
from barnabas.clients.serializers import to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import TypeVar

    from barnabas.clients.partitioners import Partitioner
    from barnabas.clients.serializers import Serializer

    K = TypeVar("K", default=bytes | str)
    V = TypeVar("V", default=bytes | str)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Acks: TypeAlias = Literal["all", 0, 1, -1, "0", "1", "-1"]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]

MAX_BLOCK: Final = 60.0
"""How long `send` waits for room in the buffer, in seconds."""


class ProducerBase(Generic[K, V]):
    """The constructor of both kinds of producer."""

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
        require_policy(when_full)
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
        max_wait = float(found.pop("max.block.ms", MAX_BLOCK * 1000)) / 1000
        if "partitioner" not in found:
            found = {**found, **NATIVE.get(partitioner, {})}
        if "enable.idempotence" not in found:
            found["enable.idempotence"] = _may_be_idempotent(found)
        serialize_key, serialize_value = to_bytes(key_serializer), to_bytes(value_serializer)
        kafka = load_kafka()
        self._settlements = Settlements()
        logger = ProducerLog(log, self._settlements.failures.note_fatal_line)
        client = open_client(kafka, "Producer", {"logger": logger, **found})
        name = found.get("transactional.id")
        self._transactions = ProducerTransactions(kafka, client, str(name)) if name else None
        if self._transactions is not None:
            self._settlements.failures.hold_no_more()
        self._native = NativeProducer(kafka, client, self._settlements)
        self._counts = PartitionCounts(self._native, max_wait)
        own_partitioner = None if partitioner in NATIVE else partitioner
        self._encoder = RecordEncoder(serialize_key, serialize_value, own_partitioner, self._counts)
        self._full_buffer = FullBuffer(self._native, when_full, max_wait)
        watch_forks(self)

    def __len__(self) -> int:
        """How many records are on their way: without an outcome that the program could know."""
        return len(self._native.client)

    def __bool__(self) -> bool:
        """A producer is one, even with nothing on its way."""
        return True

    def forked(self) -> None:
        """In a child of this process: what was sent is the parent's, and nothing can be sent here."""
        self._native.forked()
        if self._transactions is not None:
            self._transactions.leave(self._native.client)

    def _end(self, client: Any, timeout: float | None) -> None:
        """Abort a transaction that is open, wait for what is on its way, and give up what is late."""
        try:
            if self._transactions is not None:
                self._transactions.close(timeout, self._native.client)
        except BaseException:
            self._native.end(client, 0)
            raise
        self._native.end(client, timeout)


def _may_be_idempotent(found: Mapping[str, Any]) -> bool:
    """Whether the other properties allow it: Java's rule where the program did not choose."""
    return (
        str(found.get("acks", found.get("request.required.acks", "all"))) in ("all", "-1")
        and int(found.get("retries", found.get("message.send.max.retries", 1))) > 0
        and int(found.get("max.in.flight.requests.per.connection", found.get("max.in.flight", 5))) <= 5
    )
