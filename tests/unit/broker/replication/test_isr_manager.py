"""What becomes of a change of in-sync replicas that the controller does not decide at once."""

from __future__ import annotations

import asyncio
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest
from kio.schema.alter_partition.v3 import request
from kio.schema.types import BrokerId
from kio.serial import entity_writer
from kio.static.primitive import i32, i64

from barnabas.broker.replication import isr_manager
from barnabas.broker.replication.isr_manager import IsrDecision, IsrManager
from barnabas.machines.partition import PartitionLeader
from barnabas.model.errors import ApiError, IneligibleReplica, InvalidUpdateVersion, NotController, RequestTimedOut
from barnabas.model.ids import TopicPartition
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire.codec import decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.replication.isr_manager import IsrProposal

SECONDS: Final = 5.0
"""Well below the time between two checks of all followers."""


class Controller:
    """Answers each request with the next of its answers, and decides as proposed when it has no more of them."""

    def __init__(self, *answers: ApiError, raises: int = 1_000) -> None:
        """So many of the answers are raised, as by a controller that could not be asked; the others refuse."""
        self.answers = [*answers]
        self.raises = raises
        self.asked = 0
        self.most = 0
        """The most partitions that a request named."""

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrDecision | ApiError]:
        self.asked += 1
        self.most = max(self.most, len(proposals))
        if not self.answers:
            return [IsrDecision(each.isr, each.partition_epoch + 1) for each in proposals]
        answer = self.answers.pop(0)
        self.raises -= 1
        if self.raises >= 0:
            raise answer
        return [answer for _ in proposals]


class Partition:
    """A partition that broker 1 leads; 2 follows and has everything."""

    def __init__(self, index: int = 0) -> None:
        self.tp = TopicPartition("topic", index)
        self.topic_id = uuid4()
        self.leader = PartitionLeader(
            broker_id=1, leader_epoch=1, replicas=(1, 2), isr=(1,), log_end_offset=5, high_watermark=5
        )
        self.leader.fetched(2, 5)
        self.is_in_sync = asyncio.Event()

    def commit_isr(self, isr: Sequence[int], partition_epoch: int) -> None:
        self.leader.commit_isr(isr, partition_epoch)
        self.is_in_sync.set()


async def grow(controller: Controller, count: int = 1) -> Partition:
    """Let followers that have caught up be proposed, and wait until they are in sync; the last of the partitions."""
    partitions = [Partition(index) for index in range(count)]
    replicas = SimpleNamespace(
        get=lambda topic, index: partitions[index], all=lambda: partitions, brokers_up=lambda: {1: None, 2: None}
    )
    settings = SimpleNamespace(number={"replica.lag.time.max.ms": 30_000}.__getitem__, number_or_none=lambda name: None)
    manager = IsrManager(cast("Any", replicas), controller, cast("Any", settings))
    manager.start()
    try:
        for partition in partitions:
            manager.isr_may_grow(cast("Any", partition))
        async with asyncio.timeout(SECONDS):
            for partition in partitions:
                await partition.is_in_sync.wait()
    finally:
        await manager.stop()
    return partitions[-1]


@pytest.mark.parametrize("error", [NotController("no more"), RequestTimedOut("no answer")])
async def test_what_could_not_be_asked_for_is_asked_for_again_soon(error: ApiError) -> None:
    controller = Controller(error, error)
    partition = await grow(controller)
    assert partition.leader.isr == {1, 2}
    assert controller.asked == 3


@pytest.mark.parametrize("error", [NotController("it knows less"), InvalidUpdateVersion("it knows more")])
async def test_a_proposal_in_doubt_is_made_again_soon(error: ApiError) -> None:
    controller = Controller(error, error, raises=0)
    partition = await grow(controller)
    assert partition.leader.isr == {1, 2}
    assert controller.asked == 3


async def test_a_doubt_that_outlives_a_refusal_is_ended_soon() -> None:
    """The first proposal may be in force: its replica counts until the controller has said which ISR is."""
    controller = Controller(RequestTimedOut("no answer"), IneligibleReplica("it registered again"), raises=1)
    partition = await grow(controller)
    assert partition.leader.isr == partition.leader.maximal_isr == {1}
    assert controller.asked == 3


async def test_many_partitions_are_proposed_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller refused one that named 30,000: it had too many elements, and none of them came in sync again."""
    monkeypatch.setattr(isr_manager, "MOST_AT_ONCE", 10)
    controller = Controller(NotController("no more"))
    await grow(controller, 25)
    assert controller.most == 10
    assert controller.asked == 4


def test_a_request_has_no_more_elements_than_a_broker_reads() -> None:
    replicas = 15
    proposal = request.PartitionData(
        partition_index=i32(0),
        leader_epoch=i32(0),
        partition_epoch=i32(0),
        new_isr_with_epochs=(request.BrokerState(broker_id=BrokerId(1), broker_epoch=i64(0)),) * replicas,
    )
    topic = request.TopicData(topic_id=uuid4(), partitions=(proposal,))
    message = request.AlterPartitionRequest(
        broker_id=BrokerId(1), broker_epoch=i64(0), topics=(topic,) * isr_manager.MOST_AT_ONCE
    )
    packed = BytesIO()
    entity_writer(request.AlterPartitionRequest)(packed, message)
    read = decoder(ApiKey.ALTER_PARTITION, 3, 3)(memoryview(packed.getvalue()), 0)
    assert len(read.topics) == isr_manager.MOST_AT_ONCE
