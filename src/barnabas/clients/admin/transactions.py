"""Transactions seen from outside: who has one open, on which partitions, and how one is ended that hangs.

A transaction hangs when a partition holds records of it while its coordinator knows nothing of that: readers of
committed records wait before them until somebody ends it by hand. Brokers that verify transactions let none begin.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i64

from barnabas.clients.admin.log_offsets import LogOffsets, by_topic
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import RETRY_SECONDS, TRANSACTIONS, meaning
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.permissions import Action, on_cluster, on_topic, on_transactional_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from barnabas.clients.wire.connection import Node, WireClient

NOT_OPEN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id in full; `started_ms` is when its last transaction began, also after that has ended."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that a partition remembers; `start_offset` is where its open transaction begins, or None."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    start_offset: int | None


class Transactions:
    """The transactions of a cluster, as coordinators and partitions know them."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def listing(
        self,
        *,
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        at: Node | None = None,
    ) -> list[ListedTransaction]:
        """What all coordinators know, or one of them, by transactional id. Raises RequestRefused."""
        from kio.schema.list_transactions.v2.request import ListTransactionsRequest

        request = ListTransactionsRequest(
            state_filters=(),
            producer_id_filters=tuple(map(ProducerId, producer_ids)),
            duration_filter=i64(-1 if longer_than_ms is None else longer_than_ms),
            transactional_id_pattern=pattern,
        )
        needed = 2 if pattern is not None else 1 if longer_than_ms is not None else 0
        found = []
        for node in self._wire.nodes() if at is None else [at]:
            answer = self._wire.ask(request, at=node, at_least=needed)
            if answer.error_code != ErrorCode.none:
                raise RequestRefused(answer.error_code, meaning(answer))
            found += [
                ListedTransaction(
                    transactional_id=one.transactional_id,
                    coordinator=node.id,
                    producer_id=one.producer_id,
                    state=one.transaction_state,
                )
                for one in answer.transaction_states
            ]
        return sorted(found, key=lambda one: one.transactional_id)

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, Transaction]:
        """Transactional ids in full; one that no coordinator knows is left out. Raises RequestRefused."""
        from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest

        answers = self._wire.ask_coordinators(
            transactional_ids,
            lambda ids: DescribeTransactionsRequest(transactional_ids=tuple(map(TransactionalId, ids))),
            lambda answer: ((one.transactional_id, one.error_code, one) for one in answer.transaction_states),
            of=TRANSACTIONS,
            action=_describe,
        )
        found = {}
        for transactional_id, (node, code, one) in answers.items():
            if code == ErrorCode.transactional_id_not_found:
                continue
            if code != ErrorCode.none:
                raise RequestRefused(code, meaning(one), _describe(transactional_id))
            found[transactional_id] = _transaction(node, one)
        return found

    def producers(self, partitions: Iterable[TopicPartition], at: Node | None = None) -> list[ActiveProducer]:
        """The producers that partitions remember, asked of one broker or of their leaders. Raises RequestRefused."""
        from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest

        wanted = list(partitions)
        found = []
        for node, some in (self._by_leader(wanted) if at is None else {at: wanted}).items():
            request = DescribeProducersRequest(
                topics=tuple(
                    TopicRequest(name=TopicName(topic), partition_indexes=tuple(map(i32, indexes)))
                    for topic, indexes in by_topic(some).items()
                )
            )
            for topic in self._wire.ask(request, at=node).topics:
                for part in topic.partitions:
                    partition = TopicPartition(topic.name, part.partition_index)
                    if part.error_code != ErrorCode.none:
                        raise RequestRefused(
                            part.error_code,
                            f"{partition}: {part.error_message or meaning(part)}",
                            on_topic("see the producers of", "Read", partition.topic),
                        )
                    found += [_producer(partition, one) for one in part.active_producers]
        return found

    def _by_leader(self, partitions: list[TopicPartition]) -> dict[Node, list[TopicPartition]]:
        """Partitions by who leads them; raises RequestRefused for one that nobody leads."""
        led = LogOffsets(self._wire).by_leader(partitions)
        found = {partition for some in led.values() for partition in some}
        for partition in partitions:
            if partition not in found:
                raise RequestRefused(
                    ErrorCode.unknown_topic_or_partition, f"there is no partition {partition}, or it has no leader"
                )
        return led

    def find_hanging(
        self, partitions: Iterable[TopicPartition], older_than_ms: int, at: Node | None = None
    ) -> list[ActiveProducer]:
        """Transactions that are open on partitions, and that no coordinator would ever end."""
        now_ms = time.time() * 1000
        candidates = [
            one
            for one in self.producers(partitions, at)
            if one.start_offset is not None and now_ms - one.last_timestamp > older_than_ms
        ]
        if not candidates:
            return []
        listed = self.listing(producer_ids={one.producer_id for one in candidates})
        known = self.describe([one.transactional_id for one in listed])
        covered = {
            (transaction.producer_id, partition)
            for transaction in known.values()
            for partition in transaction.partitions
        }
        return [one for one in candidates if (one.producer_id, one.partition) not in covered]

    def abort(self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """End a transaction on one partition, as its coordinator would. Raises RequestRefused.

        A marker that is not on all replicas in time, or whose leader has just changed, is sent again, as a coordinator
        does.
        """
        from kio.schema.write_txn_markers.v2.request import (
            WritableTxnMarker,
            WritableTxnMarkerTopic,
            WriteTxnMarkersRequest,
        )

        marker = WritableTxnMarker(
            producer_id=ProducerId(producer_id),
            producer_epoch=i16(producer_epoch),
            transaction_result=False,
            topics=(
                WritableTxnMarkerTopic(name=TopicName(partition.topic), partition_indexes=(i32(partition.partition),)),
            ),
            coordinator_epoch=i32(max(coordinator_epoch, 0)),
            transaction_version=i8(0),
        )
        deadline = self._wire.deadline()
        while True:
            (node,) = self._by_leader([partition])
            answer = self._wire.ask(WriteTxnMarkersRequest(markers=(marker,)), at=node)
            (result,) = (one for marked in answer.markers for topic in marked.topics for one in topic.partitions)
            if result.error_code == ErrorCode.none:
                return
            if not result.error_code.retriable or deadline.passed:
                raise RequestRefused(result.error_code, meaning(result), on_cluster("end transactions", "Alter"))
            time.sleep(RETRY_SECONDS)

    def force_terminate(self, transactional_id: str) -> None:
        """End whatever is open under a transactional id, and fence its producer. Raises RequestRefused."""
        from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
        from kio.static.primitive import i32Timedelta

        answers = self._wire.ask_coordinators(
            [transactional_id],
            lambda _: InitProducerIdRequest(
                transactional_id=TransactionalId(transactional_id),
                transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=1)),
            ),
            lambda answer: [(transactional_id, answer.error_code, answer)],
            of=TRANSACTIONS,
            retried=frozenset({ErrorCode.concurrent_transactions}),
            action=_end,
        )
        for _, code, answer in answers.values():
            if code != ErrorCode.none:
                raise RequestRefused(code, meaning(answer), _end(transactional_id))


def _describe(transactional_id: str) -> Action:
    return on_transactional_id("describe", "Describe", transactional_id)


def _end(transactional_id: str) -> Action:
    return on_transactional_id("end the transaction of", "Write", transactional_id)


def _transaction(node: Node, one: Any) -> Transaction:
    started_ms = one.transaction_start_time
    return Transaction(
        transactional_id=one.transactional_id,
        coordinator=node.id,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        state=one.transaction_state,
        timeout_ms=round(one.transaction_timeout.total_seconds() * 1000),
        started_ms=started_ms if started_ms > 0 else None,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, index) for topic in one.topics for index in topic.partitions)
        ),
    )


def _producer(partition: TopicPartition, one: Any) -> ActiveProducer:
    return ActiveProducer(
        partition=partition,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        coordinator_epoch=one.coordinator_epoch,
        last_sequence=one.last_sequence,
        last_timestamp=one.last_timestamp,
        start_offset=None if one.current_txn_start_offset == NOT_OPEN else one.current_txn_start_offset,
    )
