"""The transaction coordinators of this broker: the machine of transactions over partitions of `__transaction_state`.

The leader of a partition calls `add_or_verify` before it stores the first batch of a transaction. The coordinator, here
or on another broker, adds the partition to the transaction, or verifies that it was added.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.coordinators.calls import Call
from barnabas.broker.coordinators.reply_deadline import ReplyDeadline
from barnabas.broker.coordinators.request_batching import REQUEST_SECONDS, RequestBatcher
from barnabas.broker.coordinators.runtime import CoordinatorLog, CoordinatorParts, Runtime
from barnabas.broker.tasks import TaskSet
from barnabas.machines.transactions.settings import TransactionSettings
from barnabas.model.errors import ApiError, CoordinatorNotAvailable, ErrorCode, NotCoordinator
from barnabas.model.internal_topics import TRANSACTION_STATE
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTransaction

    from barnabas.broker.controller.peers import Peers
    from barnabas.broker.coordinators.groups import GroupCoordinators
    from barnabas.broker.coordinators.markers import MarkerWriter
    from barnabas.broker.coordinators.producer_ids import ProducerIdSource
    from barnabas.broker.coordinators.shard import Shard
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.settings import Settings
    from barnabas.machines.outcome import Response
    from barnabas.machines.transactions.coordinator import Overdue, TransactionCoordinator, TransactionOutcome
    from barnabas.model.ids import TopicPartition

    Codes = Mapping[TopicPartition, ErrorCode] | ErrorCode
    """Error codes of partitions, or one for all of them."""

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 3.0
"""How long a stop waits for requests that wait for a coordinator: they would wait much longer for one that hangs."""
RETRY_FOR: Final = 0.1
"""Seconds that a batch waits for the end of the producer's last transaction."""
RETRY_EVERY: Final = 0.005
"""Seconds between two tries meanwhile."""
_FINAL: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)
"""Errors after which a producer cannot go on."""


class _RemoteAdd(NamedTuple):
    """Partitions of one transaction that another broker's coordinator has to add or verify."""

    transaction: AddPartitionsToTxnTransaction
    partitions: Collection[TopicPartition]
    result: asyncio.Future[Mapping[TopicPartition, ErrorCode]]


class TransactionCoordinators:
    """The transactional ids that this broker coordinates."""

    def __init__(
        self,
        broker_id: int,
        parts: CoordinatorParts,
        settings: Settings,
        *,
        groups: GroupCoordinators,
        peers: Peers,
        producer_ids: ProducerIdSource,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = parts.metadata
        self._settings = settings
        self._peers = peers
        self._producer_ids = producer_ids
        self._tasks = TaskSet()
        self._requests = RequestBatcher(self._send_batch)
        self._deadline: ReplyDeadline[Codes] = ReplyDeadline()
        self._writer: MarkerWriter | None = None

        def make_writer() -> MarkerWriter:
            from barnabas.broker.coordinators.markers import MarkerWriter

            return MarkerWriter(broker_id, parts, groups, peers)

        self._make_writer = make_writer
        log = CoordinatorLog(
            topic=TRANSACTION_STATE, load_buffer_bytes=settings.number("transaction.state.log.load.buffer.size")
        )
        self.runtime: Runtime[TransactionCoordinator] = Runtime(log, self._make_machine, parts, send=self._send)

    @property
    def writer(self) -> MarkerWriter:
        """Writes markers to partitions; created when it is first needed."""
        if self._writer is None:
            self._writer = self._make_writer()
        return self._writer

    def _send(self, shard: Shard[TransactionCoordinator], message: object) -> None:
        """Write the markers of a transaction right after the response to its producer has left: two turns from now.

        So the producer does not wait for them. Its next request is read when they are written.
        """
        from barnabas.machines.transactions.coordinator import Overdue
        from barnabas.machines.transactions.steps import Markers

        if isinstance(message, Overdue):
            self.spawn(self._abort_overdue(shard, message))
            return
        assert isinstance(message, Markers)
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self.writer.send, shard, message)

    async def _abort_overdue(self, shard: Shard[TransactionCoordinator], overdue: Overdue) -> None:
        """Get the producer id that an abort needs; if there is none now, the coordinator tries again."""
        try:
            fresh_id = await self._producer_ids.next()
        except ApiError as error:
            logger.warning(
                "Could not get a producer id to abort the transaction of %s, which timed out. It is tried again: %s",
                overdue.transactional_id,
                error,
            )
            return
        shard.decide_event(lambda machine, now_ms: machine.abort_overdue(overdue, fresh_id, now_ms))

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run work that waits for a coordinator."""
        self._tasks.spawn(work)

    async def stop(self) -> None:
        """Stop serving. Requests that wait for a coordinator which does not answer are cancelled."""
        self.runtime.resign()
        await self._tasks.finish(STOP_SECONDS)
        await self._requests.stop()
        if self._writer is not None:
            await self._writer.stop()
        await self.runtime.loaded()

    def ask(
        self,
        transactional_id: str,
        decide: Callable[[TransactionCoordinator, Call[Response], int], TransactionOutcome],
        version: int,
        failure: Callable[[ApiError], Response],
    ) -> Response | asyncio.Future[Response]:
        """Let the coordinator of a transactional id decide a request."""
        call = Call("", "", version, failure)
        try:
            shard = self.runtime.find(transactional_id)
        except ApiError as error:
            return failure(error)
        shard.ask(decide, call)
        return _when_confirmed(shard.partition, call.result(), failure)

    async def in_time(
        self, transactional_ids: Sequence[str], answers: Sequence[Codes | asyncio.Future[Codes]]
    ) -> list[Codes | asyncio.Future[Codes]]:
        """Wait for the answers of coordinators until the reply deadline; a late one is COORDINATOR_NOT_AVAILABLE.

        A coordinator is late when its followers hang. As in Apache Kafka, the broker that asked asks again.
        """
        waiting = [
            (self.runtime.partition_for(transactional_id), answer)
            for transactional_id, answer in zip(transactional_ids, answers, strict=True)
            if asyncio.isfuture(answer)
        ]
        await self._deadline.wait(waiting)
        late = CoordinatorNotAvailable.code
        return [late if asyncio.isfuture(answer) and not answer.done() else answer for answer in answers]

    async def add_or_verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        version: int | None,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Add partitions to a transaction for a client of this transaction.version; None verifies that they were added.

        It waits a little for a transaction that is still being ended.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_FOR
        while True:
            codes = await self._add_or_verify(transactional_id, producer, partitions, version)
            if ErrorCode.concurrent_transactions not in codes.values() or loop.time() > deadline:
                return codes
            await asyncio.sleep(RETRY_EVERY)

    async def _add_or_verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        version: int | None,
    ) -> Mapping[TopicPartition, ErrorCode]:
        number = self.runtime.partition_for(transactional_id)
        image = None if number is None else self._metadata.partition(TRANSACTION_STATE, number)
        if image is None:
            return dict.fromkeys(partitions, CoordinatorNotAvailable.code)
        if image.leader != self._broker_id:
            return await self._ask_remotely(image.leader, transactional_id, producer, partitions, version is None)
        answer = self._ask_locally(transactional_id, producer, partitions, version)
        codes: Codes = await answer if asyncio.isfuture(answer) else answer
        return dict.fromkeys(partitions, codes) if isinstance(codes, ErrorCode) else codes

    def verify_at_once(
        self, transactional_id: str, producer: tuple[int, int], partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """Verify that partitions were added; None if that cannot be said at once, or another broker coordinates."""
        answer = self._ask_locally(transactional_id, producer, partitions, None)
        if isinstance(answer, dict) and ErrorCode.concurrent_transactions not in answer.values():
            return answer
        return None

    def _ask_locally(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        version: int | None,
    ) -> Codes | asyncio.Future[Codes]:
        """Add or verify partitions of a transaction that this broker coordinates."""

        def decide(machine: TransactionCoordinator, call: Call[Codes], now_ms: int) -> TransactionOutcome:
            if version is None:
                return machine.verify_partitions(transactional_id, *producer, partitions, call, now_ms)
            return machine.add_partitions(transactional_id, *producer, partitions, version, call, now_ms)

        return self.ask(transactional_id, decide, 0, _error_code)

    async def _ask_remotely(
        self,
        leader: int,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Add or verify partitions of a transaction that another broker coordinates."""
        from barnabas.protocol.messages.add_partitions_to_txn import transaction

        result: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        described = transaction(transactional_id, producer, partitions, verify_only)
        self._requests.add(leader, _RemoteAdd(described, partitions, result))
        return await result

    async def _send_batch(self, leader: int, adds: list[_RemoteAdd]) -> None:
        """Send one request for many transactions; the results have the order of the transactions."""
        from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest
        from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse

        codes: dict[tuple[int, str, int], ErrorCode] = {}
        missing = ErrorCode.network_exception
        try:
            request = AddPartitionsToTxnRequest(transactions=tuple(each.transaction for each in adds))
            response: AddPartitionsToTxnResponse = await self._peers.ask(
                leader, request, AddPartitionsToTxnResponse, seconds=REQUEST_SECONDS, purpose="transactions"
            )
        except ChannelBroken:
            pass  # the producers get a retriable error
        except Exception:
            logger.exception(
                "Adding partitions to %d transactions that broker %d coordinates failed. Their producers get an error.",
                len(adds),
                leader,
            )
            missing = ErrorCode.unknown_server_error
        else:
            if response.error_code is not ErrorCode.none:
                missing = response.error_code
            for place, added in enumerate(response.results_by_transaction):
                for topic in added.topic_results:
                    for partition in topic.results_by_partition:
                        codes[place, topic.name, partition.partition_index] = partition.partition_error_code
        for place, (_, partitions, result) in enumerate(adds):
            if not result.done():
                result.set_result({tp: codes.get((place, *tp), missing) for tp in partitions})

    def _make_machine(self) -> TransactionCoordinator:
        from barnabas.machines.transactions.coordinator import TransactionCoordinator

        number = self._settings.number
        return TransactionCoordinator(
            TransactionSettings(
                max_timeout_ms=number("transaction.max.timeout.ms"),
                id_expiration_ms=number("transactional.id.expiration.ms"),
                expiration_check_ms=number("transaction.remove.expired.transaction.cleanup.interval.ms"),
            )
        )


def _error_code(error: ApiError) -> ErrorCode:
    return error.code


def _when_confirmed(
    partition: LeaderPartition,
    answer: Response | asyncio.Future[Response],
    failure: Callable[[ApiError], Response],
) -> Response | asyncio.Future[Response]:
    """The answer. If it ends a producer for good, it waits until this broker is known to be the coordinator still.

    A coordinator that does not know yet that it was replaced may have missed epochs. A follower of its partition that
    fetches shows that it was not replaced. An answer that waits for its records waits for the followers anyway.
    """
    if asyncio.isfuture(answer) or len(partition.leader.isr) == 1 or not _ends_a_producer(answer):
        return answer
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def done(error: ApiError | None) -> None:
        if not future.done():
            future.set_result(answer if error is None else failure(NotCoordinator(str(error))))

    partition.when_confirmed(done)
    return future


def _ends_a_producer(answer: object) -> bool:
    codes = answer.values() if isinstance(answer, dict) else (getattr(answer, "error_code", answer),)
    return not _FINAL.isdisjoint(codes)
