"""The transaction coordinators of this broker: the machine of transactions over partitions of `__transaction_state`.

`add_or_verify` is what a partition's leader asks before the first batch of a transaction is stored: the coordinator,
here or on another broker, notes the partition, or says whether it was noted.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.bundles import Bundles
from barnabas.broker.calls import Call
from barnabas.broker.internal_topics import TRANSACTION_STATE
from barnabas.broker.patience import Patience
from barnabas.broker.runtime import Runtime
from barnabas.machines.transactions.settings import TransactionSettings
from barnabas.model.errors import ApiError, CoordinatorNotAvailable, ErrorCode, NotCoordinator
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
    from concurrent.futures import Executor

    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnTransaction

    from barnabas.broker.groups import Groups
    from barnabas.broker.markers import MarkerWriter
    from barnabas.broker.partition import Partition
    from barnabas.broker.peers import Peers
    from barnabas.broker.producer_ids import ProducerIdSource
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.broker.settings import Settings
    from barnabas.broker.shard import Shard
    from barnabas.machines.transactions.coordinator import Overdue, TransactionCoordinator, TransactionOutcome
    from barnabas.metadata.cache import MetadataCache
    from barnabas.model.clock import Clock
    from barnabas.model.ids import TopicPartition

logger = logging.getLogger(__name__)

ANSWER: Final = 30.0
"""Seconds that a coordinator on another broker has to answer."""
STOP_SECONDS: Final = 3.0
"""How long a stop waits for whoever waits for a coordinator: one that hangs may keep them waiting for much longer."""
RETRY_FOR: Final = 0.1
"""Seconds that a batch waits for the end of the transaction before it."""
RETRY_EVERY: Final = 0.005
_FINAL: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)
"""Answers after which a producer does not go on."""


class _Question(NamedTuple):
    """What another broker's coordinator is asked of one transaction."""

    asked: AddPartitionsToTxnTransaction
    partitions: Collection[TopicPartition]
    answer: asyncio.Future[Mapping[TopicPartition, ErrorCode]]


class Transactions:
    """The transactional ids that this broker coordinates."""

    def __init__(
        self,
        broker_id: int,
        *,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        settings: Settings,
        groups: Groups,
        peers: Peers,
        producer_ids: ProducerIdSource,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._settings = settings
        self._peers = peers
        self._producer_ids = producer_ids
        self._tasks: set[asyncio.Task[None]] = set()
        self._elsewhere = Bundles(self._ask_elsewhere)
        self._patience = Patience()
        self._writer: MarkerWriter | None = None
        self._make_writer = partial(
            _make_writer,
            broker_id,
            replicas=replicas,
            metadata=metadata,
            groups=groups,
            peers=peers,
            clock=clock,
            executor=executor,
        )
        self.runtime: Runtime[TransactionCoordinator] = Runtime(
            TRANSACTION_STATE,
            self._make_machine,
            replicas=replicas,
            metadata=metadata,
            clock=clock,
            executor=executor,
            load_buffer_bytes=settings.number("transaction.state.log.load.buffer.size"),
            compression=0,
            send=self._send,
        )

    @property
    def writer(self) -> MarkerWriter:
        """Brings markers to partitions; made when it is first needed."""
        if self._writer is None:
            self._writer = self._make_writer()
        return self._writer

    def _send(self, shard: Shard[TransactionCoordinator], message: Any) -> None:
        """Write the markers of a transaction right after the answer to its producer has left: two turns from now.

        So the producer does not wait for them; what it asks next is read when they are written.
        """
        from barnabas.machines.transactions.coordinator import Overdue

        if isinstance(message, Overdue):
            self.spawn(self._abort_overdue(shard, message))
            return
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self.writer.send, shard, message)

    async def _abort_overdue(self, shard: Shard[TransactionCoordinator], overdue: Overdue) -> None:
        """Get the producer id that an abort takes; if there is none now, the coordinator asks again."""
        try:
            fresh_id = await self._producer_ids.next()
        except ApiError as error:
            logger.warning("the overdue transaction of %s cannot be aborted yet: %s", overdue.transactional_id, error)
            return
        shard.tell(lambda machine, now_ms: machine.abort_overdue(overdue, fresh_id, now_ms))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that waits for a coordinator."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Serve no more; what waits for a coordinator that does not answer is given up."""
        self.runtime.resign()
        if self._tasks:
            _, hung = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in hung:
                task.cancel()
            await asyncio.gather(*hung, return_exceptions=True)
        await self._elsewhere.stop()
        if self._writer is not None:
            await self._writer.stop()
        await self.runtime.loaded()

    def ask(
        self,
        transactional_id: str,
        decide: Callable[[TransactionCoordinator, Call, int], TransactionOutcome],
        version: int,
        failure: Callable[[ApiError], Any],
    ) -> Any:
        """Let the coordinator of an id decide; gives the response, or a future of it."""
        call = Call("", "", version, failure)
        try:
            shard = self.runtime.find(transactional_id)
        except ApiError as error:
            return failure(error)
        shard.ask(lambda machine, now_ms: decide(machine, call, now_ms), call)
        return _confirmed(shard.partition, call.result(), failure)

    async def in_time(self, transactional_ids: Sequence[str], answers: Sequence[Any]) -> list[Any]:
        """The answers of coordinators, waited for a while; COORDINATOR_NOT_AVAILABLE in the place of one that is late.

        Late is a coordinator whose followers hang. As in Apache Kafka, whoever asked comes again.
        """
        waiting = [
            (self.runtime.partition_for(transactional_id), answer)
            for transactional_id, answer in zip(transactional_ids, answers, strict=True)
            if asyncio.isfuture(answer)
        ]
        await self._patience.wait(waiting)
        late = CoordinatorNotAvailable.code
        return [late if asyncio.isfuture(answer) and not answer.done() else answer for answer in answers]

    async def add_or_verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        version: int | None,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Note partitions of a transaction for a client of this transaction.version; None verifies that they are noted.

        A transaction that is still being ended is waited for a little.
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
            return await self._ask(image.leader, transactional_id, producer, partitions, version is None)
        answer = self._ask_here(transactional_id, producer, partitions, version)
        if asyncio.isfuture(answer):
            answer = await answer
        return answer if isinstance(answer, dict) else dict.fromkeys(partitions, answer)

    def verify_at_once(
        self, transactional_id: str, producer: tuple[int, int], partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """Verify that partitions are noted; None if that takes its time: another broker knows, or nobody yet."""
        answer = self._ask_here(transactional_id, producer, partitions, None)
        if isinstance(answer, dict) and ErrorCode.concurrent_transactions not in answer.values():
            return answer
        return None

    def _ask_here(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        version: int | None,
    ) -> Any:
        """Error codes of partitions, one for all of them, or a future of either."""

        def decide(machine: TransactionCoordinator, call: Call, now_ms: int) -> TransactionOutcome:
            if version is None:
                return machine.verify_partitions(transactional_id, *producer, partitions, call, now_ms)
            return machine.add_partitions(transactional_id, *producer, partitions, version, call, now_ms)

        return self.ask(transactional_id, decide, 0, lambda error: error.code)

    async def _ask(
        self,
        leader: int,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Ask a coordinator on another broker."""
        from barnabas.protocol.add_partitions import transaction

        answer: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        asked = transaction(transactional_id, producer, partitions, verify_only)
        self._elsewhere.add(leader, _Question(asked, partitions, answer))
        return await answer

    async def _ask_elsewhere(self, leader: int, questions: list[_Question]) -> None:
        """Ask a coordinator all this; its answers have the order of the questions."""
        from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest
        from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse

        codes: dict[tuple[int, str, int], ErrorCode] = {}
        missing = ErrorCode.network_exception
        try:
            request = AddPartitionsToTxnRequest(transactions=tuple(question.asked for question in questions))
            response: AddPartitionsToTxnResponse = await self._peers.ask(
                leader, request, AddPartitionsToTxnResponse, seconds=ANSWER, purpose="transactions"
            )
        except ChannelBroken:
            pass  # whoever asked is told to come again
        except Exception:
            logger.exception("the coordinator on broker %d could not be asked", leader)
            missing = ErrorCode.unknown_server_error
        else:
            if response.error_code is not ErrorCode.none:
                missing = response.error_code
            for place, result in enumerate(response.results_by_transaction):
                for topic in result.topic_results:
                    for partition in topic.results_by_partition:
                        codes[place, topic.name, partition.partition_index] = partition.partition_error_code
        for place, (_, partitions, answer) in enumerate(questions):
            if not answer.done():
                answer.set_result({tp: codes.get((place, *tp), missing) for tp in partitions})

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


def _make_writer(broker_id: int, **parts: Any) -> MarkerWriter:
    from barnabas.broker.markers import MarkerWriter

    return MarkerWriter(broker_id, **parts)


def _confirmed(partition: Partition, answer: Any, failure: Callable[[ApiError], Any]) -> Any:
    """The answer, or a future of it where it ends a producer for good and others could coordinate by now.

    A coordinator that was replaced without knowing it has missed epochs. What it says is told when a follower of its
    partition has shown that it was not; an answer that waits for its records waits for the same anyway.
    """
    if asyncio.isfuture(answer) or len(partition.leader.isr) == 1 or not _ends_a_producer(answer):
        return answer
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(error: ApiError | None) -> None:
        if not future.done():
            future.set_result(answer if error is None else failure(NotCoordinator(str(error))))

    partition.when_confirmed(done)
    return future


def _ends_a_producer(answer: Any) -> bool:
    codes = answer.values() if isinstance(answer, dict) else (getattr(answer, "error_code", answer),)
    return not _FINAL.isdisjoint(codes)
