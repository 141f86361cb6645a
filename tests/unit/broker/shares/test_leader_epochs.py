"""Share partitions when their partition has a new leader, or none here: what outlives that, and what ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.metrics.scrape import Pace
from barnabas.broker.metrics.series.coordinators import CoordinatorSeries
from barnabas.broker.shares.dead_letters import DeadLetterWriter
from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.model.errors import ErrorCode
from tests.support.producing import lead_anew, now_led
from tests.support.share_letters import (
    archived,
    delete_topic,
    have_dead_letters,
    hosted,
    letters,
    make_dead,
    reject,
    stored,
    until,
)
from tests.support.share_members import ACCEPT, Member, acquired, queue, send

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.context import BrokerContext


async def test_locks_outlive_a_new_leader_epoch_of_the_same_leader(tmp_path: Path) -> None:
    """As after the death of a follower. Otherwise two members could both be told that their word counts."""
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 1, 1)]
        lead_anew(broker, "jobs")
        lead_anew(broker, "jobs")
        send(broker, 1)
        assert acquired(await bela.fetch(wait_ms=5000)) == [(2, 2, 1)]
        assert await bela.acknowledge((0, 0, ACCEPT)) is ErrorCode.invalid_record_state
        assert await anna.acknowledge((0, 1, ACCEPT)) is ErrorCode.none
        assert await bela.acknowledge((2, 2, ACCEPT)) is ErrorCode.none


async def test_a_state_is_read_anew_if_another_broker_may_have_led_meanwhile(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 1, 1)]
        topic = broker.metadata.topic("jobs")
        assert topic is not None
        now_led(broker, topic, leader_epoch=broker.replicas.find("jobs", 0).leader.leader_epoch + 2)
        assert acquired(await bela.fetch(wait_ms=5000)) == [(0, 1, 1)]
        assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.invalid_record_state
        assert await bela.acknowledge((0, 1, ACCEPT)) is ErrorCode.none


# Leaders that lead no more


def lead_elsewhere(broker: BrokerContext) -> None:
    """Let the cluster's image say that broker 7 leads the messages."""
    image = broker.metadata.image
    topic = image.topics["jobs"]
    first, *rest = topic.partitions
    moved = replace(first, leader=7, leader_epoch=first.leader_epoch + 1, replicas=(broker.broker_id, 7), isr=(7,))
    topics = {**image.topics, "jobs": replace(topic, partitions=(moved, *rest))}
    broker.metadata.replace(replace(image, topics=topics))


async def test_a_leader_that_was_replaced_writes_no_more_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader writes them: those of both would be there twice."""
    async with queue(tmp_path) as (broker, topic_id):
        await make_dead(broker)
        await have_dead_letters(broker)
        send(broker, 2)
        composing, may_send = asyncio.Event(), asyncio.Event()
        compose = DeadLetterWriter._compose

        async def slow(*args: Any) -> Any:
            composed = await compose(*args)
            composing.set()
            await may_send.wait()
            return composed

        monkeypatch.setattr(DeadLetterWriter, "_compose", slow)
        await reject(broker, topic_id, 0, 1)
        await composing.wait()
        served = hosted(broker, topic_id)
        topic = broker.metadata.topic("jobs")
        assert topic is not None
        now_led(broker, topic, leader=7, leader_epoch=served.partition.leader.leader_epoch + 1)
        may_send.set()
        await until(lambda: not served.archiver.is_busy, "the archiver to end")
        assert letters(broker) == []
        assert broker.shares.dead_letters.counts["workers"].produces == 0
        assert [each.delivery_state for each in stored(broker).batches] == [DeliveryState.ARCHIVING]


async def test_what_a_replaced_leader_has_left_is_written_when_it_leads_again(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        await have_dead_letters(broker)
        send(broker, 2)
        await reject(broker, topic_id, 0, 1)
        served = hosted(broker, topic_id)
        topic, epoch = broker.metadata.topic("jobs"), served.partition.leader.leader_epoch
        assert topic is not None
        lead_elsewhere(broker)
        await until(lambda: not served.archiver.is_busy, "the archiver to end")
        await make_dead(broker)
        now_led(broker, topic, leader_epoch=epoch + 2)
        bela = Member(broker, topic_id, "bela")
        assert acquired(await bela.fetch()) == []
        await archived(broker, 2)
        assert [each.offset for each in letters(broker)] == [0, 1]


async def lags(broker: BrokerContext) -> list[str]:
    """The series of what groups have still to do."""
    families = await CoordinatorSeries(broker, 10).collect(Pace())
    return [line for family in families for line in family.lines if line.startswith("barnabas_sharegroup_lag{")]


async def fence(broker: BrokerContext) -> None:
    broker.membership.fence.fence()


async def move(broker: BrokerContext) -> None:
    lead_elsewhere(broker)


async def delete(broker: BrokerContext) -> None:
    await delete_topic(broker, "jobs")


@pytest.mark.parametrize("lose", [move, delete, fence])
async def test_what_is_led_here_no_more_is_served_and_counted_no_more(
    tmp_path: Path, lose: Callable[[BrokerContext], Awaitable[None]]
) -> None:
    """Though nobody asks for it: its members turn to the next leader, which counts it, too."""
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 1, 1)]
        await lose(broker)
        assert broker.shares.hosted() == []
        assert await lags(broker) == []


async def test_what_waits_in_the_log_is_counted_in_a_new_leader_epoch_too(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, 1)]
        image = broker.metadata.image
        topic = image.topics["jobs"]
        first, *rest = topic.partitions
        anew = replace(topic, partitions=(replace(first, leader_epoch=first.leader_epoch + 1), *rest))
        broker.metadata.replace(replace(image, topics={**image.topics, "jobs": anew}))
        send(broker, 2)
        assert await lags(broker) == ['barnabas_sharegroup_lag{group="workers",topic="jobs",partition="0"} 3\n']
        assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.none
