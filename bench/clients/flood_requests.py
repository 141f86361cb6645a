"""What connections of a flood ask: the same again and again, batches of one producer, transactions, long polls."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import crc32c
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.produce.v12 import request as produce
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import Records, i16, i32

from bench.clients import hot, wire
from bench.clients.flood import Requests

if TYPE_CHECKING:
    from collections.abc import Sequence

_PRODUCER: Final = struct.Struct(">qhi")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_TRANSACTIONAL: Final = 0x10
_PRODUCER_AT: Final = 43
_OWNER: Final = struct.Struct(">qh")
"""A producer's id and epoch."""
_OWNER_AFTER: Final = 2
"""Bytes of an EndTxn request after them: the decision, and no tags."""
_END_TXN_ERROR: Final = slice(13, 15)
_END_TXN_OWNER: Final = 15
_CONCURRENT: Final = (51).to_bytes(2, "big")
_OFFSET: Final = 0x0123_4567_89AB_CDEF
"""An offset that no log reaches: its bytes are where the true one goes."""
_TAGS_AFTER_RECORDS: Final = 3


class Repeated(Requests):
    """The same request each time."""

    def __init__(self, frame: bytes, error: slice, least: int = 0) -> None:
        """`least` is the size of an answer that has everything."""
        self._frames = [frame * count for count in range(self.in_flight + 1)]
        self._error = error
        self._least = least

    def frames(self, count: int) -> bytes:
        """It, so many times."""
        return self._frames[count]

    def check(self, answer: bytes) -> None:
        """No error, and not too short."""
        if any(answer[self._error]) or int.from_bytes(answer[:4], "big") < self._least:
            raise RuntimeError(f"the broker answered {answer[:64].hex()}")


class _Batch:
    """A Produce request with one batch, which is given a producer and a sequence number."""

    def __init__(self, frame: bytes, records: bytes) -> None:
        self._frame = bytearray(frame)
        self._start = frame.index(records)
        self._end = self._start + len(records)

    def by(self, producer: int, epoch: int, sequence: int, attributes: int = 0) -> bytes:
        frame, start = self._frame, self._start
        struct.pack_into(">h", frame, start + _ATTRIBUTES_AT, attributes)
        _PRODUCER.pack_into(frame, start + _PRODUCER_AT, producer, epoch, sequence)
        with memoryview(frame) as view:
            _CRC.pack_into(frame, start + _CRC_AT, crc32c.crc32c(view[start + _ATTRIBUTES_AT : self._end]))
        return bytes(frame)


class Idempotent(Requests):
    """Batches of an idempotent producer, acks=all."""

    def __init__(self, port: int, topic: str, partition: int, values: list[bytes]) -> None:
        records = wire.batch(values)
        self._batch = _Batch(wire.produce_batches(topic, (partition,), records, hot.ALL), records)
        self._error = wire.produce_error_at(topic)
        self._count = len(values)
        self._sequence = 0
        with wire.connect(port) as connection:
            self._producer, self._epoch = hot.init_producer(connection, None)

    def frames(self, count: int) -> bytes:
        """The next batches of the producer."""
        made = []
        for _ in range(count):
            made.append(self._batch.by(self._producer, self._epoch, self._sequence))
            self._sequence += self._count
        return b"".join(made)

    def check(self, answer: bytes) -> None:
        """No error."""
        if any(answer[self._error]):
            raise RuntimeError(f"the broker refused a batch of an idempotent producer: {answer.hex()}")


class Transactions(Requests):
    """Transactions of one batch as clients of transaction.version 2 make them: a Produce and an EndTxn, by turns."""

    in_flight = 1

    def __init__(self, port: int, topic: str, partition: int, values: list[bytes]) -> None:
        name = TransactionalId(f"flood-{topic}-{partition}")
        records = wire.batch(values)
        data = produce.PartitionProduceData(index=i32(partition), records=Records(records))
        named = produce.TopicProduceData(name=TopicName(topic), partition_data=(data,))
        request = produce.ProduceRequest(
            transactional_id=name, acks=i16(hot.ALL), timeout=hot.TIMEOUT, topic_data=(named,)
        )
        self._batch = _Batch(wire.frame(request), records)
        end = EndTxnRequest(transactional_id=name, producer_id=ProducerId(0), producer_epoch=i16(0), committed=True)
        self._end = bytearray(wire.frame(end))
        self._produce_error = wire.produce_error_at(topic)
        self._ending = False
        with wire.connect(port) as connection:
            self._producer, self._epoch = hot.init_producer(connection, name)

    def frames(self, count: int) -> bytes:
        """What comes next: a batch, or the end of its transaction."""
        if not self._ending:
            return self._batch.by(self._producer, self._epoch, 0, _TRANSACTIONAL)
        _OWNER.pack_into(self._end, len(self._end) - _OWNER_AFTER - _OWNER.size, self._producer, self._epoch)
        return bytes(self._end)

    def check(self, answer: bytes) -> None:
        """No error but that the transaction before is still being ended; each has an epoch of its own."""
        error = answer[_END_TXN_ERROR if self._ending else self._produce_error]
        if error == _CONCURRENT:
            self.repeated += 1
            return
        if any(error):
            raise RuntimeError(f"the broker refused a part of a transaction: {answer.hex()}")
        if self._ending:
            self._producer, self._epoch = _OWNER.unpack_from(answer, _END_TXN_OWNER)
        self._ending = not self._ending


class LongPolls(Requests):
    """A consumer that waits at the end of its partition. When its record comes, it wakes the next consumer.

    The record is a Produce with acks=0, which nobody waits for: that it arrives at its offset shows that it was stored.
    Consumers stand in a ring, and a few records go round in it. When the run ends they stay where nobody waits for
    them, and go on from there with the next.
    """

    in_flight = 1
    head = 1 << 12

    def __init__(self, port: int, topic: str, partition: int) -> None:
        self._records = wire.batch(hot.RECORD)
        self._produce = wire.produce_batches(topic, (partition,), self._records, 0)
        fetch = wire.fetch_by_id(wire.topic_id(port, topic), partition, _OFFSET, 1, wait=True)
        self._before, self._after = fetch.split(_OFFSET.to_bytes(8, "big"))
        self._offset = 0
        self._producer = wire.connect(port)
        self.next = self

    def wake(self) -> None:
        """Give this consumer its next record."""
        self._producer.sendall(self._produce)

    def frames(self, count: int) -> bytes:
        """A Fetch that waits."""
        return self._before + self._offset.to_bytes(8, "big") + self._after

    def check(self, answer: bytes) -> None:
        """The record that was waited for; on to the next consumer."""
        at = len(answer) - _TAGS_AFTER_RECORDS - len(self._records)
        if int.from_bytes(answer[at : at + 8], "big") != self._offset:
            raise RuntimeError(f"a fetch at {self._offset} was answered {answer.hex()}")
        self._offset += 1
        self.next.wake()

    def close(self) -> None:
        """Close the connection that records come by."""
        self._producer.close()


def ring(consumers: Sequence[LongPolls], records: int) -> None:
    """Let each wake the next, with so many records under way, evenly apart."""
    for consumer, following in zip(consumers, [*consumers[1:], consumers[0]], strict=True):
        consumer.next = following
    for consumer in consumers[:: len(consumers) // records][:records]:
        consumer.wake()
