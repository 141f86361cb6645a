"""Brings the ends of transactions to their partitions: control batches, here or through the brokers that lead there.

The markers of one transaction are written one partition at a time, each until it is committed there. What cannot be
written now (no leader, a coordinator of groups that is being loaded) is tried again until it can, or until another
coordinator has taken this one's place; so is what failed in a way that nobody foresaw. A partition that was deleted
needs no marker; one that is not known was deleted, unless this broker has heard that it coordinates the transaction,
and not yet of all topics. Neither does a partition need one that knows a later epoch of the producer: whatever brought
it has ended the transaction there. When no partition is left, the transaction's coordinator is told.

A marker for `__consumer_offsets` goes through the group coordinator, which applies or drops the offsets with it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.types import ProducerId, TopicName
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v2.response import WriteTxnMarkersResponse
from kio.static.primitive import i8, i16, i32

from barnabas.broker.asked_markers import AskedMarkers
from barnabas.broker.bundles import Bundles
from barnabas.broker.internal_topics import CONSUMER_OFFSETS
from barnabas.broker.partition import Marker
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.transactions.steps import EPOCH_BUMPS_SINCE
from barnabas.model.errors import ApiError, ErrorCode, UnknownServerError
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor

    from barnabas.broker.groups import Groups
    from barnabas.broker.partition import Partition
    from barnabas.broker.peers import Peers
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.broker.shard import Shard
    from barnabas.machines.transactions.coordinator import TransactionCoordinator
    from barnabas.machines.transactions.steps import Markers
    from barnabas.metadata.cache import MetadataCache
    from barnabas.model.clock import Clock
    from barnabas.model.ids import TopicPartition

logger = logging.getLogger(__name__)

RETRY: Final = 0.1
"""Seconds between tries."""
RETRY_LATER: Final = 1.0
"""Seconds until the next try after an answer that will hardly be another one soon."""
LATER: Final = frozenset(
    {ErrorCode.transaction_coordinator_fenced, ErrorCode.unknown_server_error, ErrorCode.request_timed_out}
)
"""Answers of that kind: a partition has heard of a later coordinator, of which this one will hear too, or it failed, or
its followers hang."""
ANSWER: Final = 30.0
"""Seconds that another broker has to write markers."""
NOTHING_LEFT: Final = frozenset({ErrorCode.none, ErrorCode.invalid_producer_epoch})
"""Answers after which a partition holds nothing open of the transaction."""
DELETED: Final = -2
"""In the place of a leader: there is no such partition."""


class _Question(NamedTuple):
    """Markers that another broker is to write."""

    partitions: list[TopicPartition]
    markers: Markers
    coordinator_epoch: int
    done: Callable[[TopicPartition, ErrorCode], None]


class MarkerWriter:
    """Writes markers to partitions that this broker leads, and has others write the rest."""

    def __init__(
        self,
        broker_id: int,
        *,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        groups: Groups,
        peers: Peers,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self.broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._groups = groups
        self._peers = peers
        self.clock = clock
        self._executor = executor
        self._elsewhere = Bundles(self._ask)
        self.asked = AskedMarkers(self.write, replicas)

    def send(self, shard: Shard[TransactionCoordinator], markers: Markers) -> None:
        """Write the markers of a transaction everywhere, then tell its coordinator."""
        _Delivery(self, shard, markers).run()

    def write(self, tp: TopicPartition, marker: Marker, done: Callable[[ApiError | None], None]) -> None:
        """Write a marker to a partition that this broker leads; `done` hears when it is committed, or why it is not."""
        try:
            partition = self._replicas.find(*tp)
            if not partition.log.is_ready:
                future = asyncio.get_running_loop().run_in_executor(self._executor, partition.log.prepare)
                future.add_done_callback(lambda future: self._prepared(future, tp, marker, done))
                return
            end_offset = self._append(partition, marker)
        except Exception as error:
            done(_told(tp, error))
        else:
            partition.when_committed(end_offset, done)

    def _prepared(
        self,
        future: asyncio.Future[None],
        tp: TopicPartition,
        marker: Marker,
        done: Callable[[ApiError | None], None],
    ) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.write(tp, marker, done)
        else:
            done(_told(tp, error))

    def _append(self, partition: Partition, marker: Marker) -> int:
        """Returns the offset up to which the log must be committed."""
        now_ms = self.clock.now_ms()
        if partition.tp.topic != CONSUMER_OFFSETS:
            return partition.end_transaction(marker, now_ms)
        shard = self._groups.runtime.shard(partition.tp.partition)
        shard.end_transaction(lambda: partition.end_transaction(marker, now_ms), marker.producer_id, marker.commit)
        return partition.log.log_end_offset

    # For a delivery

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions by the broker that leads them, -1 for none or one not known yet; DELETED if they are no more."""
        missing = NO_LEADER if self._metadata.is_behind else DELETED
        found: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            image = self._metadata.partition(*tp)
            found.setdefault(missing if image is None else image.leader, []).append(tp)
        return found

    def ask(
        self,
        leader: int,
        partitions: list[TopicPartition],
        markers: Markers,
        coordinator_epoch: int,
        done: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        """Have another broker write markers; `done` is called for each partition."""
        self._elsewhere.add(leader, _Question(partitions, markers, coordinator_epoch, done))

    async def _ask(self, leader: int, questions: list[_Question]) -> None:
        codes: dict[tuple[int, str, int], ErrorCode] = {}
        missing = ErrorCode.network_exception
        try:
            request = WriteTxnMarkersRequest(markers=tuple(map(_writable, questions)))
            response: WriteTxnMarkersResponse = await self._peers.ask(
                leader, request, WriteTxnMarkersResponse, seconds=ANSWER, purpose="markers"
            )
        except ChannelBroken as error:
            logger.warning("markers for broker %d are sent again: %s", leader, error)
        except Exception:
            logger.exception("markers for broker %d could not be sent: they are sent again", leader)
            missing = ErrorCode.unknown_server_error
        else:
            for result in response.markers:
                for topic in result.topics:
                    for partition in topic.partitions:
                        codes[result.producer_id, topic.name, partition.partition_index] = partition.error_code
        for partitions, markers, _, done in questions:
            for tp in partitions:
                try:
                    done(tp, codes.get((markers.producer_id, *tp), missing))
                except Exception:  # a mistake of ours; the others of the bundle are told all the same
                    logger.exception("the marker in %s is not counted", tp)

    async def stop(self) -> None:
        """Leave the rest to the coordinator's next start."""
        await self._elsewhere.stop()


class _Delivery:
    """The markers of one transaction, on their way."""

    __slots__ = ("_epoch", "_left", "_machine", "_markers", "_shard", "_writer")

    def __init__(self, writer: MarkerWriter, shard: Shard[TransactionCoordinator], markers: Markers) -> None:
        self._writer = writer
        self._shard = shard
        self._machine = shard.machine
        self._markers = markers
        self._left = set(markers.partitions)
        self._epoch = shard.partition.leader.leader_epoch

    def run(self) -> None:
        """Try all partitions."""
        if self._left:
            self._try(sorted(self._left))
        else:
            self._finish()

    def _try(self, partitions: Iterable[TopicPartition]) -> None:
        """Write to these, unless another coordinator took this one's place: it sends the markers itself."""
        if self._machine is None or self._shard.machine is not self._machine:
            return
        writer, markers = self._writer, self._markers
        bumped = markers.transaction_version >= EPOCH_BUMPS_SINCE
        marker = Marker(markers.producer_id, markers.producer_epoch, self._epoch, markers.commit, bumped)
        for leader, led in writer.leaders(partitions).items():
            if leader == writer.broker_id:
                for tp in led:
                    writer.write(tp, marker, self._waiter(tp))
            elif leader == DELETED:
                for tp in led:
                    self._done(tp, ErrorCode.none)
            elif leader < 0:
                for tp in led:
                    self._done(tp, ErrorCode.leader_not_available)
            else:
                writer.ask(leader, led, markers, self._epoch, self._done)

    def _waiter(self, tp: TopicPartition) -> Callable[[ApiError | None], None]:
        return lambda error: self._done(tp, ErrorCode.none if error is None else error.code)

    def _done(self, tp: TopicPartition, code: ErrorCode) -> None:
        if code is ErrorCode.invalid_producer_epoch:
            logger.warning("%s needs no end of the transaction of %s any more", tp, self._markers.transactional_id)
        if code is ErrorCode.transaction_coordinator_fenced:
            logger.warning("%s has heard of a later coordinator of %s", tp, self._markers.transactional_id)
        if code in NOTHING_LEFT:
            self._left.remove(tp)
            if not self._left:
                self._finish()
        else:
            delay = RETRY_LATER if code in LATER else RETRY
            asyncio.get_running_loop().call_later(delay, self._try, (tp,))

    def _finish(self) -> None:
        """Tell the coordinator, as soon as it can store what it is told."""
        machine, shard = self._machine, self._shard
        if machine is None or shard.machine is not machine:
            return
        if shard.partition.too_few_in_sync() is not None:
            asyncio.get_running_loop().call_later(RETRY_LATER, self._finish)
        else:
            shard.tell(lambda machine, now_ms: machine.markers_written(self._markers, now_ms))


def _told(tp: TopicPartition, error: BaseException) -> ApiError:
    """What is told of a failure."""
    if isinstance(error, ApiError):
        return error
    logger.error("the end of a transaction could not be written to %s", tp, exc_info=error)
    return UnknownServerError(f"the end of a transaction could not be written: {error}")


def _writable(question: _Question) -> WritableTxnMarker:
    partitions, markers, coordinator_epoch, _ = question
    topics: dict[str, list[i32]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(i32(index))
    return WritableTxnMarker(
        producer_id=ProducerId(markers.producer_id),
        producer_epoch=i16(markers.producer_epoch),
        transaction_result=markers.commit,
        topics=tuple(
            WritableTxnMarkerTopic(name=TopicName(name), partition_indexes=tuple(indexes))
            for name, indexes in topics.items()
        ),
        coordinator_epoch=i32(coordinator_epoch),
        transaction_version=i8(markers.transaction_version),
    )
