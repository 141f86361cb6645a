"""Writes dead letters to the leader of their partition, here or on another broker, as a Produce with acks=all.

A dead letter that was written is committed: it survives whatever an acknowledged record survives. One whose answer got
lost is written again, so there may be two of a message, but never none.

Few batches at a time go to each broker: they are in memory, and one whose disk or followers are slow must not keep the
dead letters for other brokers waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.serving.validation_pool import yield_interpreter
from barnabas.broker.shares.letters import LetterLimit, compose
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
)
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.wire.durations import MILLISECOND
from barnabas.storage.log.validation import ZSTD_SINCE, Allowance, is_sound, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.shares.dead_letter_topics import DeadLetterTopics, LetterDestination
    from barnabas.broker.shares.letters import Composed, LetterOrigin
    from barnabas.machines.shares.records import DeadLetters

logger = logging.getLogger(__name__)

WRITE_SECONDS: Final = 30.0
"""How long a batch of dead letters may take until it is committed: Kafka's request.timeout.ms."""
AT_ONCE: Final = 4
"""Batches that are on their way to one broker."""
TOO_LARGE: Final = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)
"""Answers after which a smaller batch is sent."""


@dataclass(slots=True)
class DeadLetterCounts:
    """What became of the dead letters of one group since this broker started, or the group got settings of its own."""

    records: int = 0
    """Dead letters that are stored."""
    produces: int = 0
    """Batches of them that were sent, again or for the first time."""
    failures: int = 0
    """Attempts that failed, for whatever reason."""
    missing: int = 0
    """Offsets that were given up and have no dead letter: a marker of a transaction is there, or no record any more."""


class DeadLetterWriter:
    """The dead letters of all share partitions of this broker."""

    def __init__(self, broker: BrokerContext, topics: DeadLetterTopics) -> None:
        self._broker = broker
        self.topics = topics
        self.counts: dict[str, DeadLetterCounts] = defaultdict(DeadLetterCounts)
        """By group."""
        self._slots: dict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))

    async def write(
        self, origin: LetterOrigin, wanted: Sequence[DeadLetters], check: Callable[[], None]
    ) -> list[DeadLetters]:
        """Write the next dead letters of a share partition; gives those that have one now, or need none.

        Raises ApiError if nothing could be written, and whatever `check` raises, which is asked before a batch is sent:
        much may have happened while others were written, and records were read.
        """
        to = await self.topics.find(origin.group_id, origin.partition)
        async with self._slots[to.leader]:
            limit = LetterLimit(to.max_bytes)
            while True:
                composed = await self._compose(origin, wanted, limit)
                check()
                try:
                    await self._send(origin.group_id, to, composed)
                except (MessageTooLarge, RecordListTooLarge):  # the leader allows less than this broker knows
                    limit = limit.below(composed)
                else:
                    break
        self._count(origin, composed, to)
        return composed.done

    async def _compose(self, origin: LetterOrigin, wanted: Sequence[DeadLetters], limit: LetterLimit) -> Composed:
        now_ms = self._broker.clock.now_ms()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._broker.executor, compose, origin, wanted, limit, now_ms)

    def _count(self, origin: LetterOrigin, composed: Composed, to: LetterDestination) -> None:
        counts = self.counts[origin.group_id]
        counts.records += composed.letters
        if composed.missing:
            counts.missing += composed.missing
            logger.info(
                "%d offsets of %s-%d that were given up have no dead letter in %s: the log has no message there.",
                composed.missing,
                origin.topic,
                origin.partition,
                to.topic,
            )
        for offset in composed.too_large:
            logger.warning(
                "The message at offset %d of %s-%d was not copied to %s: it is too large for max.message.bytes there.",
                offset,
                origin.topic,
                origin.partition,
                to.topic,
            )

    # To the leader

    async def _send(self, group_id: str, to: LetterDestination, composed: Composed) -> None:
        if composed.batch is None:
            return
        self.counts[group_id].produces += 1
        if to.leader == self._broker.broker_id:
            await self._append(to, composed.batch)
        else:
            await self._produce(to, composed.batch)

    async def _append(self, to: LetterDestination, batch: bytes) -> None:
        """Append a batch here, as a Produce with acks=all does, and wait until it is committed. Raises ApiError."""
        partition = self._led(to)
        if not partition.log.is_ready:
            await asyncio.get_running_loop().run_in_executor(self._broker.executor, partition.log.prepare)
        stored = await self._opened(self._led(to), batch)
        partition, now_ms = self._led(to), self._broker.clock.now_ms()  # another broker may lead by now
        partition.check_acks()
        header = partition.check(stored, now_ms, ZSTD_SINCE)
        await _committed(partition, partition.append(stored, header, now_ms).last_offset + 1)

    def _led(self, to: LetterDestination) -> LeaderPartition:
        return self._broker.replicas.find(to.topic_id.bytes, to.partition)

    async def _opened(self, partition: LeaderPartition, batch: bytes) -> bytes | memoryview:
        """The batch as the topic wants it stored: compressed, for instance, or looked at since it is compacted."""
        now_ms, config = self._broker.clock.now_ms(), partition.log.config
        if is_sound(batch, partition.check(batch, now_ms, ZSTD_SINCE), config, now_ms):
            return batch
        allowance = Allowance(len(batch))
        opened = self._broker.validation_pool.start(
            len(batch), lambda: rewrite(batch, config, now_ms, allowance, yield_interpreter)
        )
        if opened is None:
            raise RequestTimedOut("Too many batches wait to be validated.")
        return await opened

    async def _produce(self, to: LetterDestination, batch: bytes) -> None:
        """Send a batch to another broker, and wait for its answer."""
        from kio.schema.produce.v13 import request as producing
        from kio.schema.produce.v13.response import ProduceResponse

        part = producing.PartitionProduceData(index=to.partition, records=batch)  # type: ignore[arg-type]
        request = producing.ProduceRequest(
            transactional_id=None,
            acks=-1,  # type: ignore[arg-type]
            timeout=int(WRITE_SECONDS * 1000) * MILLISECOND,  # type: ignore[arg-type]
            topic_data=(producing.TopicProduceData(topic_id=to.topic_id, partition_data=(part,)),),
        )
        try:
            response = await self._broker.peers.ask(
                to.leader, request, ProduceResponse, seconds=WRITE_SECONDS + 1, purpose="dead-letters"
            )
        except ChannelBroken as error:
            raise NotLeaderOrFollower(f"Broker {to.leader} cannot be asked: {error}") from error
        answers = [part for topic in response.responses for part in topic.partition_responses]
        if len(answers) != 1:
            raise UnknownServerError(f"Broker {to.leader} answered for {len(answers)} partitions.")
        if answers[0].error_code is not ErrorCode.none:
            raise _refusal(to, answers[0])


async def _committed(partition: LeaderPartition, end_offset: int) -> None:
    """Wait until everything before an offset is committed. Raises ApiError."""
    result: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()

    def done(error: ApiError | None) -> None:
        if not result.done():
            result.set_result(error)

    partition.when_committed(end_offset, done)
    try:
        error = await asyncio.wait_for(result, WRITE_SECONDS)
    except TimeoutError:
        raise RequestTimedOut("The followers or the disk did not confirm the dead letters in time.") from None
    error = error or partition.present.too_few_in_sync()
    if error is not None:
        raise error


def _refusal(to: LetterDestination, answer: Any) -> ApiError:
    text = f"Broker {to.leader} answered {answer.error_code.name}: {answer.error_message or 'it did not say why'}"
    return MessageTooLarge(text) if answer.error_code in TOO_LARGE else NotLeaderOrFollower(text)
