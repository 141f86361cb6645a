"""Transaction markers: the control batches that end a transaction in each of its partitions.

A marker is written here if this broker leads the partition, and otherwise by the broker that leads it
(WriteTxnMarkers). A marker that cannot be written now (the partition has no leader, a group coordinator is being
loaded, an unexpected error) is tried again until it is committed, or until another broker coordinates the transaction.

A partition needs no marker if it was deleted. A partition that is not in the image was deleted, unless the image does
not have all topics yet. A partition that has a later epoch of the producer needs no marker either: the later epoch has
ended the transaction there. When no partition is left, the transaction's coordinator completes the transaction.

A marker for `__consumer_offsets` goes through the group coordinator, which applies or drops the pending offsets.
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

from barnabas.broker.coordinators.remote_markers import RemoteMarkers
from barnabas.broker.coordinators.request_batching import REQUEST_SECONDS, RequestBatcher
from barnabas.broker.replication.verification_guards import Marker
from barnabas.machines.controller.image import DELETED, NO_LEADER
from barnabas.machines.transactions.steps import EPOCH_BUMPS_SINCE
from barnabas.model.errors import ApiError, ErrorCode, UnknownServerError
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.broker.controller.peers import Peers
    from barnabas.broker.coordinators.groups import GroupCoordinators
    from barnabas.broker.coordinators.runtime import CoordinatorParts
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.machines.transactions.coordinator import TransactionCoordinator
    from barnabas.machines.transactions.steps import Markers
    from barnabas.model.ids import TopicPartition

logger = logging.getLogger(__name__)

RETRY: Final = 0.1
"""Seconds between tries."""
RETRY_SLOWLY: Final = 1.0
"""Seconds until the next try after an error that will not pass soon."""
SLOW_ERRORS: Final = frozenset(
    {ErrorCode.transaction_coordinator_fenced, ErrorCode.unknown_server_error, ErrorCode.request_timed_out}
)
"""Errors that will not pass soon: another broker coordinates the transaction, and this one will learn of it; the
partition's leader failed; or its followers hang."""
ENDED: Final = frozenset({ErrorCode.none, ErrorCode.invalid_producer_epoch})
"""Results after which the transaction is not open in the partition any more."""


class _RemoteWrite(NamedTuple):
    """Markers that another broker has to write."""

    partitions: list[TopicPartition]
    markers: Markers
    coordinator_epoch: int
    done: Callable[[TopicPartition, ErrorCode], None]


class MarkerWriter:
    """Writes markers to partitions that this broker leads, and asks other brokers to write the rest."""

    def __init__(self, broker_id: int, parts: CoordinatorParts, groups: GroupCoordinators, peers: Peers) -> None:
        self.broker_id = broker_id
        self._replicas = parts.replicas
        self._metadata = parts.metadata
        self._groups = groups
        self._peers = peers
        self.clock = parts.clock
        self._executor = parts.executor
        self._requests = RequestBatcher(self._send_batch)
        self.remote = RemoteMarkers(self.write, parts.replicas)

    def send(self, shard: Shard[TransactionCoordinator], markers: Markers) -> None:
        """Write the markers of a transaction to all its partitions, then let its coordinator complete it."""
        _Delivery(self, shard, markers).run()

    def write(self, tp: TopicPartition, marker: Marker, done: Callable[[ApiError | None], None]) -> None:
        """Write a marker to a partition that this broker leads; `done` is called when it is committed, or cannot be."""
        try:
            partition = self._replicas.find(*tp)
            if not partition.log.is_ready:
                future = asyncio.get_running_loop().run_in_executor(self._executor, partition.log.prepare)
                future.add_done_callback(lambda future: self._prepared(future, tp, marker, done))
                return
            end_offset = self._append(partition, marker)
        except Exception as error:
            done(_api_error(tp, error))
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
            done(_api_error(tp, error))

    def _append(self, partition: LeaderPartition, marker: Marker) -> int:
        """Append a marker; returns the offset up to which the log must be committed."""
        now_ms = self.clock.now_ms()
        if partition.tp.topic != CONSUMER_OFFSETS:
            return partition.end_transaction(marker, now_ms)
        shard = self._groups.runtime.shard(partition.tp.partition)
        shard.end_transaction(lambda: partition.end_transaction(marker, now_ms), marker.producer_id, marker.commit)
        return partition.log.log_end_offset

    # For a delivery

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions by the broker that leads them: -1 if none is known, DELETED if the partition was deleted."""
        missing = NO_LEADER if self._metadata.is_behind else DELETED
        found: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            image = self._metadata.partition(*tp)
            found.setdefault(missing if image is None else image.leader, []).append(tp)
        return found

    def write_remotely(
        self,
        leader: int,
        partitions: list[TopicPartition],
        markers: Markers,
        coordinator_epoch: int,
        done: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        """Ask another broker to write markers; `done` is called for each partition."""
        self._requests.add(leader, _RemoteWrite(partitions, markers, coordinator_epoch, done))

    async def _send_batch(self, leader: int, writes: list[_RemoteWrite]) -> None:
        codes: dict[tuple[int, str, int], ErrorCode] = {}
        missing = ErrorCode.network_exception
        try:
            request = WriteTxnMarkersRequest(markers=tuple(map(_writable, writes)))
            response: WriteTxnMarkersResponse = await self._peers.ask(
                leader, request, WriteTxnMarkersResponse, seconds=REQUEST_SECONDS, purpose="markers"
            )
        except ChannelBroken as error:
            logger.warning(
                "Could not send the markers of %d transactions to broker %d. They are sent again: %s",
                len(writes),
                leader,
                error,
            )
        except Exception:
            logger.exception(
                "Sending the markers of %d transactions to broker %d failed. They are sent again.", len(writes), leader
            )
            missing = ErrorCode.unknown_server_error
        else:
            for result in response.markers:
                for topic in result.topics:
                    for partition in topic.partitions:
                        codes[result.producer_id, topic.name, partition.partition_index] = partition.error_code
        for partitions, markers, _, done in writes:
            for tp in partitions:
                try:
                    done(tp, codes.get((markers.producer_id, *tp), missing))
                except Exception:  # a bug of this broker; the results of the other partitions are handed out
                    logger.exception(
                        "Could not note the marker of %s in %s: the transaction is completed after a restart.",
                        markers.transactional_id,
                        tp,
                    )

    async def stop(self) -> None:
        """Send nothing more. The next coordinator sends what is left."""
        await self._requests.stop()


class _Delivery:
    """Brings the markers of one transaction to its partitions."""

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
        """Write to these, unless another coordinator has replaced this one: it sends the markers itself."""
        if self._machine is None or self._shard.machine is not self._machine:
            return
        writer, markers = self._writer, self._markers
        bumped = markers.transaction_version >= EPOCH_BUMPS_SINCE
        marker = Marker(markers.producer_id, markers.producer_epoch, self._epoch, markers.commit, bumped)
        for leader, led in writer.leaders(partitions).items():
            if leader == writer.broker_id:
                for tp in led:
                    writer.write(tp, marker, self._written(tp))
            elif leader == DELETED:
                for tp in led:
                    self._on_answer(tp, ErrorCode.none)
            elif leader < 0:
                for tp in led:
                    self._on_answer(tp, ErrorCode.leader_not_available)
            else:
                writer.write_remotely(leader, led, markers, self._epoch, self._on_answer)

    def _written(self, tp: TopicPartition) -> Callable[[ApiError | None], None]:
        return lambda error: self._on_answer(tp, ErrorCode.none if error is None else error.code)

    def _on_answer(self, tp: TopicPartition, code: ErrorCode) -> None:
        if code is ErrorCode.invalid_producer_epoch:
            logger.warning(
                "The transaction of %s needs no marker in %s: the partition has a later epoch of its producer.",
                self._markers.transactional_id,
                tp,
            )
        if code is ErrorCode.transaction_coordinator_fenced:
            logger.warning(
                "The marker of %s was refused in %s: another broker coordinates the transaction.",
                self._markers.transactional_id,
                tp,
            )
        if code in ENDED:
            self._left.remove(tp)
            if not self._left:
                self._finish()
        else:
            delay = RETRY_SLOWLY if code in SLOW_ERRORS else RETRY
            asyncio.get_running_loop().call_later(delay, self._try, (tp,))

    def _finish(self) -> None:
        """Let the coordinator complete the transaction, as soon as enough replicas of its log are in sync."""
        machine, shard = self._machine, self._shard
        if machine is None or shard.machine is not machine:
            return
        if shard.partition.too_few_in_sync() is not None:
            asyncio.get_running_loop().call_later(RETRY_SLOWLY, self._finish)
        else:
            shard.decide_event(lambda machine, now_ms: machine.markers_written(self._markers, now_ms))


def _api_error(tp: TopicPartition, error: BaseException) -> ApiError:
    """The error as one that a request can be answered with; an unexpected one is logged."""
    if isinstance(error, ApiError):
        return error
    logger.error("Could not write a transaction marker to %s.", tp, exc_info=error)
    return UnknownServerError(f"Could not write a transaction marker to {tp}: {error}")


def _writable(write: _RemoteWrite) -> WritableTxnMarker:
    partitions, markers, coordinator_epoch, _ = write
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
