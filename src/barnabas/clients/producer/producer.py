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

from barnabas.clients.errors import ClientClosed, added_to, noted_in, passing_error
from barnabas.clients.producer.delivery import Delivery, in_callback, refuse_in_callback
from barnabas.clients.producer.encoding import refusal
from barnabas.clients.producer.poller import POLL_EVERY
from barnabas.clients.producer.sending import K, ProducerBase, V
from barnabas.clients.producer.transaction_block import TransactionBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from types import TracebackType

    from barnabas.clients.consumer.consumer import Consumer
    from barnabas.clients.records import Headers

__all__ = ["Producer"]

_ROOM_SLICE = 0.01
"""How long a sender waits for room before it looks again: the poller may be the first to learn of it."""


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
        native = self._native
        client = native.client
        delivery = Delivery(self._settlements, topic, on_delivery)
        poller = native.poller
        poller.sends += 1
        if not poller.sends % POLL_EVERY:
            native.poll(0)
        encoder = self._encoder
        if encoder.plain and partition is None and headers is None and timestamp is None:
            arguments: tuple[Any, ...] = (topic, value, key, -1, delivery)
        else:
            if encoder.needs_count(topic):
                self._counts.count(topic)
            arguments = encoder.encode(topic, value, key, partition, headers, timestamp, delivery)
        try:
            native.client.produce(*arguments)
        except BufferError:
            self._when_buffer_is_full(delivery, arguments)
        except (TypeError, OverflowError, native.kafka.KafkaException) as error:
            raise refusal(arguments, error, self._settlements.failures.fatal) from error
        if native.closed:
            native.await_end(client)
            if (failure := delivery.exception()) is not None:
                raise ClientClosed("the producer was closed before the record arrived") from failure
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        """Wait until it is known of every record that was sent whether it arrived.

        Raises NotDelivered for those that did not and that nobody has asked about, TimeoutError if the time is over.
        """
        refuse_in_callback("flush")
        self._native.require_open()
        self._native.wait_for_all(timeout)
        self._settlements.failures.raise_any()

    def close(self, timeout: float | None = None) -> None:
        """Send what is left and end. What is not delivered after `timeout` seconds is given up.

        Without a timeout that is decided by `delivery_timeout`. Raises NotDelivered like `flush`, also for what was
        given up. Where an error passes by, as in a `finally`, that one is raised, with the other as a note. Closing
        twice does nothing.
        """
        refuse_in_callback("close")
        client = self._native.shut()
        if client is None:
            self._native.ended.wait(timeout)  # another thread may be at it
            return
        with added_to(passing_error()):
            self._end(client, timeout)
            self._settlements.failures.raise_any()

    @contextmanager
    def transaction(self, consumer: Consumer[Any, Any] | None = None) -> Iterator[None]:
        """Everything sent in the block becomes visible together at its end, or never if it ends with an error.

        With a consumer, the offsets of the records that it handed out become part of it: read, process and write
        exactly once. It has to have `auto_commit=False`. After an error the consumer is back where it was; if the
        commit was asked for and its answer did not come, it goes on from what its group has committed.
        A rebalance or a seek that drops offsets of records that were handed out aborts it.
        Raises TransactionAborted, ProducerFenced.
        """
        block = TransactionBlock(self._native, self._transactions, consumer)
        self._native.require_open()
        try:
            if block.begin():
                self._settlements.failures.forget()
            yield
            if consumer is not None:
                consumer.require_complete()
                block.send_offsets(consumer.handed_out(), consumer.group_metadata())
            block.commit()
        except BaseException as error:
            doubtful = block.is_doubtful(error)
            try:
                block.give_up(error)
            finally:  # also if the abort fails: nothing of it was committed
                block.leave_consumer()
                if consumer is not None:
                    consumer.doubt() if doubtful else consumer.take_back()
            raise

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has now."""
        self._native.require_open()
        return self._counts.count(topic)

    def _when_buffer_is_full(self, delivery: Delivery, arguments: tuple[Any, ...]) -> None:
        full = self._full_buffer
        if full.discards:
            delivery.discard(full.discard(delivery.topic))
            return
        timeout = 0.0 if in_callback() else full.timeout
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise full.error(delivery.topic, timeout)
            self._native.poll(min(left, _ROOM_SLICE))
            try:
                self._native.client.produce(*arguments)
            except BufferError:
                continue
            except self._native.kafka.KafkaException as error:
                raise refusal(arguments, error, self._settlements.failures.fatal) from error
            return
