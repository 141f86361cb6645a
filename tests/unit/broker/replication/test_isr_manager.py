"""What becomes of a change of in-sync replicas that the controller does not decide at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest

from barnabas.broker.replication.isr_manager import IsrDecision, IsrManager
from barnabas.machines.partition import PartitionLeader
from barnabas.model.errors import ApiError, InvalidUpdateVersion, NotController, RequestTimedOut
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.replication.isr_manager import IsrProposal

SECONDS: Final = 5.0
"""Well below the time between two checks of all followers."""


class Controller:
    """Answers each request with the next of its answers, and decides as proposed when it has no more of them."""

    def __init__(self, *answers: ApiError) -> None:
        self.answers = [*answers]
        self.raises = True
        self.asked = 0

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrDecision | ApiError]:
        self.asked += 1
        if not self.answers:
            return [IsrDecision(each.isr, each.partition_epoch + 1) for each in proposals]
        answer = self.answers.pop(0)
        if self.raises:
            raise answer
        return [answer for _ in proposals]


class Partition:
    """A partition that broker 1 leads; 2 follows and has everything."""

    def __init__(self) -> None:
        self.tp = TopicPartition("topic", 0)
        self.topic_id = uuid4()
        self.leader = PartitionLeader(
            broker_id=1, leader_epoch=1, replicas=(1, 2), isr=(1,), log_end_offset=5, high_watermark=5
        )
        self.leader.fetched(2, 5)
        self.is_in_sync = asyncio.Event()

    def commit_isr(self, isr: Sequence[int], partition_epoch: int) -> None:
        self.leader.commit_isr(isr, partition_epoch)
        self.is_in_sync.set()


async def grow(controller: Controller) -> Partition:
    """Let a follower that has caught up be proposed, and wait until it is in sync."""
    partition = Partition()
    replicas = SimpleNamespace(
        get=lambda topic, index: partition, all=lambda: (partition,), brokers_up=lambda: {1: None, 2: None}
    )
    settings = SimpleNamespace(number={"replica.lag.time.max.ms": 30_000}.__getitem__, number_or_none=lambda name: None)
    manager = IsrManager(cast("Any", replicas), controller, cast("Any", settings))
    manager.start()
    try:
        manager.isr_may_grow(cast("Any", partition))
        async with asyncio.timeout(SECONDS):
            await partition.is_in_sync.wait()
    finally:
        await manager.stop()
    return partition


@pytest.mark.parametrize("error", [NotController("no more"), RequestTimedOut("no answer")])
async def test_what_could_not_be_asked_for_is_asked_for_again_soon(error: ApiError) -> None:
    controller = Controller(error, error)
    partition = await grow(controller)
    assert partition.leader.isr == {1, 2}
    assert controller.asked == 3


@pytest.mark.parametrize("error", [NotController("it knows less"), InvalidUpdateVersion("it knows more")])
async def test_a_proposal_in_doubt_is_made_again_soon(error: ApiError) -> None:
    controller = Controller(error, error)
    controller.raises = False
    partition = await grow(controller)
    assert partition.leader.isr == {1, 2}
    assert controller.asked == 3
