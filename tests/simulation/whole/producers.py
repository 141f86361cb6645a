"""Idempotent producers with acks=all: a batch is sent again, unchanged, until it is known to be stored.

With one batch at a time per partition a sequence that the broker calls out of order means that it has forgotten what it
acknowledged. Clients have up to five on their way (`PipelinedProducer`): there it means this only for the first of
those that were sent together, when everything before it had been acknowledged. And a broker that knows nothing of a
producer takes any sequence, as in Kafka: if the very first batch was refused for a moment and the next one was taken,
the first cannot be stored any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from tests.history.checker import Fate
from tests.simulation.whole.client import Client, Unanswered
from tests.simulation.whole.clock import BEGAN_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.whole.client import Address
    from tests.simulation.whole.history import Log

DUPLICATE: Final = ErrorCode.duplicate_sequence_number
FORGOTTEN: Final = (ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id)
AT_ONCE: Final = 5
"""Batches of a partition that are on their way together: max.in.flight.requests.per.connection."""


class Producer:
    """Produces to the partitions of one topic until it is told to stop."""

    forgives = False
    """Whether the topic may lose records: then the producer gets a new id, and goes on."""

    def __init__(self, client: Client, log: Log, topic: str, partitions: int, running: Callable[[], bool]) -> None:
        self._client = client
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._running = running
        self._producer_id = -1
        self._producer_epoch = -1
        self._forgotten = False

    async def run(self) -> None:
        """Produce to all partitions at once."""
        await self._init()
        await asyncio.gather(*(self._produce(partition) for partition in range(self._partitions)))

    async def _init(self) -> None:
        while True:
            try:
                answer = await self._client.ask_any(
                    ApiKey.INIT_PRODUCER_ID, 4, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
                )
            except Unanswered:
                await self._client.pause()
                continue
            if not answer.error_code.value:
                self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
                return
            await self._client.pause()

    async def _produce(self, partition: int) -> None:
        sequence = 0
        chance = self._client.chance
        while self._running():
            values = self._next_values(partition, sequence)
            await self._send(partition, sequence, values)
            sequence = 0 if self._forgotten else sequence + len(values)
            self._forgotten = False
            await self._between(partition)
            await asyncio.sleep(chance.expovariate(2.5))

    async def _between(self, partition: int) -> None:
        """What else is to be done."""

    def _next_values(self, partition: int, sequence: int) -> list[str]:
        """What is sent next."""
        count = self._client.chance.choice((1, 1, 1, 2, 5))
        values = [f"{self._client.name}/{partition}/{sequence + number}" for number in range(count)]
        for value in values:
            self._log.sending(self._client.name, partition, value)
        return values

    def _stored(self, partition: int, values: list[str], base_offset: int) -> None:
        """It was acknowledged; -1 if the broker does not know any more where it is."""
        for number, value in enumerate(values):
            self._log.sent(value, Fate.ACKNOWLEDGED, base_offset + number if base_offset >= 0 else -1)

    async def _send(self, partition: int, sequence: int, values: list[str]) -> None:
        batch = self._batch(sequence, values)
        while True:
            try:
                address = await self._client.leader_address(self._topic, partition)
                result = await self._produced(address, partition, batch)
            except Unanswered:
                self._client.forget_leader(self._topic, partition)
                await self._client.pause()
                continue
            code = ErrorCode(result.error_code.value)
            if code in (ErrorCode.none, DUPLICATE):
                self._stored(partition, values, result.base_offset)
                self._log.say(f"{self._client.name}: {values[0]}+{len(values)} stored at {result.base_offset}")
                return
            if code in FORGOTTEN and self.forgives:
                await self._init()
                self._forgotten = True
                return
            if code in FORGOTTEN:
                self._log.violate(f"{self._client.name}: {code.name} for {values[0]} in partition {partition}")
                return
            self._log.trace(self._client.name, values[0], code.name)
            self._client.forget_leader(self._topic, partition)
            await self._client.pause()

    async def _produced(self, address: Address, partition: int, batch: bytes) -> Any:
        """What a broker answers for the partition; raises Unanswered."""
        topics = [{"name": self._topic, "partition_data": [{"index": partition, "records": batch}]}]
        answer = await self._client.ask(address, ApiKey.PRODUCE, 9, acks=-1, timeout=5000, topic_data=topics)
        return answer.responses[0].partition_responses[0]

    def _batch(self, sequence: int, values: list[str]) -> bytes:
        return build_batch(
            [Record(number, 0, None, value.encode()) for number, value in enumerate(values)],
            base_timestamp=BEGAN_MS,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
        )


class Batch(NamedTuple):
    """What is sent until it is acknowledged."""

    values: list[str]
    data: bytes


class PipelinedProducer(Producer):
    """Sends several batches before the first is acknowledged, in order, and those again that were not."""

    def __init__(self, client: Client, log: Log, topic: str, partitions: int, running: Callable[[], bool]) -> None:
        super().__init__(client, log, topic, partitions, running)
        self._begun: dict[int, bool] = {}
        """Whether the first batch of what was sent together was stored in a partition."""

    async def _produce(self, partition: int) -> None:
        chance = self._client.chance
        sequence, waiting, self._begun[partition] = 0, list[Batch](), False
        while self._running() or waiting:
            wanted = chance.randint(1, AT_ONCE)
            while self._running() and len(waiting) < wanted:
                values = self._next_values(partition, sequence)
                waiting.append(Batch(values, self._batch(sequence, values)))
                sequence += len(values)
            waiting = await self._send_all(partition, waiting)
            await asyncio.sleep(chance.expovariate(2.5) * len(waiting or "1"))

    async def _send_all(self, partition: int, waiting: list[Batch]) -> list[Batch]:
        """Send batches over one connection; gives those that were not acknowledged."""
        try:
            address = await self._client.leader_address(self._topic, partition)
        except Unanswered:
            await self._client.pause()
            return waiting
        answers = []
        for batch in waiting:
            answers.append(asyncio.ensure_future(self._attempt(address, partition, batch)))
            await asyncio.sleep(self._client.chance.random() ** 4 * 0.3)
        codes = await asyncio.gather(*answers)
        if codes and codes[0] in FORGOTTEN:
            line = f"{self._client.name}: {codes[0].name} for {waiting[0].values[0]} in partition {partition}"
            (self._log.violate if self._begun[partition] else self._log.say)(line)
            return waiting[1:]
        self._begun[partition] |= bool(codes) and codes[0] in (ErrorCode.none, DUPLICATE)
        left = [batch for batch, code in zip(waiting, codes, strict=True) if code not in (ErrorCode.none, DUPLICATE)]
        if left:
            self._client.forget_leader(self._topic, partition)
            await self._client.pause()
        return left

    async def _attempt(self, address: Address, partition: int, batch: Batch) -> ErrorCode:
        """Send one of them; no answer is an error like any other."""
        try:
            result = await self._produced(address, partition, batch.data)
        except Unanswered:
            return ErrorCode.network_exception
        code = ErrorCode(result.error_code.value)
        if code in (ErrorCode.none, DUPLICATE):
            self._stored(partition, batch.values, result.base_offset)
            self._log.say(f"{self._client.name}: {batch.values[0]}+{len(batch.values)} stored at {result.base_offset}")
        self._log.trace(self._client.name, batch.values[0], code.name)
        return code
