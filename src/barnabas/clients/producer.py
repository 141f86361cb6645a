"""The producer: records in, futures out.

    with Producer("localhost:9092", value_serializer=JSON) as producer:
        producer.send("orders", {"id": 7}, key="customer-1")

Leaving the block sends what is left and raises NotDelivered if something did not arrive and nobody has asked about it:
a record is never lost in silence.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from barnabas.clients.delivery import Delivery, in_callback, refuse_in_callback
from barnabas.clients.errors import ClientClosed, noted_in
from barnabas.clients.pump import POLL_EVERY
from barnabas.clients.sending import K, ProducerBase, V

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from types import TracebackType

    from barnabas.clients.consumer import Consumer
    from barnabas.clients.records import Headers

__all__ = ["Producer"]

_ROOM_SLICE = 0.01
"""How long a sender waits for room before it looks again: the pump may be told of it first."""


class Producer(ProducerBase[K, V]):
    """Sends records. One producer serves any number of threads and topics; close it, or use it in a `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted_in(error):
            self.close()

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | datetime | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """Send a record, and return the future that says where it went.

        Records of one partition arrive in the order in which they were sent. `on_delivery(delivery)` is called when it
        is known what became of the record, in a thread of the producer or in one that calls it: it should be quick.

        Raises SerializationFailed, BufferFull (see `when_full`), ClientClosed.
        """
        client = self._client
        delivery = Delivery(self._shared, topic, on_delivery)
        pump = self._pump
        pump.sends += 1
        if not pump.sends % POLL_EVERY:
            client.poll(0)
        if self._plain and partition is None and headers is None and timestamp is None:
            arguments: tuple[Any, ...] = (topic, value, key, -1, delivery.settle)
        else:
            if not self._counted(topic):
                self._count(topic)
            arguments = self._arguments(topic, value, key, partition, headers, timestamp, delivery.settle)
        try:
            self._client.produce(*arguments)
        except BufferError:
            self._when_buffer_is_full(delivery, arguments)
        except (TypeError, OverflowError, self._kafka.KafkaException) as error:
            raise self._refused(arguments, error) from error
        if self._closed:
            self._await_end(client)
            if (failure := delivery.exception()) is not None:
                raise ClientClosed("the producer was closed before the record arrived") from failure
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        """Wait until it is known of every record that was sent whether it arrived.

        Raises NotDelivered for those that did not and that nobody has asked about, TimeoutError if the time is over.
        """
        refuse_in_callback("flush")
        self._check_open()
        self._wait_for_all(timeout)
        self._shared.failures.raise_any()

    def close(self, timeout: float | None = None) -> None:
        """Send what is left and end. What is not delivered after `timeout` seconds is given up.

        Without a timeout that is decided by `delivery_timeout`. Raises NotDelivered like `flush`, also for what was
        given up. Closing twice does nothing.
        """
        refuse_in_callback("close")
        client = self._shut()
        if client is None:
            self._ended.wait(timeout)  # another thread may be at it
            return
        self._end(client, timeout)
        self._shared.failures.raise_any()

    @contextmanager
    def transaction(self, consumer: Consumer[Any, Any] | None = None) -> Iterator[None]:
        """Everything sent in the block becomes visible together at its end, or never if it ends with an error.

        With a consumer, the offsets of the records that it handed out become part of it: read, process and write
        exactly once. It has to have `auto_commit=False`. After an error the consumer is back where it was; if the
        commit was asked for and its answer did not come, it goes on from what its group has committed.
        A rebalance or a seek that drops offsets of records that were handed out aborts it.
        Raises TransactionAborted, ProducerFenced.
        """
        transactions = self._transactional(consumer)
        self._check_open()
        begun = False
        try:
            transactions.begin()
            begun = True
            if consumer is not None:
                consumer.begin_transaction()
            yield
            if consumer is not None:
                consumer.require_complete()
                transactions.send_offsets(consumer.handed_out(), consumer.group_metadata())
            transactions.commit()
        except BaseException as error:
            doubtful = begun and transactions.undecided
            try:
                self._give_up(transactions, error, begun=begun)
            finally:  # also if the abort fails: nothing of it was committed
                if begun:
                    self._shared.failures.forget()
                if consumer is not None:
                    if begun:
                        consumer.end_transaction()
                    consumer.doubt() if doubtful else consumer.take_back()
            raise
        if consumer is not None:
            consumer.end_transaction()
            consumer.mark_committed()

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has now."""
        self._check_open()
        return self._count(topic)

    def _when_buffer_is_full(self, delivery: Delivery, arguments: tuple[Any, ...]) -> None:
        if self._when_full == "discard":
            delivery.discard(self._discarded(delivery.topic))
            return
        patience = self._max_block if self._when_full == "block" and not in_callback() else 0
        deadline = time.monotonic() + patience
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._buffer_full(delivery.topic, patience)
            self._client.poll(min(left, _ROOM_SLICE))
            try:
                self._client.produce(*arguments)
            except BufferError:
                continue
            return
