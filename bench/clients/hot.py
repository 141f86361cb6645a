"""The requests that a broker gets all day, one at a time: each story makes the same exchange again and again.

A story is a context manager: it opens its connections to the broker that leads a topic's partitions, and gives a
function that makes one exchange and checks its answer.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import crc32c
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.produce.v9 import request as produce
from kio.schema.produce.v9.response import ProduceResponse
from kio.schema.produce.v12 import request as newest_produce
from kio.schema.produce.v12.response import ProduceResponse as NewestProduceResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta

from bench.clients import groups, wire

if TYPE_CHECKING:
    import socket

Once = Callable[[], None]
Story = Callable[[int, str], AbstractContextManager[Once]]

RECORD: Final = [b"x" * 100]
BATCH: Final = [b"x" * 1010] * 15
"""What a Java producer puts into a batch of 16 KB."""
PARTITIONS: Final = 6
MEGABYTE: Final = 1 << 20
_TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))
_ACKS_ALL: Final = i16(-1)
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
_ATTRIBUTES_AT: Final = 21
_CRC_AT: Final = 17
_TRANSACTIONAL: Final = 0x10
_DEADLINE: Final = 60.0


def _ask(connection: socket.socket, frame: bytes) -> bytes:
    connection.sendall(frame)
    return wire.receive(connection)


@contextmanager
def one_frame(port: int, frame: bytes, error: slice) -> Iterator[Once]:
    """The same bytes each time; where an error would stand, the answer has zeros."""
    with wire.connect(port) as connection:

        def once() -> None:
            if any(_ask(connection, frame)[error]):
                raise RuntimeError("the broker refused a request")

        yield once


def produce_record(port: int, topic: str) -> AbstractContextManager[Once]:
    """A Produce of one record, acks=1."""
    return one_frame(port, wire.produce_request(topic, 0, wire.batch(RECORD)), wire.produce_error_at(topic))


def produce_batch(port: int, topic: str) -> AbstractContextManager[Once]:
    """A Produce of one batch of 16 KB, acks=1."""
    return one_frame(port, wire.produce_request(topic, 0, wire.batch(BATCH)), wire.produce_error_at(topic))


def produce_six_batches(port: int, topic: str) -> AbstractContextManager[Once]:
    """A Produce of a batch of 16 KB for each of six partitions, acks=all."""
    return one_frame(port, _produce_all(topic, range(PARTITIONS)), wire.produce_error_at(topic))


def produce_replicated(port: int, topic: str) -> AbstractContextManager[Once]:
    """A Produce of one batch, acks=all, and the fetches of the follower that it waits for."""
    return one_frame(port, _produce_all(topic, range(1)), wire.produce_error_at(topic))


@contextmanager
def produce_idempotent(port: int, topic: str) -> Iterator[Once]:
    """A Produce of one batch of 16 KB by an idempotent producer, acks=all."""
    template = wire.batch(BATCH)
    sequence = 0
    with wire.connect(port) as connection:
        producer = _init_producer(connection, None)

        def once() -> None:
            nonlocal sequence
            records = _by_producer(template, *producer, sequence)
            sequence += len(BATCH)
            answer = wire.parse(ProduceResponse, _ask(connection, _produce_records(topic, records)))
            _check(answer.responses[0].partition_responses[0].error_code)

        yield once


@contextmanager
def transaction(port: int, topic: str) -> Iterator[Once]:
    """A transaction of one record as clients of transaction.version 2 make it: a Produce and an EndTxn."""
    template = wire.batch(RECORD)
    name = TransactionalId(f"counts-{topic}")
    with wire.connect(port) as connection:
        producer, epoch = _init_producer(connection, name)

        def once() -> None:
            nonlocal producer, epoch
            records = Records(_by_producer(template, producer, epoch, 0, _TRANSACTIONAL))
            data = newest_produce.PartitionProduceData(index=i32(0), records=records)
            named = newest_produce.TopicProduceData(name=TopicName(topic), partition_data=(data,))
            request = newest_produce.ProduceRequest(
                transactional_id=name, acks=_ACKS_ALL, timeout=_TIMEOUT, topic_data=(named,)
            )
            answer = wire.parse(NewestProduceResponse, _ask(connection, wire.frame(request)))
            _check(answer.responses[0].partition_responses[0].error_code)
            end = EndTxnRequest(
                transactional_id=name, producer_id=ProducerId(producer), producer_epoch=i16(epoch), committed=True
            )
            ended = wire.parse(EndTxnResponse, _ask(connection, wire.frame(end)))
            _check(ended.error_code)
            producer, epoch = ended.producer_id, ended.producer_epoch

        yield once


@contextmanager
def fetch_parked(port: int, topic: str) -> Iterator[Once]:
    """A Fetch that waits, the Produce of one record that wakes it, and its answer.

    A Produce to another partition goes before it: when that is answered, the Fetch waits.
    """
    request, error = wire.produce_request(topic, 0, wire.batch(RECORD)), wire.produce_error_at(topic)
    elsewhere = wire.produce_request(topic, 1, wire.batch(RECORD))
    offset = 1
    with wire.connect(port) as producer, wire.connect(port) as consumer:

        def once() -> None:
            nonlocal offset
            consumer.sendall(wire.fetch_request(topic, 0, offset, MEGABYTE, wait=True))
            _ask(producer, elsewhere)
            if any(_ask(producer, request)[error]) or wire.first_offset(wire.receive(consumer)) != offset:
                raise RuntimeError(f"the record at offset {offset} was not stored and fetched")
            offset += 1

        yield once


@contextmanager
def fetch_megabyte(port: int, topic: str) -> Iterator[Once]:
    """A Fetch of 1 MB that was written before."""
    written = wire.produce_request(topic, 0, wire.batch(BATCH))
    wanted = wire.fetch_request(topic, 0, 1, MEGABYTE)
    with wire.connect(port) as connection:
        for _ in range(2 * MEGABYTE // len(written)):
            _ask(connection, written)

        def once() -> None:
            if len(_ask(connection, wanted)) < MEGABYTE // 2:
                raise RuntimeError("a fetch was answered with less than was asked for")

        yield once


def offset_commit(port: int, topic: str) -> AbstractContextManager[Once]:
    """An OffsetCommit of one partition by a group without members."""
    (frame,) = groups.commit_requests(topic, 1)
    return one_frame(port, frame, groups.commit_error_at(topic))


@contextmanager
def heartbeat_classic(port: int, topic: str) -> Iterator[Once]:
    """A Heartbeat of a group of the classic protocol."""
    with closing(groups.ClassicGroup(port, topic, topic, 1)) as group:
        yield group.heartbeat


@contextmanager
def heartbeat_consumer(port: int, topic: str) -> Iterator[Once]:
    """A ConsumerGroupHeartbeat that brings nothing new."""
    with closing(groups.ConsumerGroup(port, topic, topic, 1)) as group:
        yield group.heartbeat


def metadata(port: int, topic: str) -> AbstractContextManager[Once]:
    """Metadata of one topic."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return one_frame(port, wire.frame(request), slice(0))


def api_versions(port: int, topic: str) -> AbstractContextManager[Once]:
    """ApiVersions."""
    request = ApiVersionsRequest(client_software_name="counts", client_software_version="1")
    return one_frame(port, wire.frame(request), slice(8, 10))


STORIES: Final[dict[str, Story]] = {
    story.__name__.replace("_", "-"): story
    for story in (
        produce_record,
        produce_batch,
        produce_six_batches,
        produce_idempotent,
        transaction,
        fetch_parked,
        fetch_megabyte,
        offset_commit,
        heartbeat_classic,
        heartbeat_consumer,
        metadata,
        api_versions,
    )
}
REPLICATED: Final[dict[str, Story]] = {"produce-replicated": produce_replicated}
"""Those of a topic that has a follower."""


def wait_for_transactions(port: int) -> None:
    """Wait until transactions are coordinated: who asks first has the broker make the topic of their states."""
    deadline = time.monotonic() + _DEADLINE
    name = "wait-for-transactions"
    find = wire.frame(FindCoordinatorRequest(key_type=i8(1), coordinator_keys=(name,)))
    with wire.connect(port) as connection:
        while time.monotonic() < deadline:
            _ask(connection, find)
            answer = wire.parse(InitProducerIdResponse, _ask(connection, _init_request(TransactionalId(name))))
            if answer.error_code == 0:
                return
            time.sleep(0.05)
    raise RuntimeError(f"nobody coordinates transactions within {_DEADLINE:.0f} seconds")


def _init_request(name: TransactionalId | None) -> bytes:
    return wire.frame(
        InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout=_TIMEOUT,
            producer_id=ProducerId(-1),
            producer_epoch=i16(-1),
        )
    )


def _init_producer(connection: socket.socket, name: TransactionalId | None) -> tuple[int, int]:
    answer = wire.parse(InitProducerIdResponse, _ask(connection, _init_request(name)))
    _check(answer.error_code)
    return answer.producer_id, answer.producer_epoch


def _by_producer(template: bytes, producer: int, epoch: int, sequence: int, attributes: int = 0) -> bytes:
    """A batch under a producer's id, epoch and sequence number."""
    batch = bytearray(template)
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer, epoch, sequence)
    struct.pack_into(">I", batch, _CRC_AT, crc32c.crc32c(batch[_ATTRIBUTES_AT:]))
    return bytes(batch)


def _produce_records(topic: str, records: bytes) -> bytes:
    data = produce.PartitionProduceData(index=i32(0), records=Records(records))
    named = produce.TopicProduceData(name=TopicName(topic), partition_data=(data,))
    return wire.frame(produce.ProduceRequest(acks=_ACKS_ALL, timeout=_TIMEOUT, topic_data=(named,)))


def _produce_all(topic: str, partitions: range) -> bytes:
    records = Records(wire.batch(BATCH))
    data = tuple(produce.PartitionProduceData(index=i32(index), records=records) for index in partitions)
    named = produce.TopicProduceData(name=TopicName(topic), partition_data=data)
    return wire.frame(produce.ProduceRequest(acks=_ACKS_ALL, timeout=_TIMEOUT, topic_data=(named,)))


def _check(error: int) -> None:
    if error:
        raise RuntimeError(f"the broker answered {error!r}")
