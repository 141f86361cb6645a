"""Transactional producers: each transaction writes to some partitions, and is committed or aborted.

A transaction that goes wrong is given up: the producer asks for a new epoch, which aborts what was open. So only a
transaction whose end was asked for, and never answered, may have either outcome.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from tests.history.checker import Fate
from tests.simulation.whole.client import Client, Unanswered
from tests.simulation.whole.clock import BEGAN_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.whole.history import Log

TRANSACTION: Final = 1
GROUP: Final = 0
"""Kinds of coordinators."""
MOVED: Final = (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available)
PASSES: Final = (
    *MOVED,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.concurrent_transactions,
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.leader_not_available,
    ErrorCode.kafka_storage_error,
    ErrorCode.network_exception,
)
STORED: Final = (ErrorCode.none, ErrorCode.duplicate_sequence_number)


class GivenUp(Exception):
    """The transaction cannot go on."""


class Transactor:
    """Does one transaction after the other until it is told to stop.

    `version` is its transaction.version: from 2 on partitions and groups are added to a transaction by writing to them,
    and each end brings a new epoch.
    """

    def __init__(
        self, client: Client, log: Log, topic: str, partitions: int, running: Callable[[], bool], version: int
    ) -> None:
        self._version = version
        self._client = client
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._running = running
        self._id = f"tx-{client.name}"
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[int, int] = {}
        self._count = 0
        self._group = f"g-{self._id}"
        self._committed = self._tried = -1
        """The offset that its group has, and the highest that it may have."""

    async def run(self) -> None:
        """Transact; at the end nothing is left open."""
        await self._init()
        while self._running():
            await self._transact()
            await asyncio.sleep(self._client.chance.expovariate(1.2))
        await self._init()
        while not await self._look():
            await self._client.pause()

    async def _init(self) -> None:
        """A new epoch, which ends whatever was open."""
        while True:
            try:
                answer = await self._client.ask_coordinator(
                    TRANSACTION,
                    self._id,
                    ApiKey.INIT_PRODUCER_ID,
                    5 if self._version >= 2 else 4,
                    transactional_id=self._id,
                    transaction_timeout=20_000,
                    producer_id=-1,
                    producer_epoch=-1,
                )
            except Unanswered:
                await self._client.pause()
                continue
            code = ErrorCode(answer.error_code.value)
            if code is ErrorCode.none:
                self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                self._log.say(f"{self._id}: epoch {self._producer_epoch} of producer {self._producer_id}")
                return
            await self._wait_after(code)

    async def _wait_after(self, code: ErrorCode) -> None:
        self._log.trace(self._id, code.name)
        if code in MOVED:
            self._client.forget_coordinator(TRANSACTION, self._id)
        await self._client.pause()

    async def _transact(self) -> None:
        chance = self._client.chance
        self._count += 1
        name = f"{self._id}#{self._count}"
        commits = chance.random() < 0.7
        places = chance.sample(range(self._partitions), chance.randint(1, self._partitions))
        values = [(place, f"{name}/{place}/{number}") for place in places for number in range(chance.randint(1, 3))]
        for place, value in values:
            self._log.sending(self._id, place, value, name)
        asked_to_commit = False
        offset = self._count if chance.random() < 0.4 else -1
        try:
            for place in places:
                if self._version < 2:
                    await self._add(place)
                await self._produce(place, [value for where, value in values if where == place])
            if offset >= 0:
                await self._send_offset(offset)
            asked_to_commit = commits
            if commits:
                self._tried = max(self._tried, offset)
            await self._end(commits)
        except GivenUp as reason:
            self._log.say(f"{name} is given up: {reason}")
            await self._init()
            fate = Fate.UNKNOWN if asked_to_commit else Fate.REFUSED
        else:
            fate = Fate.ACKNOWLEDGED if commits else Fate.REFUSED
            if commits:
                self._committed = max(self._committed, offset)
            self._log.say(f"{name} is {'committed' if commits else 'aborted'}: {len(values)} records in {places}")
        for _, value in values:
            self._log.sent(value, fate)

    async def _add(self, partition: int) -> None:
        while True:
            try:
                answer = await self._client.ask_coordinator(
                    TRANSACTION,
                    self._id,
                    ApiKey.ADD_PARTITIONS_TO_TXN,
                    3,
                    v3_and_below_transactional_id=self._id,
                    v3_and_below_producer_id=self._producer_id,
                    v3_and_below_producer_epoch=self._producer_epoch,
                    v3_and_below_topics=[{"name": self._topic, "partitions": [partition]}],
                )
            except Unanswered:
                await self._client.pause()
                continue
            topic = answer.results_by_topic_v3_and_below[0]
            code = ErrorCode(topic.results_by_partition[0].partition_error_code.value)
            if code is ErrorCode.none:
                return
            await self._pass_or_give_up(code)

    async def _send_offset(self, offset: int) -> None:
        """Commit an offset as part of the transaction."""
        if self._version < 2:
            await self._ask(
                ApiKey.ADD_OFFSETS_TO_TXN,
                3,
                transactional_id=self._id,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                group_id=self._group,
            )
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        while True:
            try:
                answer = await self._client.ask_coordinator(
                    GROUP,
                    self._group,
                    ApiKey.TXN_OFFSET_COMMIT,
                    5 if self._version >= 2 else 3,
                    transactional_id=self._id,
                    group_id=self._group,
                    producer_id=self._producer_id,
                    producer_epoch=self._producer_epoch,
                    generation_id=-1,
                    topics=[{"name": self._topic, "partitions": [partition]}],
                )
            except Unanswered:
                await self._client.pause()
                continue
            code = ErrorCode(answer.topics[0].partitions[0].error_code.value)
            if code is ErrorCode.none:
                return
            self._client.forget_coordinator(GROUP, self._group)
            await self._pass_or_give_up(code)

    async def _look(self) -> bool:
        """Whether the group's offset was told; it is between what was committed and what may have been."""
        try:
            answer = await self._client.ask_coordinator(
                GROUP,
                self._group,
                ApiKey.OFFSET_FETCH,
                8,
                groups=[{"group_id": self._group, "topics": [{"name": self._topic, "partition_indexes": [0]}]}],
                require_stable=True,
            )
        except Unanswered:
            return False
        (group,) = answer.groups
        if group.error_code.value or group.topics[0].partitions[0].error_code.value:
            self._client.forget_coordinator(GROUP, self._group)
            return False
        found = group.topics[0].partitions[0].committed_offset
        if not self._committed <= found <= self._tried:
            self._log.violate(f"{self._group} had committed {self._committed} in a transaction, and finds {found}")
        return True

    async def _ask(self, key: ApiKey, version: int, **values: Any) -> Any:
        """The answer of the transaction coordinator, when it is a good one."""
        while True:
            try:
                answer = await self._client.ask_coordinator(TRANSACTION, self._id, key, version, **values)
            except Unanswered:
                await self._client.pause()
                continue
            code = ErrorCode(answer.error_code.value)
            if code is ErrorCode.none:
                return answer
            await self._pass_or_give_up(code)

    async def _produce(self, partition: int, values: list[str]) -> None:
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            [Record(number, 0, None, value.encode()) for number, value in enumerate(values)],
            base_timestamp=BEGAN_MS,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        while True:
            try:
                answer = await self._client.ask_leader(
                    self._topic,
                    partition,
                    ApiKey.PRODUCE,
                    12 if self._version >= 2 else 9,
                    transactional_id=self._id,
                    acks=-1,
                    timeout=5000,
                    topic_data=[
                        {"name": self._topic, "partition_data": [{"index": partition, "records": batch}]},
                    ],
                )
            except Unanswered:
                await self._client.pause()
                continue
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code.value)
            if code in STORED:
                self._sequences[partition] = sequence + len(values)
                return
            self._client.forget_leader(self._topic, partition)
            await self._pass_or_give_up(code)

    async def _end(self, commits: bool) -> None:
        answer = await self._ask(
            ApiKey.END_TXN,
            5 if self._version >= 2 else 3,
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=commits,
        )
        if self._version >= 2:
            self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    async def _pass_or_give_up(self, code: ErrorCode) -> None:
        if code not in PASSES:
            raise GivenUp(code.name)
        await self._wait_after(code)
