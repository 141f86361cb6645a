"""The requests that a broker gets all day, one at a time: each story makes the same exchange again and again.

A story is a context manager: it opens its connections to the broker that leads a topic's partitions, and gives a
function that makes one exchange, or a few that belong together, and checks the answers.
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
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest as FindShareCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse as FindShareCoordinatorResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.produce.v9.response import ProduceResponse
from kio.schema.produce.v12 import request as newest_produce
from kio.schema.produce.v12.response import ProduceResponse as NewestProduceResponse
from kio.schema.txn_offset_commit.v5 import request as txn_commit
from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from bench.clients import groups, wire
from bench.clients.share_members import ShareGroup
from bench.clients.shares import Acquired, ShareFrames, ShareWorker

if TYPE_CHECKING:
    import socket

Once = Callable[[], object]
Story = Callable[[int, str], AbstractContextManager[Once]]

RECORD: Final = [b"x" * 100]
BATCH: Final = [b"x" * 1010] * 15
"""What a Java producer puts into a batch of 16 KB."""
PARTITIONS: Final = 6
MEGABYTE: Final = 1 << 20
TIMEOUT: Final = i32Timedelta.parse(timedelta(seconds=30))
ALL: Final = -1
"""Acks of all replicas that are in sync."""
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
_ATTRIBUTES_AT: Final = 21
_CRC_AT: Final = 17
_TRANSACTIONAL: Final = 0x10
_NO_TOPIC: Final = "A" * 22
"""The id of no topic, as text."""
CROWD: Final = 100
_SHARED_BATCHES: Final = 800
"""Batches of a queue: more than a count takes out of it."""
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
    frame = wire.produce_batches(topic, range(PARTITIONS), wire.batch(BATCH), ALL)
    return one_frame(port, frame, wire.produce_error_at(topic))


def produce_replicated(port: int, topic: str) -> AbstractContextManager[Once]:
    """A Produce of one batch, acks=all, and the fetches of the follower that it waits for."""
    return one_frame(port, wire.produce_batches(topic, range(1), wire.batch(BATCH), ALL), wire.produce_error_at(topic))


@contextmanager
def produce_idempotent(port: int, topic: str) -> Iterator[Once]:
    """A Produce of one batch of 16 KB by an idempotent producer, acks=all."""
    template = wire.batch(BATCH)
    sequence = 0
    with wire.connect(port) as connection:
        producer = init_producer(connection, None)

        def once() -> None:
            nonlocal sequence
            records = _by_producer(template, *producer, sequence)
            sequence += len(BATCH)
            answer = wire.parse(ProduceResponse, _ask(connection, wire.produce_batches(topic, (0,), records, ALL)))
            _check(answer.responses[0].partition_responses[0].error_code)

        yield once


@contextmanager
def transaction(port: int, topic: str) -> Iterator[Once]:
    """A transaction of one record as clients of transaction.version 2 make it: a Produce and an EndTxn."""
    template = wire.batch(RECORD)
    name = TransactionalId(f"counts-{topic}")
    with wire.connect(port) as connection:
        producer, epoch = init_producer(connection, name)

        def once() -> None:
            nonlocal producer, epoch
            records = Records(_by_producer(template, producer, epoch, 0, _TRANSACTIONAL))
            data = newest_produce.PartitionProduceData(index=i32(0), records=records)
            named = newest_produce.TopicProduceData(name=TopicName(topic), partition_data=(data,))
            request = newest_produce.ProduceRequest(
                transactional_id=name, acks=i16(ALL), timeout=TIMEOUT, topic_data=(named,)
            )
            answer = wire.parse(NewestProduceResponse, _ask(connection, wire.frame(request)))
            _check(answer.responses[0].partition_responses[0].error_code)
            producer, epoch = _committed(connection, name, producer, epoch)

        yield once


@contextmanager
def transaction_offsets(port: int, topic: str) -> Iterator[Once]:
    """A transaction of one offset, of a group without members: a TxnOffsetCommit and an EndTxn."""
    name = TransactionalId(f"counts-{topic}")
    with wire.connect(port) as connection:
        producer, epoch = init_producer(connection, name)

        def once() -> None:
            nonlocal producer, epoch
            _commit_in_transaction(connection, _txn_commit(name, topic, producer, epoch))
            producer, epoch = _committed(connection, name, producer, epoch)

        yield once


@contextmanager
def txn_offset_commit(port: int, topic: str) -> Iterator[Once]:
    """A TxnOffsetCommit of one offset in a transaction that has offsets already."""
    name = TransactionalId(f"counts-{topic}")
    with wire.connect(port) as connection:
        frame = _txn_commit(name, topic, *init_producer(connection, name))
        yield lambda: _commit_in_transaction(connection, frame)


def _commit_in_transaction(connection: socket.socket, frame: bytes) -> None:
    answer = wire.parse(TxnOffsetCommitResponse, _ask(connection, frame))
    _check(answer.topics[0].partitions[0].error_code)


def _txn_commit(name: TransactionalId, topic: str, producer: int, epoch: int) -> bytes:
    place = txn_commit.TxnOffsetCommitRequestPartition(
        partition_index=i32(0), committed_offset=i64(1), committed_metadata=""
    )
    return wire.frame(
        txn_commit.TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=GroupId(topic),
            producer_id=ProducerId(producer),
            producer_epoch=i16(epoch),
            topics=(txn_commit.TxnOffsetCommitRequestTopic(name=TopicName(topic), partitions=(place,)),),
        )
    )


def _committed(connection: socket.socket, name: TransactionalId, producer: int, epoch: int) -> tuple[int, int]:
    """Commit a transaction; the producer and its epoch of the next one."""
    end = EndTxnRequest(
        transactional_id=name, producer_id=ProducerId(producer), producer_epoch=i16(epoch), committed=True
    )
    ended = wire.parse(EndTxnResponse, _ask(connection, wire.frame(end)))
    _check(ended.error_code)
    return ended.producer_id, ended.producer_epoch


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
    wanted = wire.fetch_by_id(wire.topic_id(port, topic), 0, 1, MEGABYTE)
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


@contextmanager
def heartbeat_epoch(port: int, topic: str) -> Iterator[Once]:
    """ConsumerGroupHeartbeats of five members that only learn of a new epoch, and that of a sixth which raises it."""
    with closing(groups.ConsumerGroup(port, topic, topic, PARTITIONS)) as group:
        yield group.raise_epoch


@contextmanager
def join_consumer(port: int, topic: str) -> Iterator[Once]:
    """ConsumerGroupHeartbeats of a member that joins a group of one, and leaves."""
    with closing(groups.ConsumerGroup(port, topic, topic, 1)) as group:
        yield group.visit


@contextmanager
def rebalance_classic(port: int, topic: str) -> Iterator[Once]:
    """A rebalance of the classic protocol: six members join and sync."""
    with closing(groups.ClassicGroup(port, topic, topic, PARTITIONS)) as group:
        yield group.rebalance


@contextmanager
def rebalance_classic_100(port: int, topic: str) -> Iterator[Once]:
    """A rebalance of the classic protocol: a hundred members join and sync."""
    with closing(groups.ClassicGroup(port, topic, topic, CROWD)) as group:
        yield group.rebalance


@contextmanager
def rebalance_consumer_100(port: int, topic: str) -> Iterator[Once]:
    """Rebalances of the new protocol: one more member comes to a hundred, and goes."""
    with closing(groups.ConsumerGroup(port, topic, topic, CROWD)) as group:
        yield group.rebalance


@contextmanager
def heartbeat_share(port: int, topic: str) -> Iterator[Once]:
    """A ShareGroupHeartbeat that brings nothing new."""
    with ShareGroup(port, topic, topic, 1) as group:

        def once() -> None:
            group.heartbeats(1)

        yield once


@contextmanager
def share_fetch(port: int, topic: str) -> Iterator[Once]:
    """A ShareFetch of one batch of 16 KB that acknowledges the batch before it, as Java's share consumer polls."""
    with _share_worker(port, topic) as worker:

        def once() -> None:
            worker.ask()
            if worker.take() != len(BATCH):
                raise RuntimeError("a share fetch did not acknowledge one batch")

        yield once


@contextmanager
def share_acknowledge(port: int, topic: str) -> Iterator[Once]:
    """A ShareFetch of one batch of 16 KB, and a ShareAcknowledge of it."""
    with _share_worker(port, topic) as worker:

        def once() -> None:
            worker.acknowledge(worker.held)
            worker.held = []
            worker.ask()
            worker.take()
            if sum(each.last - each.first + 1 for each in worker.held) != len(BATCH):
                raise RuntimeError("a share fetch did not bring one batch")

        yield once


@contextmanager
def share_acknowledge_singles(port: int, topic: str) -> Iterator[Once]:
    """The same, with messages that are acknowledged one by one in one request."""
    with _share_worker(port, topic) as worker:

        def once() -> None:
            worker.acknowledge(
                [Acquired(held.place, at, at) for held in worker.held for at in range(held.first, held.last + 1)]
            )
            worker.held = []
            worker.ask()
            worker.take()
            if sum(each.last - each.first + 1 for each in worker.held) != len(BATCH):
                raise RuntimeError("a share fetch did not bring one batch")

        yield once


@contextmanager
def _share_worker(port: int, topic: str) -> Iterator[ShareWorker]:
    """A worker that has one batch of many."""
    written = wire.produce_request(topic, 0, wire.batch(BATCH))
    with wire.connect(port) as connection:
        for _ in range(_SHARED_BATCHES):
            _ask(connection, written)
    with ShareGroup(port, topic, topic, 1) as group:
        [member] = group.members
        place = next(place for place in member.places if place.partition == 0)
        frames = ShareFrames(group.name, member.name, len(BATCH))
        with closing(ShareWorker(port, frames, [place])) as worker:
            for _ in range(2):  # the first record of the topic stands alone
                worker.ask()
                worker.take()
            yield worker


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
        transaction_offsets,
        txn_offset_commit,
        fetch_parked,
        fetch_megabyte,
        offset_commit,
        heartbeat_classic,
        heartbeat_consumer,
        heartbeat_epoch,
        join_consumer,
        rebalance_classic,
        rebalance_classic_100,
        rebalance_consumer_100,
        heartbeat_share,
        share_fetch,
        share_acknowledge,
        share_acknowledge_singles,
        metadata,
        api_versions,
    )
}
CROWDED: Final = frozenset({"rebalance-classic-100", "rebalance-consumer-100"})
"""Those of many members, each of which is many requests."""
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


def wait_for_shares(port: int) -> None:
    """Wait until states of share partitions are coordinated: who asks first has the broker make their topic."""
    deadline = time.monotonic() + _DEADLINE
    key = f"wait-for-shares:{_NO_TOPIC}:0"
    find = wire.frame(FindShareCoordinatorRequest(key_type=i8(2), coordinator_keys=(key,)))
    with wire.connect(port) as connection:
        while time.monotonic() < deadline:
            answer = wire.parse(FindShareCoordinatorResponse, _ask(connection, find))
            if answer.coordinators[0].error_code == 0:
                return
            time.sleep(0.05)
    raise RuntimeError(f"nobody coordinates share partitions within {_DEADLINE:.0f} seconds")


def _init_request(name: TransactionalId | None) -> bytes:
    return wire.frame(
        InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout=TIMEOUT,
            producer_id=ProducerId(-1),
            producer_epoch=i16(-1),
        )
    )


def init_producer(connection: socket.socket, name: TransactionalId | None) -> tuple[int, int]:
    """A producer id and its epoch, as soon as the broker gives them out."""
    deadline = time.monotonic() + _DEADLINE
    while True:
        answer = wire.parse(InitProducerIdResponse, _ask(connection, _init_request(name)))
        if answer.error_code not in groups.NOT_YET or time.monotonic() > deadline:
            _check(answer.error_code)
            return answer.producer_id, answer.producer_epoch
        time.sleep(0.05)


def _by_producer(template: bytes, producer: int, epoch: int, sequence: int, attributes: int = 0) -> bytes:
    """A batch under a producer's id, epoch and sequence number."""
    batch = bytearray(template)
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer, epoch, sequence)
    struct.pack_into(">I", batch, _CRC_AT, crc32c.crc32c(batch[_ATTRIBUTES_AT:]))
    return bytes(batch)


def _check(error: int) -> None:
    if error:
        raise RuntimeError(f"the broker answered {error!r}")
